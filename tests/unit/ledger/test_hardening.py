"""Ways to misuse a ledger that once worked: each was found by attack, and must stay closed."""

import contextlib
import gc
import multiprocessing
import shutil
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import discreet as dp
from discreet.ledger import Rule, Snapshot, Terms, rules
from discreet.ledger.storage import store
from discreet.ledger.terms import Planned
from support.examples import INFO, OTHER_STEP, STEP, counts, list_of, roomy_ledger, varied_ledger


def total(ledger: dp.Ledger) -> int:
    return sum(charge.count for charge in ledger.charges())


def charge_in_another_process(path: Path, count: int) -> None:
    def work() -> None:
        with dp.Ledger.open(path) as ledger, ledger.begin(INFO).reserve(STEP, count=count) as lease:
            for _ in range(count):
                lease.take()

    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    process.join(timeout=10)
    process.kill()


class RulesThat:
    """Rules that call something whenever a ledger with a budget asks them, inside of its
    transaction.
    """

    def __init__(self, called: Callable[[Snapshot], None]) -> None:
        self.called = called

    def completed(self, terms: Terms, planned: Planned, adjacency: dp.Adjacency) -> Terms:
        return replace(terms, rule=Rule.RENYI_FILTER, orders=((10.0, 1.0),))

    def admit(self, snapshot: Snapshot) -> None:
        self.called(snapshot)


BUDGET = dp.Filter(epsilon=2.0, delta=1e-6)


def test_a_copy_made_by_another_thread_does_not_let_a_second_writer_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closing any descriptor of a file drops a process's POSIX locks on it,
    and with them SQLite's.
    """
    path, inside, go = tmp_path / "a.ledger", threading.Event(), threading.Event()

    def slow(_: object) -> None:
        inside.set()
        go.wait()

    ledger = dp.Ledger.open(path, budget=BUDGET)
    run = ledger.begin(INFO)
    monkeypatch.setattr(rules, "_rules", [RulesThat(slow)])
    thread = threading.Thread(target=lambda: run.reserve(STEP, count=1))
    thread.start()
    inside.wait()
    shutil.copyfile(path, tmp_path / "copy")
    script = (
        f"import sys; sys.path[:0] = {sys.path!r}\n"
        "import discreet as dp; from support.examples import INFO, STEP\n"
        f"dp.Ledger.open({str(path)!r}).begin(INFO).reserve(STEP, count=50).take()"
    )
    other = multiprocessing.get_context("spawn").Process(target=exec, args=(script,))
    other.start()
    other.join(timeout=1.5)  # it must still be waiting
    go.set()
    thread.join()
    other.join(timeout=60)
    assert total(ledger.verify()) == 51


def test_a_refused_reservation_leaves_a_handle_that_works(tmp_path: Path) -> None:
    ledger = dp.Ledger.open(tmp_path / "a.ledger", budget=list_of((STEP, 10)))
    run = ledger.begin(INFO)
    for _ in range(2):
        with pytest.raises(dp.errors.BudgetExceeded):
            run.reserve(STEP, count=11)
    run.reserve(STEP, count=10)
    assert total(ledger.verify()) == 10


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # an interrupt inside a finalizer
def test_an_interrupt_at_any_moment_leaves_a_handle_that_works(tmp_path: Path) -> None:
    ledger = roomy_ledger(tmp_path / "a.ledger")
    run = ledger.begin(INFO)
    taken = interrupted = 0

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        for microseconds in (
            *range(50, 8000, 150),
            100_000,
            300_000,
        ):  # the last ones for slow machines
            try:  # around the timer too: an interrupt may arrive as late as that
                signal.setitimer(signal.ITIMER_REAL, microseconds * 1e-6)
                end = (
                    time.monotonic() + 1.0
                )  # Python drops an interrupt that arrives inside a finalizer
                while time.monotonic() < end:
                    with run.reserve(STEP, count=3) as lease:
                        lease.take()
                        taken += 1
                signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                interrupted += 1
    finally:
        signal.signal(signal.SIGALRM, before)
    assert interrupted > 40  # of 55
    assert total(ledger.verify()) >= taken > 0
    charge_in_another_process(tmp_path / "a.ledger", 5)  # nobody is locked out
    run.reserve(STEP, count=1)


def test_threads_that_share_a_handle_read_committed_charges_only(tmp_path: Path) -> None:
    ledger = dp.Ledger.open(tmp_path / "a.ledger", budget=list_of((STEP, 40)))
    run = ledger.begin(INFO)
    run.reserve(STEP, count=40)
    seen, stop = set(), threading.Event()

    def read() -> None:
        while not stop.is_set():
            seen.add(total(ledger))

    thread = threading.Thread(target=read)
    thread.start()
    for _ in range(30):
        with pytest.raises(dp.errors.BudgetExceeded):
            run.reserve(OTHER_STEP, count=1)
    stop.set()
    thread.join()
    assert seen == {40}


def test_a_call_from_inside_another_is_refused_and_no_budget_is_passed_by_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refused: list[Any] = []

    def call_from_inside(snapshot: Snapshot) -> None:
        for call in (
            ledger.charges,
            ledger.verify,
            lambda: run.reserve(STEP, count=1),
            lease.settle,
        ):
            with pytest.raises(dp.errors.LedgerMisuse, match="a call from inside another"):
                call()
            refused.append(call)
        raise dp.errors.BudgetExceeded(expected="10 steps", got=str(snapshot.steps), do="Stop.")

    ledger = dp.Ledger.in_memory(budget=BUDGET)
    run = ledger.begin(INFO)
    lease = run.reserve(STEP, count=10)
    monkeypatch.setattr(rules, "_rules", [RulesThat(call_from_inside)])
    with pytest.raises(dp.errors.BudgetExceeded):
        run.reserve(STEP, count=1)
    assert len(refused) == 4
    assert total(ledger.verify()) == 10
    lease.settle()  # could not be written then, can now
    assert total(ledger) == 0


def test_verify_reads_the_disk_and_not_what_the_handle_remembers(tmp_path: Path) -> None:
    path = tmp_path / "a.ledger"
    ledger = varied_ledger(path)
    whole = path.read_bytes()
    edited = whole.replace(b'"count":10', b'"count":11')
    assert edited != whole
    with path.open("r+b") as file:
        file.write(edited)
    with pytest.raises(dp.errors.LedgerCorrupt):
        ledger.verify()


def test_an_older_copy_put_back_is_noticed_by_an_open_handle(tmp_path: Path) -> None:
    path = tmp_path / "a.ledger"
    ledger = roomy_ledger(path)
    run = ledger.begin(INFO)
    shutil.copyfile(path, tmp_path / "older")
    run.reserve(STEP, count=5)
    (tmp_path / "older").replace(path)
    with pytest.raises(dp.errors.LedgerCorrupt, match="never had it"):
        ledger.verify()


def test_a_file_switched_to_a_write_ahead_log_is_switched_back(tmp_path: Path) -> None:
    path = tmp_path / "a.ledger"
    with varied_ledger(path) as ledger:
        before = ledger.head()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.close()
    with dp.Ledger.open(path) as ledger:
        ledger.begin(INFO).mark("unsafe_later")
        shutil.copyfile(path, tmp_path / "copy.ledger")  # the one file is the whole ledger
        copy = dp.Ledger.open(tmp_path / "copy.ledger", "r")
        assert copy.head() == ledger.head() != before


def test_closing_settles_open_leases_even_after_an_exception_in_a_loop(tmp_path: Path) -> None:
    path = tmp_path / "a.ledger"
    with contextlib.suppress(ZeroDivisionError), roomy_ledger(path) as ledger:
        for number in ledger.begin(INFO).steps(STEP, 1000):
            if number == 4:
                raise ZeroDivisionError
    gc.collect()
    assert counts(dp.Ledger.open(path, "r")) == {("example", STEP): 5}


def test_a_settlement_that_could_not_be_written_can_be_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "_WAIT_SECONDS", 0.05)
    ledger = roomy_ledger(tmp_path / "a.ledger")
    run = ledger.begin(INFO)
    lease = run.reserve(STEP, count=10)
    lease.take()
    blocker = sqlite3.connect(tmp_path / "a.ledger", isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    with pytest.raises(dp.errors.LedgerUnavailable):
        lease.settle()
    assert lease.left == 0
    blocker.execute("ROLLBACK")
    blocker.close()
    lease.settle()
    assert total(ledger) == 1


def test_a_loop_of_steps_belongs_to_the_run_in_which_it_began(tmp_path: Path) -> None:
    ledger = roomy_ledger(tmp_path / "a.ledger")
    steps = ledger.begin(INFO).steps(STEP, 20, block=5)
    next(steps)
    ledger.begin(replace(INFO, label="other"))
    assert len(list(steps)) == 19
    assert counts(ledger) == {("example", STEP): 20}


def test_closing_in_a_fork_neither_hangs_nor_settles(tmp_path: Path) -> None:
    ledger = roomy_ledger(tmp_path / "a.ledger")
    run = ledger.begin(INFO)
    lease = run.reserve(STEP, count=5)
    process = multiprocessing.get_context("fork").Process(target=ledger.close)
    process.start()
    process.join(timeout=20)
    assert process.exitcode == 0
    lease.take()
    assert total(ledger.verify()) == 5


def test_forks_during_writes_leave_everyone_able_to_write(tmp_path: Path) -> None:
    path = tmp_path / "a.ledger"
    ledger = roomy_ledger(path)
    run = ledger.begin(INFO)
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            run.reserve(STEP, count=1)

    thread = threading.Thread(target=write)
    thread.start()
    for _ in range(10):
        charge_in_another_process(path, 1)
    stop.set()
    thread.join()
    assert sum(run.info == INFO for run in ledger.runs()) == 11
    assert ledger.verify().charges()[-1].count == 1


@pytest.mark.parametrize("path", [None, 5, b"bytes", "", "/", "a\0b"])
def test_what_is_no_path_is_refused(path: Any, tmp_path: Path) -> None:
    ledger = varied_ledger()
    for use in (dp.Ledger.open, dp.Ledger.load, ledger.export):
        with pytest.raises(dp.errors.ParameterError, match="the path of a file"):
            use(path)


@pytest.mark.parametrize("name", ["file/below", "x" * 300])
def test_a_path_that_cannot_be_is_said(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    for use in (dp.Ledger.open, dp.Ledger.load, varied_ledger().export):
        with pytest.raises(dp.errors.LedgerError):
            use(tmp_path / name)


@pytest.mark.parametrize("name", ["a?mode=memory", "a%20b#c", "ä ö;&", "line\nbreak"])
def test_odd_names_work(name: str, tmp_path: Path) -> None:
    with varied_ledger(tmp_path / name) as ledger:
        before = counts(ledger)
    assert counts(dp.Ledger.open(tmp_path / name, "r")) == before


def test_a_relative_path_stays_the_same_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    ledger = roomy_ledger(Path("a.ledger"))
    run = ledger.begin(INFO)
    monkeypatch.chdir(tmp_path / "other")
    run.reserve(STEP, count=2)
    assert total(ledger.verify()) == 2


def test_a_subclass_cannot_say_one_thing_and_be_another() -> None:
    class Sneaky(dp.ledger.Step):
        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return hash(STEP)

    class Text(str):
        __slots__ = ()

        def __str__(self) -> str:
            return "something\nelse"

    run = roomy_ledger().begin(INFO)
    run.reserve(STEP, count=1)
    with pytest.raises(dp.errors.ParameterError, match="Sneaky"):
        run.reserve(Sneaky(STEP.sampling, STEP.queries), count=1)
    assert dp.ledger.GaussianSum(Text("grad"), 1, 1) == dp.ledger.GaussianSum("grad", 1, 1)


def test_an_error_of_the_rules_own_is_not_taken_for_the_ledgers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(_: Snapshot) -> None:
        raise sqlite3.OperationalError("of another database")

    run = dp.Ledger.in_memory(budget=BUDGET).begin(INFO)
    monkeypatch.setattr(rules, "_rules", [RulesThat(fail)])
    with pytest.raises(sqlite3.OperationalError, match="of another database"):
        run.reserve(STEP, count=1)


def test_a_journal_of_another_ledger_is_not_taken_over(tmp_path: Path) -> None:
    (tmp_path / "a.ledger-journal").write_bytes(b"of a ledger that was deleted")
    with pytest.raises(dp.errors.LedgerNotFound):
        dp.Ledger.open(tmp_path / "a.ledger")
    assert not (tmp_path / "a.ledger").exists()


@pytest.mark.parametrize(
    "command",
    [
        "CREATE TRIGGER swallow BEFORE INSERT ON rows BEGIN SELECT RAISE(IGNORE); END",
        "CREATE TABLE more (x)",
        "INSERT INTO rows SELECT -1, body, digest FROM rows WHERE number = 0",
    ],
)
def test_what_was_added_to_the_file_is_noticed(command: str, tmp_path: Path) -> None:
    varied_ledger(tmp_path / "a.ledger").close()
    connection = sqlite3.connect(tmp_path / "a.ledger")
    connection.execute(command)
    connection.commit()
    connection.close()
    with pytest.raises(dp.errors.LedgerCorrupt):
        dp.Ledger.open(tmp_path / "a.ledger", "r")


def test_numbers_too_long_to_print_are_refused_all_the_same() -> None:
    with pytest.raises(dp.errors.ParameterError):
        dp.Poisson(10**5000)
    with pytest.raises(dp.errors.ParameterError):
        dp.FixedSize(10**5000, 5)


def test_steps_refuses_at_once_and_not_at_the_first_step() -> None:
    run = dp.Ledger.in_memory().begin(INFO)
    with pytest.raises(dp.errors.ParameterError):
        run.steps(STEP, -1)
