"""The end of a handle: what it still writes, and that it lets go of the file whatever happens."""

from pathlib import Path

import pytest

import discreet as dp
from support.victims import FIRST, INFO


def test_a_run_that_another_process_took_the_place_of_is_over_and_closing_says_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.ledger"
    with dp.Ledger.open(path) as first, dp.Ledger.open(path) as second:
        slow = first.begin(INFO, [(FIRST, 4)])
        lease = slow.reserve(FIRST, count=2)
        second.begin(INFO, [(FIRST, 2)], continues=slow.number)
        lease.take()
        slow.end()
        with pytest.raises(dp.LedgerMisuse, match="not to a run that was continued"):
            slow.end("power failure")
    with dp.Ledger.open(path, "r") as ledger:
        replaced, _ = ledger.verify().runs()
        assert (replaced.over, replaced.reason, replaced.steps) == (True, "", 1)


def test_a_handle_that_can_write_no_more_lets_go_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.ledger"
    ledger = dp.Ledger.open(path)
    lease = ledger.begin(INFO, [(FIRST, 4)]).reserve(FIRST, count=2)
    path.unlink()
    with pytest.raises(dp.LedgerUnavailable, match="moved, removed or replaced"):
        ledger.close()
    assert lease.left == 0
    with pytest.raises(dp.LedgerMisuse, match="closed"):
        ledger.snapshot()
