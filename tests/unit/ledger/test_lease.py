"""Leases: charged before they are taken, used once, and settled to what was taken."""

import copy
import multiprocessing
import os
import pickle
import threading
from pathlib import Path

import pytest

import discreet as dp
from discreet.ledger import Lease, Run
from support.examples import INFO, OTHER_STEP, STEP, roomy_ledger


@pytest.fixture
def ledger() -> dp.Ledger:
    return roomy_ledger()


@pytest.fixture
def run(ledger: dp.Ledger) -> Run:
    return ledger.begin(INFO)


def total(ledger: dp.Ledger) -> int:
    return sum(charge.count for charge in ledger.charges())


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


def test_a_settlement_that_fails_ends_the_lease_and_is_written_when_tried_again() -> None:
    written: list[int] = []
    failing = [OSError("full disk")]

    def write(taken: int) -> None:
        if failing:
            raise failing.pop()
        written.append(taken)

    lease = Lease(3, write)
    lease.take()
    with pytest.raises(OSError, match="full disk"):
        lease.settle()
    assert lease.left == 0
    lease.settle()
    lease.settle()
    assert written == [1]


def test_what_is_settled_with_something_else_is_settled_once() -> None:
    lease = Lease(3, lambda taken: None)
    lease.take()
    assert lease.settle_with(lambda taken: taken) == 1
    assert lease.settle_with(lambda taken: taken) is None
