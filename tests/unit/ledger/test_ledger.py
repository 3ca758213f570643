"""Charging, reading and refusing."""

import copy
import multiprocessing
import os
import pickle
import sqlite3
import stat
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import discreet as dp
from discreet.ledger import Run, block_size
from discreet.ledger.storage.book import Book, follow
from discreet.ledger.storage.codec import encode
from discreet.ledger.storage.rows import Began, Ended, Held, Marked, Opened, Reserved, Row, Settled
from discreet.ledger.terms import Rule, Terms
from support.examples import (
    INFO,
    METRIC_STEP,
    OTHER_STEP,
    STEP,
    counts,
    roomy_ledger,
    varied_ledger,
)


@pytest.fixture
def ledger() -> dp.Ledger:
    return roomy_ledger()


@pytest.fixture
def run(ledger: dp.Ledger) -> Run:
    return ledger.begin(INFO)


def total(ledger: dp.Ledger) -> int:
    return sum(charge.count for charge in ledger.charges())


# --- reserve and settle ---


def test_a_reservation_counts_in_full_until_it_is_settled(ledger: dp.Ledger, run: Run) -> None:
    with run.reserve(STEP, count=10) as lease:
        assert ledger.charges() == (
            dp.ledger.Charge(INFO, STEP, 10, unsettled=10, number=run.number),
        )
        assert [lease.take(), lease.take()] == [0, 1]
        assert (lease.taken, lease.left) == (2, 8)
        assert total(ledger) == 10
    assert ledger.charges() == (dp.ledger.Charge(INFO, STEP, 2, number=run.number),)


def test_a_lease_never_left_counts_in_full(ledger: dp.Ledger, run: Run) -> None:
    run.reserve(STEP, count=10).take()
    assert total(ledger) == 10


def test_an_exception_settles_to_what_was_taken(ledger: dp.Ledger, run: Run) -> None:
    with pytest.raises(ZeroDivisionError), run.reserve(STEP, count=10) as lease:
        lease.take()
        raise ZeroDivisionError
    assert total(ledger) == 1


def test_a_lease_of_which_nothing_was_taken_costs_nothing_but_keeps_its_place(
    ledger: dp.Ledger, run: Run
) -> None:
    first = run.reserve(STEP, count=10)
    run.reserve(OTHER_STEP, count=1).take()
    first.settle()
    assert [(charge.step, charge.count) for charge in ledger.charges()] == [
        (STEP, 0),
        (OTHER_STEP, 1),
    ]


def test_a_lease_gives_no_more_than_was_reserved(ledger: dp.Ledger, run: Run) -> None:
    with run.reserve(STEP, count=2) as lease:
        lease.take()
        lease.take()
        with pytest.raises(dp.errors.LedgerMisuse, match="all 2 steps were taken"):
            lease.take()
    assert total(ledger) == 2


def test_a_settled_lease_gives_nothing(ledger: dp.Ledger, run: Run) -> None:
    with run.reserve(STEP, count=2) as lease:
        lease.take()
    with pytest.raises(dp.errors.LedgerMisuse, match="settled"):
        lease.take()
    assert lease.left == 0
    lease.settle()
    assert total(ledger) == 1


def test_p20_a_lease_a_run_and_a_handle_cannot_be_copied(ledger: dp.Ledger, run: Run) -> None:
    with run.reserve(STEP, count=2) as lease:
        for thing in (lease, run, ledger):
            for duplicate in (copy.copy, copy.deepcopy, pickle.dumps):
                with pytest.raises(dp.errors.LedgerMisuse, match="copy or pickle"):
                    duplicate(thing)


def test_threads_together_take_no_more_than_was_reserved(ledger: dp.Ledger, run: Run) -> None:
    taken: list[int] = []

    def work(lease: dp.ledger.Lease) -> None:
        try:
            while True:
                taken.append(lease.take())
        except dp.errors.LedgerMisuse:
            pass

    with run.reserve(STEP, count=5000) as lease:
        threads = [threading.Thread(target=work, args=(lease,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(taken) == list(range(5000))


def test_p20_a_fork_can_neither_take_nor_settle_nor_write(tmp_path: Path) -> None:
    ledger = roomy_ledger(tmp_path / "a.ledger")
    run = ledger.begin(INFO)

    def child() -> None:
        refused = 0
        for use in (
            lease.take,
            lease.settle,
            ledger.charges,
            lambda: run.reserve(STEP, count=1),
            ledger.verify,
        ):
            try:
                use()
            except dp.errors.LedgerMisuse as error:
                refused += "fork" in str(error)
        with lease:  # leaving it must not settle the parent's charge
            pass
        os._exit(refused)

    with run.reserve(STEP, count=5) as lease:
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
def test_steps_yields_each_number_once_and_charges_before(
    ledger: dp.Ledger, run: Run, block: int | None
) -> None:
    seen = []
    for number in run.steps(STEP, 50, block=block):
        seen.append(number)
        assert total(ledger) >= len(seen)
    assert seen == list(range(50))
    assert ledger.charges()[0].count == 50


def test_breaking_off_settles_to_the_steps_seen(ledger: dp.Ledger, run: Run) -> None:
    for number in run.steps(STEP, 1000):
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


def test_what_names_no_run_is_refused() -> None:
    ledger = dp.Ledger.in_memory()
    with pytest.raises(dp.errors.LedgerMisuse, match="a run that began"):
        ledger.reserve(1, STEP, 1, spelled_out_in=None)
    with pytest.raises(dp.errors.LedgerMisuse, match="a run that began"):
        ledger.mark(1, "unsafe_thing")
    with pytest.raises(dp.errors.LedgerMisuse, match="a run that is not over"):
        ledger.end(1)


def test_bad_arguments_leave_the_ledger_as_it_was(ledger: dp.Ledger, run: Run) -> None:
    head = ledger.head()
    stranger = dp.ledger.Step(dp.Poisson(0.1), dp.ledger.GaussianSum("stranger", 1, 1))
    for call in (
        lambda: run.reserve(stranger, count=1),
        lambda: run.reserve(STEP, count=0),
        lambda: run.reserve(STEP, count=1.0),  # type: ignore[arg-type]
        lambda: run.reserve("poisson", count=1),  # type: ignore[arg-type]
        lambda: ledger.begin("run"),  # type: ignore[arg-type]
        lambda: ledger.begin(INFO, [(stranger, 1)]),
        lambda: ledger.begin(INFO, [(STEP, 0)]),
        lambda: ledger.begin(INFO, [STEP]),  # type: ignore[list-item]
        lambda: ledger.begin(INFO, continues=99),
        lambda: ledger.begin(INFO, continues=0),
        lambda: ledger.begin(INFO, plan=5),  # type: ignore[arg-type]
        lambda: run.end("a\nb"),
        lambda: ledger.change_budget(0.0, reason="none is left"),
        lambda: ledger.change_budget(1.0, reason=""),
        lambda: ledger.extend_list([(STEP, 1)], reason=""),
        lambda: run.mark("harmless"),
        lambda: next(run.steps(STEP, 0)),
        lambda: next(run.steps(STEP, 5, block=0)),
    ):
        with pytest.raises(dp.errors.ParameterError):
            call()
    assert ledger.head() == head
    ledger.verify()


def test_run_info_refuses_what_does_not_say_what_is_protected() -> None:
    good = {name: getattr(INFO, name) for name in dp.ledger.RunInfo.__dataclass_fields__}
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
        with pytest.raises(dp.errors.ParameterError):
            dp.ledger.RunInfo(**(good | change))


def test_p38_a_budget_sees_the_proposed_charge_and_its_refusal_charges_nothing() -> None:
    ledger = dp.Ledger.in_memory(budget=dp.Filter(epsilon=1.0, delta=1e-5))
    run = ledger.begin(INFO)
    run.reserve(STEP, count=10)
    head = ledger.head()
    with pytest.raises(dp.errors.BudgetExceeded, match="Nothing was charged"):
        run.reserve(METRIC_STEP, count=1)  # Laplace noise with an epsilon of 1/2, on a full batch
    assert ledger.head() == head
    assert total(ledger) == 10
    ledger.verify()


def test_a_closed_or_read_only_ledger_says_so(tmp_path: Path) -> None:
    path = tmp_path / "a.ledger"
    varied_ledger(path).close()
    with (
        dp.Ledger.open(path, "r") as reader,
        pytest.raises(dp.errors.LedgerMisuse, match="opened to read"),
    ):
        reader.begin(INFO)
    with pytest.raises(dp.errors.LedgerMisuse, match="closed"):
        reader.charges()


# --- several runs, several handles, marks ---


def test_runs_share_a_ledger_and_are_charged_apart() -> None:
    ledger = varied_ledger()
    assert [run.info.label for run in ledger.runs()] == ["example", "second", "third"]
    assert [(charge.run.label, charge.count, charge.unsettled) for charge in ledger.charges()] == [
        ("example", 12, 5),
        ("example", 1, 0),
        ("second", 2, 2),
    ]


def test_software_and_time_of_a_run_are_recorded(ledger: dp.Ledger, run: Run) -> None:
    (record,) = ledger.runs()
    assert record.number == run.number
    assert dict(record.software)["discreet"] == dp.__version__
    assert "python" in dict(record.software)
    assert record.began.endswith("+00:00")


def test_marks_are_kept_and_an_unsafe_key_is_one(ledger: dp.Ledger, run: Run) -> None:
    run.mark("unsafe_raw_metric")
    run.mark("unsafe_raw_metric")
    assert ledger.marks() == ("unsafe_raw_metric",)
    info = {name: getattr(INFO, name) for name in dp.ledger.RunInfo.__dataclass_fields__}
    ledger.begin(dp.ledger.RunInfo(**(info | {"randomness": dp.units.Randomness.UNSAFE_TEST_KEY})))
    assert ledger.marks() == ("unsafe_raw_metric", "unsafe_test_key")


def test_two_handles_see_each_other(tmp_path: Path) -> None:
    path = tmp_path / "a.ledger"
    ledgers = roomy_ledger(path), dp.Ledger.open(path)
    first, second = (ledger.begin(INFO) for ledger in ledgers)
    first.reserve(STEP, count=3)
    second.reserve(STEP, count=4)
    first.reserve(STEP, count=5)
    assert [total(ledger) for ledger in ledgers] == [12, 12]
    heads = {ledger.head() for ledger in (*ledgers, dp.Ledger.open(path, "r").verify())}
    assert len(heads) == 1


# --- the file ---


def test_power_loss_settings_are_in_force(tmp_path: Path) -> None:
    ledger = dp.Ledger.open(tmp_path / "a.ledger")
    connection = ledger._journal.store._connection
    assert connection.execute("PRAGMA synchronous").fetchone() == (3,)  # EXTRA
    assert connection.execute("PRAGMA journal_mode").fetchone() == (b"delete",)


def test_sql_cannot_edit_or_delete_rows(tmp_path: Path) -> None:
    varied_ledger(tmp_path / "a.ledger").close()
    connection = sqlite3.connect(tmp_path / "a.ledger")
    for command in (
        "DELETE FROM rows WHERE number = 3",
        "UPDATE rows SET body = x'00' WHERE number = 3",
    ):
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            connection.execute(command)
    connection.close()


def test_a_path_without_a_ledger_is_said(tmp_path: Path) -> None:
    for mode in ("r", "r+"):
        with pytest.raises(dp.errors.LedgerNotFound):
            dp.Ledger.open(tmp_path / "none.ledger", mode)
    with pytest.raises(dp.errors.LedgerUnavailable):
        dp.Ledger.open(tmp_path / "no" / "folder.ledger")
    with pytest.raises(dp.errors.ParameterError, match=r"'a', 'r\+' or 'r'"):
        dp.Ledger.open(tmp_path / "x", "w")  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"not a ledger", b"SQLite format 3\x00" + b"\x00" * 200])
def test_a_file_that_is_no_ledger_is_never_taken_over(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.ledger"
    path.write_bytes(content)
    with pytest.raises(dp.errors.LedgerCorrupt):
        dp.Ledger.open(path)
    assert path.read_bytes() == content


def test_another_programs_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE rows (number, body, digest)")
    connection.commit()
    connection.close()
    with pytest.raises(dp.errors.LedgerCorrupt, match="a file that discreet wrote"):
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
    monkeypatch.setattr("discreet.ledger.storage.store._WAIT_SECONDS", 0.05)
    ledger = roomy_ledger(tmp_path / "a.ledger")
    run = ledger.begin(INFO)
    blocker = sqlite3.connect(tmp_path / "a.ledger", isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    with pytest.raises(dp.errors.LedgerUnavailable, match="locked"):
        run.reserve(STEP, count=1)
    blocker.execute("ROLLBACK")
    blocker.close()
    assert ledger.charges() == ()
    run.reserve(STEP, count=1)
    assert total(ledger.verify()) == 1


def test_a_full_disk_is_unavailable_and_nothing_is_charged(tmp_path: Path) -> None:
    ledger = dp.Ledger.open(
        tmp_path / "a.ledger", budget=dp.Odometer(delta=1e-5)
    )  # on which every step is welcome
    run = ledger.begin(INFO)
    pages = ledger._journal.store._connection.execute("PRAGMA page_count").fetchone()[0]
    ledger._journal.store._connection.execute(f"PRAGMA max_page_count = {pages}")
    taken = 0
    with pytest.raises(dp.errors.LedgerUnavailable, match="full"):
        while True:
            run.reserve(
                dp.ledger.Step(dp.Poisson(0.1), dp.ledger.GaussianSum("grad", 1, 1 + taken)),
                count=1,
            )
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
LIST = Terms(rule=Rule.LIST, planned=((STEP, 2),))
HELD = Held(LIST, "", "now")
PLANNED = Began(INFO, (), "now", ((STEP, 2),))
FILTER = Terms(rule=Rule.GAUSSIAN_FILTER, epsilon=2.0, delta=1e-6)
UNSETTLED = Held(Terms(rule=Rule.FILTER, epsilon=2.0, delta=1e-6), "", "now")
ODOMETER = Terms(
    rule=Rule.ODOMETER,
    epsilon=5.0,
    delta=1e-6,
    planned=((STEP, 2),),
    levels=((1, 0.5),),
    orders=((9.0, 0.25), (20.0, 0.25)),
)
ELSEWHERE = dp.ledger.Step(dp.Everything(), dp.ledger.GaussianSum("x", 1, 1))


def after(terms: Terms, reason: str, **changes: Any) -> Held:
    return Held(replace(terms, **changes), reason, "now")


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([BEGAN], "opens the ledger first"),
        ([OPENED, OPENED], "only there"),
        ([OPENED, Reserved(1, STEP, 1)], "a run that began"),
        ([OPENED, HELD, BEGAN, Reserved(2, 2, 1)], "spells out a step"),
        ([OPENED, HELD, BEGAN, Reserved(2, ELSEWHERE, 1)], "groups that run 2 declared"),
        ([OPENED, HELD, BEGAN, Settled(2, 0)], "not settled yet"),
        ([OPENED, HELD, BEGAN, Reserved(2, STEP, 2), Settled(3, 3)], "at most the 2 steps"),
        (
            [OPENED, HELD, BEGAN, Reserved(2, STEP, 2), Settled(3, 1), Settled(3, 0)],
            "not settled yet",
        ),
        ([OPENED, BEGAN, Reserved(1, STEP, 1)], "terms that were complete before the first charge"),
        (
            [OPENED, UNSETTLED, BEGAN, Reserved(2, STEP, 1)],
            "terms that were complete before the first charge",
        ),
        ([OPENED, HELD, BEGAN, Reserved(2, STEP, 3)], "the list that was fixed"),
        ([OPENED, HELD, BEGAN, Reserved(2, OTHER_STEP, 1)], "the list that was fixed"),
        ([OPENED, HELD, PLANNED, BEGAN, Reserved(3, STEP, 1)], "the list that was fixed"),
        ([OPENED, HELD, PLANNED, PLANNED], "the list that was fixed"),
        ([OPENED, HELD, Began(INFO, (), "now", ((STEP, 3),))], "the list that was fixed"),
        ([OPENED, HELD, Began(INFO, (), "now", (), 7)], "a run that began"),
        (
            [OPENED, HELD, BEGAN, Began(INFO, (), "now", (), 2), Began(INFO, (), "now", (), 2)],
            "nobody continued yet",
        ),
        (
            [OPENED, HELD, BEGAN, Began(INFO, (), "now", (), 2), Reserved(2, STEP, 1)],
            "a run that is not over",
        ),
        ([OPENED, HELD, BEGAN, Ended(2, ""), Reserved(2, STEP, 1)], "a run that is not over"),
        ([OPENED, HELD, BEGAN, Ended(2, ""), Ended(2, "")], "a run that is not over"),
        ([OPENED, HELD, BEGAN, Ended(2, "fire"), Ended(2, "flood")], "a run that is not over"),
        (
            [OPENED, HELD, BEGAN, Began(INFO, (), "now", (), 2), Ended(2, "fire")],
            "a run that is not over",
        ),
        ([OPENED, HELD, Ended(2, "")], "a run that began"),
        ([OPENED, HELD, Marked(2, "unsafe_thing")], "a run that began"),
        ([OPENED, HELD, after(LIST, "fewer", planned=((STEP, 1),))], "a list that only grows"),
        ([OPENED, HELD, after(LIST, "", planned=((STEP, 3),))], "a list that only grows"),
        (
            [OPENED, HELD, after(LIST, "", epsilon=1.0, delta=1e-6)],
            "a reason for a budget that changes",
        ),
        ([OPENED, HELD, after(FILTER, "by looking")], "the rule 'list'"),
        ([OPENED, after(FILTER, ""), HELD], "the rule 'gaussian-filter'"),
        ([OPENED, UNSETTLED, after(ODOMETER, "by looking")], "the rule 'filter'"),
        ([OPENED, UNSETTLED, after(FILTER, "", epsilon=3.0)], "a reason for a budget that changes"),
        ([OPENED, UNSETTLED, after(FILTER, "by looking", delta=1e-5)], "the delta"),
        ([OPENED, after(FILTER, ""), after(FILTER, "by looking", delta=1e-5)], "the delta"),
        (
            [OPENED, after(FILTER, ""), after(FILTER, "by looking", epsilon=3.0)],
            "whose budget is not raised",
        ),
        ([OPENED, after(ODOMETER, ""), after(ODOMETER, "no limit", epsilon=None)], "a number"),
        (
            [OPENED, after(ODOMETER, ""), after(ODOMETER, "x", levels=((1, 0.25),))],
            "the levels and orders",
        ),
        (
            [OPENED, after(ODOMETER, ""), after(ODOMETER, "x", orders=((9.0, 0.5),))],
            "the levels and orders",
        ),
        (
            [OPENED, after(ODOMETER, ""), after(ODOMETER, "x", planned=((STEP, 9),))],
            "a list that only grows",
        ),
    ],
)
def test_a_row_must_make_sense_after_those_before_it(rows: list[Row], reason: str) -> None:
    with pytest.raises(dp.errors.LedgerCorrupt, match=reason) as caught:
        read(*rows)
    assert caught.value.row == len(rows) - 1


@pytest.mark.parametrize(
    "rows",
    [
        [UNSETTLED, after(FILTER, "")],
        [UNSETTLED, after(UNSETTLED.terms, "before the first run", epsilon=9.0)],
        [after(FILTER, ""), after(FILTER, "less is enough", epsilon=1.0)],
        [HELD, after(LIST, "power failure", planned=((STEP, 3), (OTHER_STEP, 1)))],
        [HELD, after(LIST, "the officer asks for one", epsilon=1.0, delta=1e-6)],
        [after(ODOMETER, ""), after(ODOMETER, "more is needed", epsilon=6.0)],
        [HELD, BEGAN, Ended(2, ""), Ended(2, "power failure")],
        [HELD, PLANNED, Ended(2, ""), PLANNED],
        [HELD, PLANNED, Began(INFO, (), "now", ((STEP, 2),), 2)],
    ],
)
def test_what_may_change_is_read(rows: list[Row]) -> None:
    assert read(OPENED, *rows).snapshot().schema == 2


def test_verify_compares_with_a_head_kept_elsewhere() -> None:
    ledger = varied_ledger()
    kept = ledger.head()
    ledger.begin(INFO).mark("unsafe_later")
    assert ledger.verify(expected_head=kept) is ledger
    with pytest.raises(dp.errors.LedgerCorrupt, match="history was rewritten"):
        varied_ledger().verify(expected_head=kept)
