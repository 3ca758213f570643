"""Charging, reading and refusing."""

import copy
import multiprocessing
import os
import pickle
import sqlite3
import stat
import threading
from pathlib import Path

import pytest

import discreet as dp
from discreet.ledger import block_size
from discreet.ledger.book import Book, follow
from discreet.ledger.codec import encode
from discreet.ledger.rows import Began, Opened, Reserved, Row, Settled
from support.examples import INFO, OTHER_STEP, STEP, counts, varied_ledger


@pytest.fixture
def ledger() -> dp.Ledger:
    made = dp.Ledger.in_memory()
    made.begin(INFO)
    return made


def total(ledger: dp.Ledger) -> int:
    return sum(charge.count for charge in ledger.charges())


# --- reserve and settle ---


def test_a_reservation_counts_in_full_until_it_is_settled(ledger: dp.Ledger) -> None:
    with ledger.reserve(STEP, count=10) as lease:
        assert ledger.charges() == (dp.Charge(INFO, STEP, 10, unsettled=10),)
        assert [lease.take(), lease.take()] == [0, 1]
        assert (lease.taken, lease.left) == (2, 8)
        assert total(ledger) == 10
    assert ledger.charges() == (dp.Charge(INFO, STEP, 2),)


def test_a_lease_never_left_counts_in_full(ledger: dp.Ledger) -> None:
    ledger.reserve(STEP, count=10).take()
    assert total(ledger) == 10


def test_an_exception_settles_to_what_was_taken(ledger: dp.Ledger) -> None:
    with pytest.raises(ZeroDivisionError), ledger.reserve(STEP, count=10) as lease:
        lease.take()
        raise ZeroDivisionError
    assert total(ledger) == 1


def test_a_lease_of_which_nothing_was_taken_costs_nothing_but_keeps_its_place(ledger: dp.Ledger) -> None:
    """A budget's filter is chosen from what was reserved first; that must not change by settling."""
    first = ledger.reserve(STEP, count=10)
    ledger.reserve(OTHER_STEP, count=1).take()
    first.settle()
    assert [(charge.step, charge.count) for charge in ledger.charges()] == [(STEP, 0), (OTHER_STEP, 1)]


def test_a_lease_gives_no_more_than_was_reserved(ledger: dp.Ledger) -> None:
    with ledger.reserve(STEP, count=2) as lease:
        lease.take()
        lease.take()
        with pytest.raises(dp.LedgerMisuse, match="all 2 steps were taken"):
            lease.take()
    assert total(ledger) == 2


def test_a_settled_lease_gives_nothing(ledger: dp.Ledger) -> None:
    with ledger.reserve(STEP, count=2) as lease:
        lease.take()
    with pytest.raises(dp.LedgerMisuse, match="settled"):
        lease.take()
    assert lease.left == 0
    lease.settle()
    assert total(ledger) == 1


def test_p20_a_lease_and_a_handle_cannot_be_copied(ledger: dp.Ledger) -> None:
    with ledger.reserve(STEP, count=2) as lease:
        for thing in (lease, ledger):
            for duplicate in (copy.copy, copy.deepcopy, pickle.dumps):
                with pytest.raises(dp.LedgerMisuse, match="copy or pickle"):
                    duplicate(thing)


def test_threads_together_take_no_more_than_was_reserved(ledger: dp.Ledger) -> None:
    taken: list[int] = []

    def work(lease: dp.Lease) -> None:
        try:
            while True:
                taken.append(lease.take())
        except dp.LedgerMisuse:
            pass

    with ledger.reserve(STEP, count=5000) as lease:
        threads = [threading.Thread(target=work, args=(lease,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(taken) == list(range(5000))


def test_p20_a_fork_can_neither_take_nor_settle_nor_write(tmp_path: Path) -> None:
    ledger = dp.Ledger.open(tmp_path / "a.ledger")
    ledger.begin(INFO)

    def child() -> None:
        refused = 0
        for use in (lease.take, lease.settle, ledger.charges, lambda: ledger.reserve(STEP, count=1), ledger.verify):
            try:
                use()
            except dp.LedgerMisuse as error:
                refused += "fork" in str(error)
        with lease:  # leaving it must not settle the parent's charge
            pass
        os._exit(refused)

    with ledger.reserve(STEP, count=5) as lease:
        lease.take()
        process = multiprocessing.get_context("fork").Process(target=child)
        process.start()
        process.join()
        assert process.exitcode == 5
        assert total(ledger) == 5
        lease.take()
    assert total(ledger) == 2


# --- steps in blocks ---


@pytest.mark.parametrize("block", [None, 1, 7, 100])
def test_steps_yields_each_number_once_and_charges_before(ledger: dp.Ledger, block: int | None) -> None:
    seen = []
    for number in ledger.steps(STEP, 50, block=block):
        seen.append(number)
        assert total(ledger) >= len(seen)
    assert seen == list(range(50))
    assert ledger.charges()[0].count == 50


def test_breaking_off_settles_to_the_steps_seen(ledger: dp.Ledger) -> None:
    for number in ledger.steps(STEP, 1000):
        if number == 40:
            break
    assert total(ledger) == 41


def test_a_million_equal_steps_are_a_few_rows_and_over_count_by_an_eighth_at_most() -> None:
    taken, writes = 0, 0
    while taken < 1_000_000:
        block = block_size(taken)
        assert block <= max(32, taken / 8)
        taken, writes = taken + block, writes + 1
    assert writes < 120


# --- what is refused, and leaves the ledger as it was ---


def test_without_a_run_nothing_can_be_reserved() -> None:
    ledger = dp.Ledger.in_memory()
    with pytest.raises(dp.LedgerMisuse, match="ledger.begin"):
        ledger.reserve(STEP, count=1)
    with pytest.raises(dp.LedgerMisuse, match="ledger.begin"):
        ledger.mark("unsafe_thing")


def test_bad_arguments_leave_the_ledger_as_it_was(ledger: dp.Ledger) -> None:
    head = ledger.head()
    stranger = dp.Step(dp.Poisson(0.1), dp.GaussianSum("stranger", 1, 1))
    for call in (
        lambda: ledger.reserve(stranger, count=1),
        lambda: ledger.reserve(STEP, count=0),
        lambda: ledger.reserve(STEP, count=1.0),  # type: ignore[arg-type]
        lambda: ledger.reserve("poisson", count=1),  # type: ignore[arg-type]
        lambda: ledger.begin("run"),  # type: ignore[arg-type]
        lambda: ledger.mark("harmless"),
        lambda: next(ledger.steps(STEP, 0)),
        lambda: next(ledger.steps(STEP, 5, block=0)),
    ):
        with pytest.raises(dp.ParameterError):
            call()
    assert ledger.head() == head
    ledger.verify()


def test_run_info_refuses_what_does_not_say_what_is_protected() -> None:
    good = {name: getattr(INFO, name) for name in dp.RunInfo.__dataclass_fields__}
    for change in (
        {"unit": "example"},
        {"adjacency": "zero-out"},
        {"groups": ()},
        {"groups": "grad"},
        {"numerics": None},
        {"randomness": "system"},
        {"parameters": True},
        {"label": "a\nb"},
    ):
        with pytest.raises(dp.ParameterError):
            dp.RunInfo(**(good | change))


def test_p38_a_guard_sees_the_proposed_charge_and_its_refusal_charges_nothing() -> None:
    def guard(charges: tuple[dp.Charge, ...]) -> None:
        spent = sum(charge.count for charge in charges)
        if spent > 10:
            raise dp.BudgetExceeded(expected="at most 10 steps", got=str(spent), do="Stop.")

    ledger = dp.Ledger.in_memory(guard=guard)
    ledger.begin(INFO)
    ledger.reserve(STEP, count=10)
    head = ledger.head()
    with pytest.raises(dp.BudgetExceeded):
        ledger.reserve(OTHER_STEP, count=1)
    assert ledger.head() == head
    assert total(ledger) == 10
    ledger.verify()


def test_a_closed_or_read_only_ledger_says_so(tmp_path: Path) -> None:
    path = tmp_path / "a.ledger"
    varied_ledger(path).close()
    with dp.Ledger.open(path, "r") as reader, pytest.raises(dp.LedgerMisuse, match="opened to read"):
        reader.begin(INFO)
    with pytest.raises(dp.LedgerMisuse, match="closed"):
        reader.charges()


# --- several runs, several handles, marks ---


def test_runs_share_a_ledger_and_are_charged_apart() -> None:
    ledger = varied_ledger()
    assert [run.info.label for run in ledger.runs()] == ["example", "second"]
    assert [(charge.run.label, charge.count, charge.unsettled) for charge in ledger.charges()] == [
        ("example", 12, 5),
        ("example", 1, 0),
        ("second", 2, 2),
    ]


def test_software_and_time_of_a_run_are_recorded(ledger: dp.Ledger) -> None:
    (run,) = ledger.runs()
    assert dict(run.software)["discreet"] == dp.__version__
    assert "python" in dict(run.software)
    assert run.began.endswith("+00:00")


def test_marks_are_kept_and_an_unsafe_key_is_one(ledger: dp.Ledger) -> None:
    ledger.mark("unsafe_raw_metric")
    ledger.mark("unsafe_raw_metric")
    assert ledger.marks() == ("unsafe_raw_metric",)
    info = {name: getattr(INFO, name) for name in dp.RunInfo.__dataclass_fields__}
    ledger.begin(dp.RunInfo(**(info | {"randomness": dp.Randomness.UNSAFE_TEST_KEY})))
    assert ledger.marks() == ("unsafe_raw_metric", "unsafe_test_key")


def test_two_handles_see_each_other(tmp_path: Path) -> None:
    one, two = dp.Ledger.open(tmp_path / "a.ledger"), dp.Ledger.open(tmp_path / "a.ledger")
    one.begin(INFO)
    two.begin(INFO)
    one.reserve(STEP, count=3)
    two.reserve(STEP, count=4)
    one.reserve(STEP, count=5)
    assert total(one) == total(two) == 12
    assert one.head() == two.head() == dp.Ledger.open(tmp_path / "a.ledger", "r").verify().head()


# --- the file ---


def test_power_loss_settings_are_in_force(tmp_path: Path) -> None:
    ledger = dp.Ledger.open(tmp_path / "a.ledger")
    connection = ledger._store._connection
    assert connection.execute("PRAGMA synchronous").fetchone() == (3,)  # EXTRA
    assert connection.execute("PRAGMA journal_mode").fetchone() == (b"delete",)


def test_sql_cannot_edit_or_delete_rows(tmp_path: Path) -> None:
    varied_ledger(tmp_path / "a.ledger").close()
    connection = sqlite3.connect(tmp_path / "a.ledger")
    for command in ("DELETE FROM rows WHERE number = 3", "UPDATE rows SET body = x'00' WHERE number = 3"):
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            connection.execute(command)
    connection.close()


def test_a_path_without_a_ledger_is_said(tmp_path: Path) -> None:
    with pytest.raises(dp.LedgerNotFound):
        dp.Ledger.open(tmp_path / "none.ledger", "r")
    with pytest.raises(dp.LedgerUnavailable):
        dp.Ledger.open(tmp_path / "no" / "folder.ledger")
    with pytest.raises(dp.ParameterError, match="'a' or 'r'"):
        dp.Ledger.open(tmp_path / "x", "w")  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"not a ledger", b"SQLite format 3\x00" + b"\x00" * 200])
def test_a_file_that_is_no_ledger_is_never_taken_over(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.ledger"
    path.write_bytes(content)
    with pytest.raises(dp.LedgerCorrupt):
        dp.Ledger.open(path)
    assert path.read_bytes() == content


def test_another_programs_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE rows (number, body, digest)")
    connection.commit()
    connection.close()
    with pytest.raises(dp.LedgerCorrupt, match="a file that discreet wrote"):
        dp.Ledger.open(path)


def test_a_ledger_can_be_read_where_nothing_can_be_written(tmp_path: Path) -> None:
    folder = tmp_path / "fixed"
    folder.mkdir()
    path = folder / "a.ledger"
    before = counts(varied_ledger(path))
    path.chmod(stat.S_IRUSR)
    folder.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        assert counts(dp.Ledger.open(path, "r").verify()) == before
    finally:
        folder.chmod(stat.S_IRWXU)


def test_a_busy_ledger_is_unavailable_not_corrupt_and_nothing_is_charged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("discreet.ledger.store._WAIT_SECONDS", 0.05)
    ledger = dp.Ledger.open(tmp_path / "a.ledger")
    ledger.begin(INFO)
    blocker = sqlite3.connect(tmp_path / "a.ledger", isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    with pytest.raises(dp.LedgerUnavailable, match="locked"):
        ledger.reserve(STEP, count=1)
    blocker.execute("ROLLBACK")
    blocker.close()
    assert ledger.charges() == ()
    ledger.reserve(STEP, count=1)
    assert total(ledger.verify()) == 1


def test_a_full_disk_is_unavailable_and_nothing_is_charged(tmp_path: Path) -> None:
    ledger = dp.Ledger.open(tmp_path / "a.ledger")
    ledger.begin(INFO)
    pages = ledger._store._connection.execute("PRAGMA page_count").fetchone()[0]
    ledger._store._connection.execute(f"PRAGMA max_page_count = {pages}")
    taken = 0
    with pytest.raises(dp.LedgerUnavailable, match="full"):
        while True:
            ledger.reserve(dp.Step(dp.Poisson(0.1), dp.GaussianSum("grad", 1, 1 + taken)), count=1)
            taken += 1
    assert taken > 0
    assert total(ledger.verify()) == taken


# --- what a book refuses although the chain is whole ---


def read(*rows: Row) -> Book:
    book = Book()
    for row in rows:
        body = encode(row)
        book.read(body, follow(book.digest, body))
    return book


OPENED, BEGAN = Opened("id", "now"), Began(INFO, (), "now")


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([BEGAN], "opens the ledger first"),
        ([OPENED, OPENED], "only there"),
        ([OPENED, Reserved(1, STEP, 1)], "a run that began"),
        ([OPENED, BEGAN, Reserved(1, 2, 1)], "spells out a step"),
        ([OPENED, BEGAN, Reserved(1, dp.Step(dp.Everything(), dp.GaussianSum("x", 1, 1)), 1)], "groups that run 1 declared"),
        ([OPENED, BEGAN, Settled(2, 0)], "not settled yet"),
        ([OPENED, BEGAN, Reserved(1, STEP, 2), Settled(2, 3)], "at most the 2 steps"),
        ([OPENED, BEGAN, Reserved(1, STEP, 2), Settled(2, 1), Settled(2, 0)], "not settled yet"),
    ],
)
def test_a_row_must_make_sense_after_those_before_it(rows: list[Row], reason: str) -> None:
    with pytest.raises(dp.LedgerCorrupt, match=reason) as caught:
        read(*rows)
    assert caught.value.row == len(rows) - 1


def test_verify_compares_with_a_head_kept_elsewhere() -> None:
    ledger = varied_ledger()
    kept = ledger.head()
    ledger.reserve(dp.Step(dp.Everything(), dp.LaplaceSum("metric", 1.0, 2.0)), count=1)
    assert ledger.verify(expected_head=kept) is ledger
    with pytest.raises(dp.LedgerCorrupt, match="history was rewritten"):
        varied_ledger().verify(expected_head=kept)
