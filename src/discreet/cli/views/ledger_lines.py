"""The rows of a ledger or of its export, for commands that show them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from discreet.cli.files import is_export
from discreet.errors import LedgerCorrupt
from discreet.ledger.storage import exchange
from discreet.ledger.storage.codec import decode
from discreet.ledger.storage.rows import Opened
from discreet.ledger.storage.store import Store, StoredLine

if TYPE_CHECKING:
    from discreet.ledger import Query, Sampling

__all__ = ["event_data", "event_words", "lines_of", "opening"]


def lines_of(path: Path) -> list[StoredLine]:
    """All rows, as of one moment, of a ledger or an export that was opened and checked before."""
    if is_export(path):
        return exchange.read_export(path)

    # Rows are read in one transaction, so that a run that writes meanwhile shows all or nothing.
    store = Store.open(path.absolute(), read_only=True)
    try:
        with store.reading():
            return store.lines(0)
    finally:
        store.close()


def opening(lines: list[StoredLine]) -> Opened:
    """Row 0: which ledger this is."""
    # The ledger was checked before, so that this only tells the type checker, and whoever calls it
    # on rows that nobody checked.
    row = decode(lines[0][0], 0)
    if not isinstance(row, Opened):
        raise LedgerCorrupt(
            expected="the row that opens the ledger",
            got=type(row).__name__,
            do="Restore it from a copy.",
            row=0,
        )

    return row


def event_data(event: Sampling | Query) -> dict[str, Any]:
    """A sampling policy or a query for scripts.

    >>> from discreet.ledger import Poisson
    >>> event_data(Poisson(0.01))
    {'kind': 'Poisson', 'probability': 0.01}
    """
    return {"kind": type(event).__name__} | event.values()


def event_words(event: Sampling | Query) -> str:
    """A sampling policy or a query for people.

    >>> from discreet.ledger import Poisson
    >>> event_words(Poisson(0.01))
    'Poisson(probability 0.01)'
    """
    values = ", ".join(f"{name} {value}" for name, value in event.values().items())
    return f"{type(event).__name__}({values})"
