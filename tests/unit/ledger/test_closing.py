"""The end of leases, runs and handles: what they still write, and that the file is let go whatever
happens.
"""

import json
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

import discreet as dp
from discreet.ledger.storage.store import Store
from support.victims import FIRST, INFO


def test_a_run_that_another_process_took_the_place_of_is_over_and_closing_says_nothing(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.ledger"
    with dp.Ledger.open(path) as first, dp.Ledger.open(path) as second:
        slow = first.begin(INFO, [(FIRST, 4)])
        lease = slow.reserve(FIRST, count=2)
        second.begin(INFO, [(FIRST, 2)], continues=slow.number)
        lease.take()
        slow.end()
        with pytest.raises(dp.errors.LedgerMisuse, match="not to a run that was continued"):
            slow.end("power failure")
    with dp.Ledger.open(path, "r") as ledger:
        replaced, _ = ledger.verify().runs()
        assert (replaced.over, replaced.reason, replaced.steps) == (True, "", 1)


def test_a_handle_that_can_write_no_more_lets_go_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.ledger"
    ledger = dp.Ledger.open(path)
    lease = ledger.begin(INFO, [(FIRST, 4)]).reserve(FIRST, count=2)
    path.unlink()
    with pytest.raises(dp.errors.LedgerUnavailable, match="moved, removed or replaced"):
        ledger.close()
    assert lease.left == 0
    with pytest.raises(dp.errors.LedgerMisuse, match="closed"):
        ledger.snapshot()


def rows_by_transaction(ledger: dp.Ledger, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The kinds of row that each further transaction stores, filled as they come."""
    transactions: list[list[str]] = []
    appending, append = Store.appending, Store.append

    def counted(self: Store) -> AbstractContextManager[None]:
        transactions.append([])
        return appending(self)

    def noted(self: Store, number: int, body: bytes, digest: bytes) -> None:
        transactions[-1].append(json.loads(body)["kind"])
        append(self, number, body, digest)

    monkeypatch.setattr(Store, "appending", counted)
    monkeypatch.setattr(Store, "append", noted)
    return transactions


def test_a_block_is_settled_in_the_transaction_that_reserves_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ledger = dp.Ledger.in_memory()
    run = ledger.begin(INFO, [(FIRST, 5)])
    transactions = rows_by_transaction(ledger, monkeypatch)
    for _ in run.steps(FIRST, 5, block=2):
        assert ledger.snapshot().unsettled <= 2
    assert transactions == [
        ["reserved"],
        ["settled", "reserved"],
        ["settled", "reserved"],
        ["settled"],
    ]
    assert (ledger.snapshot().steps, ledger.snapshot().unsettled) == (5, 0)


def test_a_block_is_settled_if_the_next_is_refused() -> None:
    ledger = dp.Ledger.in_memory()
    run = ledger.begin(INFO, [(FIRST, 3)])
    with pytest.raises(dp.errors.BudgetExceeded):
        list(run.steps(FIRST, 9, block=2))
    assert (ledger.snapshot().steps, ledger.snapshot().unsettled) == (3, 0)


def test_a_block_that_was_settled_meanwhile_is_not_settled_again() -> None:
    ledger = dp.Ledger.in_memory()
    run = ledger.begin(INFO, [(FIRST, 4)])
    for number in run.steps(FIRST, 4, block=2):
        if number == 1:
            for lease in list(ledger._leases):  # as another thread might
                lease.settle()
    assert (ledger.verify().snapshot().steps, ledger.snapshot().unsettled) == (4, 0)
