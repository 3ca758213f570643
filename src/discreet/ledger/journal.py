"""The rows of one ledger as one handle sees them: what is committed, by whomever, and what may
follow it.

    decide(snapshot) -> rows -> encoded -> checked as a reader would -> stored, all in one
    transaction

A handle belongs to the process that opened it, and does one thing after the other.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from discreet import _process
from discreet.errors import LedgerCorrupt, LedgerMisuse
from discreet.ledger._provenance import now
from discreet.ledger.decisions import check_writable
from discreet.ledger.snapshot import Snapshot
from discreet.ledger.storage.book import Book, another_history, follow
from discreet.ledger.storage.codec import encode
from discreet.ledger.storage.rows import Opened, Row
from discreet.ledger.storage.store import Store, StoredLine

__all__ = ["Decision", "Journal", "first_line"]

Decision: TypeAlias = Callable[[Snapshot], Sequence[Row]]
"""Which rows follow from what a ledger holds; or an error, and then nothing is written."""


def first_line() -> list[StoredLine]:
    """The one row of a new ledger: its random identity."""
    body = encode(Opened(secrets.token_hex(16), now()))
    return [(body, follow(Book().digest, body))]


class Journal:
    """Reads and appends rows, in transactions.

    Args:
        store: where the rows are.
        read_only: whether nothing may be appended.
    """

    def __init__(self, store: Store, *, read_only: bool) -> None:
        self.store = store
        self._read_only = read_only
        self._book = Book()

        # Rows and head that this handle saw committed: no later state may lack them.
        self._known = (0, b"")
        self._owner = _process.current()
        self._closed = False
        self._lock = threading.RLock()

        # A file that is not sound is refused here, and not when a run wants to charge.
        with self.reading():
            pass

        # Else a child would take the journal of a transaction for its own.
        _process.hold_over_forks(self._lock)

    @property
    def own(self) -> bool:
        """Whether this process opened it: a fork did not."""
        return self._owner is _process.current()

    @property
    def closed(self) -> bool:
        """Whether this handle has let go of the file."""
        return self._closed

    @contextmanager
    def alive(self) -> Iterator[None]:
        """Hold the handle's lock, if the handle may be used at all."""
        if not self.own:
            raise LedgerMisuse(
                expected="a handle opened by this process",
                got="one that came over a fork",
                do="Open the ledger again in the child.",
            )

        with self._lock:
            if self._closed:
                raise LedgerMisuse(
                    expected="an open ledger", got=f"{self.store.name}, closed", do="Open it again."
                )

            # A call from the rules, a signal handler or a finaliser of the same thread.
            if self.store.in_transaction:
                raise LedgerMisuse(
                    expected="one call after the other",
                    got="a call from inside another",
                    do="Call again when that one is done.",
                )

            yield

    @contextmanager
    def reading(self) -> Iterator[Book]:
        """All that is committed now, by whomever."""
        with self.alive(), self.store.reading():
            self._catch_up()
            yield self._book

    def append(self, decide: Decision) -> list[int]:
        """Append what is decided about the present state, all or nothing, after whatever other
        processes appended.

        Returns the numbers of the rows.
        """
        if self._read_only:
            raise LedgerMisuse(
                expected="a ledger opened to append",
                got=f"{self.store.name}, opened to read",
                do="Open it with mode='a'.",
            )

        with self.alive():
            try:
                with self.store.appending():
                    self._catch_up()
                    snapshot = self._book.snapshot()
                    check_writable(snapshot)

                    # No other process writes between the decision and its rows.
                    rows = [row for row in decide(snapshot) if not self._book.has(row)]
                    numbers = [self._write(row) for row in rows]
            except BaseException:
                # It may be ahead of the file now: it is read anew when next needed.
                self._book = Book()
                raise

            if numbers:
                self._known = (self._book.rows, self._book.digest)

        return numbers

    def _write(self, row: Row) -> int:
        number = self._book.rows
        body = encode(row)
        digest = follow(self._book.digest, body)

        # The check of every reader, before the row is written: no handle can spoil a ledger.
        try:
            self._book.read(body, digest)
        except LedgerCorrupt as refused:
            raise LedgerMisuse(
                expected=refused.expected,
                got=refused.got,
                do="The ledger is whole, and nothing was written.",
            ) from None

        self.store.append(number, body, digest)
        return number

    def verify(self, expected_head: str | None) -> None:
        """Read all rows again from disk; the heads that this handle and the caller know must be in
        the chain.
        """
        book = Book()
        digests = set()

        with self.alive(), self._anew() as store, store.reading():
            for body, digest in store.lines(0):
                book.read(body, digest)
                digests.add(digest)

            book.check_head(*store.head())

            # A shorter or another chain may be whole in itself, and is not this ledger.
            if self._known[1] not in digests:
                raise another_history(self._known[1].hex(), book)

        if expected_head is not None and expected_head not in {digest.hex() for digest in digests}:
            raise another_history(expected_head, book)

    def remove(self) -> None:
        """Remove the file, if nobody added a row to what this handle knows."""
        with self.alive():
            self.store.remove(rows=self._known[0])

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            self._closed = True
            self.store.close()

    def _catch_up(self) -> None:
        """Read what other processes appended; only inside a transaction."""
        rows, head = self._known

        # Where the chain passes the length that was known, it must have the digest that was known.
        for body, digest in self.store.lines(self._book.rows):
            self._book.read(body, digest)
            if self._book.rows == rows and digest != head:
                raise another_history(head.hex(), self._book)

        self._book.check_head(*self.store.head())
        if self._book.rows < rows:
            raise another_history(head.hex(), self._book)

        self._known = (self._book.rows, self._book.digest)

    @contextmanager
    def _anew(self) -> Iterator[Store]:
        """The rows as they are on disk, not as this handle remembers them."""
        # A ledger in memory has nothing behind it that could differ.
        if self.store.path is None:
            yield self.store
            return

        store = Store.open(self.store.path, read_only=True)

        try:
            yield store
        finally:
            store.close()
