"""One handle's view of a ledger: what others commit, what may follow, and its end."""

from pathlib import Path

import pytest

import discreet as dp
from discreet.ledger.journal import Journal, first_line
from discreet.ledger.snapshot import Snapshot
from discreet.ledger.storage.rows import Began, Reserved, Row
from discreet.ledger.storage.store import Store
from support.examples import INFO, STEP, roomy_ledger, varied_ledger
from support.victims import FIRST
from support.victims import INFO as VICTIM


@pytest.fixture
def ledger() -> dp.Ledger:
    return roomy_ledger()


def total(ledger: dp.Ledger) -> int:
    return sum(charge.count for charge in ledger.charges())


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


def test_verify_compares_with_a_head_kept_elsewhere() -> None:
    ledger = varied_ledger()
    kept = ledger.head()
    ledger.begin(INFO).mark("unsafe_later")
    assert ledger.verify(expected_head=kept) is ledger
    with pytest.raises(dp.errors.LedgerCorrupt, match="history was rewritten"):
        varied_ledger().verify(expected_head=kept)


def test_a_handle_that_can_write_no_more_lets_go_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.ledger"
    ledger = dp.Ledger.open(path)
    lease = ledger.begin(VICTIM, [(FIRST, 4)]).reserve(FIRST, count=2)
    path.unlink()
    with pytest.raises(dp.errors.LedgerUnavailable, match="moved, removed or replaced"):
        ledger.close()
    assert lease.left == 0
    with pytest.raises(dp.errors.LedgerMisuse, match="closed"):
        ledger.snapshot()


def test_a_decision_that_raises_writes_nothing_and_leaves_a_handle_that_works() -> None:
    journal = Journal(Store.in_memory(first_line()), read_only=False)

    def refuse(snapshot: Snapshot) -> list[Row]:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        journal.append(refuse)
    with journal.reading() as book:
        assert book.rows == 1
    assert journal.append(lambda snapshot: [Began(INFO, (), "now")]) == [1]


def test_a_row_that_no_reader_would_take_is_not_written() -> None:
    journal = Journal(Store.in_memory(first_line()), read_only=False)
    with pytest.raises(dp.errors.LedgerMisuse, match="nothing was written"):
        journal.append(lambda snapshot: [Reserved(1, STEP, 1)])
    journal.verify(None)
    with journal.reading() as book:
        assert book.rows == 1


def test_two_new_ledgers_are_not_the_same() -> None:
    """Else the rows of one could pass for those of the other."""
    (first,), (second,) = first_line(), first_line()
    assert first != second
