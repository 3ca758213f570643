"""Rows on disk: one SQLite file, append-only, durable when a write returns, several processes at
once.

Why these settings:

*   Rollback journal, not write-ahead log: every committed row is in the one file, so a copy of that
    file (mailed, backed up, moved without its side files) can never be a consistent but older
    ledger. A file switched to another mode is switched back.
*   synchronous=EXTRA: in this journal mode FULL alone may lose the last commit on power loss,
    because deleting the journal is what commits, and only EXTRA forces that deletion to disk
    [SQLite2024, "PRAGMA synchronous"].
*   Writers also hold a lock on the folder. SQLite's own lock is lost when any other descriptor of
    the file is closed in the same process [SQLite2024b, section 6], as by a thread that copies the
    ledger away.
*   Row and head are written in one transaction; rows left out at the end do not go unnoticed.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from discreet._files import publish
from discreet.errors import LedgerCorrupt, LedgerExists, LedgerNotFound, LedgerUnavailable

if os.name == "posix":
    import fcntl

__all__ = ["Store", "StoredLine"]

# "disc", in the file's header.
_APPLICATION = 0x64697363
_WAIT_SECONDS = 60.0

# Short against a commit, so that one busy writer does not keep the others out.
_PAUSE_SECONDS = 0.0005
_RESTORE = "Restore the ledger from a copy; do not spend on this one."

# Compared with every file that is opened, letter by letter: a table or trigger that was dropped or
# added is noticed.
_SCHEMA = (
    "CREATE TABLE rows (number INTEGER PRIMARY KEY, body BLOB NOT NULL, digest BLOB NOT NULL)",
    (
        "CREATE TABLE head (one INTEGER PRIMARY KEY CHECK (one = 1), rows INTEGER NOT NULL, "
        "digest BLOB NOT NULL)"
    ),
    (
        "CREATE TRIGGER no_edit BEFORE UPDATE ON rows BEGIN SELECT RAISE(ABORT, 'a ledger is "
        "append-only'); END"
    ),
    (
        "CREATE TRIGGER no_removal BEFORE DELETE ON rows BEGIN SELECT RAISE(ABORT, 'a ledger is "
        "append-only'); END"
    ),
)
# Errors that say "not now" about a sound file; every other one says that the file is not sound.
_PASSING = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_INTERRUPT,
    sqlite3.SQLITE_AUTH,
}

StoredLine = tuple[bytes, bytes]
"""A row's content and its digest."""


class Store:
    """The rows of one ledger; knows nothing of what they mean."""

    def __init__(self, connection: sqlite3.Connection, path: Path | None) -> None:
        self._connection = connection
        self.path = path
        self.name = "a ledger in memory" if path is None else str(path)

    @classmethod
    def in_memory(cls, lines: Iterable[StoredLine]) -> Store:
        """Rows that live as long as the process."""
        store = cls(_connect(":memory:"), None)
        store._fill(lines)
        return store

    @classmethod
    def create(cls, path: Path, lines: Iterable[StoredLine]) -> None:
        """Put a whole new file at `path`, or nothing.

        Raises:
            LedgerExists: if something is there already, be it the journal of a ledger that was
                deleted.
        """
        # SQLite would roll a stranger's journal back into the new file.
        journal = path.with_name(path.name + "-journal")
        if os.path.lexists(journal):
            raise LedgerExists(
                expected=f"nothing beside the new ledger {path}",
                got=f"{journal}, which is part of another ledger",
                do="Find that ledger; remove its journal only if it is gone for good.",
            )

        def write(draft: Path) -> None:
            store = cls(_connect(_uri(draft, "rwc")), path)

            try:
                store._fill(lines)
            finally:
                store.close()

        publish(path, write)

    @classmethod
    def open(cls, path: Path, *, read_only: bool) -> Store:
        """The file at `path`, which must exist."""
        try:
            size = path.stat().st_size
        except OSError as missing:
            raise LedgerNotFound(
                expected=f"a ledger at {path}", got=str(missing), do="Check the path."
            ) from missing

        # SQLite takes an empty file for a new database; of a ledger it is one that was cut off.
        if not size:
            raise LedgerCorrupt(expected=f"a ledger at {path}", got="an empty file", do=_RESTORE)

        # Where possible even a reader opens for writing: a journal that a killed writer left behind
        # must be rolled back.
        writable = os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)
        store = cls(_connect(_uri(path, "rw" if writable or not read_only else "ro")), path)

        try:
            store._check_form()
            if read_only:
                store._sql("PRAGMA query_only = ON")
        except BaseException:
            store.close()
            raise

        return store

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction of this store is under way."""
        return self._connection.in_transaction

    @contextmanager
    def reading(self) -> Iterator[None]:
        """What is read inside is of one moment, whatever other processes append."""
        with self._transaction("BEGIN"):
            yield

    @contextmanager
    def appending(self) -> Iterator[None]:
        """What is appended inside is durable when the block is left, or not there at all if it
        raises.
        """
        with _only_writer(self.path), self._transaction("BEGIN IMMEDIATE"):
            yield

    def lines(self, start: int) -> list[StoredLine]:
        """Rows from number `start` on."""
        # From the beginning on, also a row with a number below 0 is seen.
        least = start or -(2**63)
        stored = self._sql(
            "SELECT number, body, digest FROM rows WHERE number >= ? ORDER BY number", (least,)
        )
        lines: list[StoredLine] = []

        # SQLite stores any type in any column, hence the checks.
        for expected, (number, body, digest) in enumerate(stored, start):
            if number != expected or not isinstance(body, bytes) or not isinstance(digest, bytes):
                raise LedgerCorrupt(
                    expected=f"row {expected}, with content and digest",
                    got=f"row {number!r}; a row is missing, added or damaged",
                    do=_RESTORE,
                    row=expected,
                )

            lines.append((body, digest))

        return lines

    def head(self) -> tuple[int, bytes]:
        """Number of rows and digest of the last, as written together with it."""
        match self._sql("SELECT rows, digest FROM head"):
            case [(int(rows), bytes(digest))]:
                return rows, digest
            case rows_found:
                raise LedgerCorrupt(expected="one head", got=repr(rows_found)[:100], do=_RESTORE)

    def append(self, number: int, body: bytes, digest: bytes) -> None:
        """One more row; only inside `appending`."""
        # Both or neither: the head tells a reader that no row is missing at the end.
        self._sql("INSERT INTO rows VALUES (?, ?, ?)", (number, body, digest))
        self._sql("REPLACE INTO head VALUES (1, ?, ?)", (number + 1, digest))

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def remove(self, *, rows: int) -> None:
        """Remove the file, if it has so many rows and no more; who has it open cannot write to it
        any longer.
        """
        if self.path is None:
            return

        # Under the lock nobody can add a row between the look and the removal.
        with _only_writer(self.path):
            if self.head()[0] == rows:
                self.path.unlink(missing_ok=True)

    def _fill(self, lines: Iterable[StoredLine]) -> None:
        # One transaction: each would cost a sync of its own.
        with self._transaction("BEGIN IMMEDIATE"):
            for command in (f"PRAGMA application_id = {_APPLICATION}", *_SCHEMA):
                self._sql(command)

            for number, (body, digest) in enumerate(lines):
                self.append(number, body, digest)

    def _check_form(self) -> None:
        """A file that this class wrote: mark, tables and triggers as made, rollback journal."""
        if self._sql("PRAGMA application_id") != [(_APPLICATION,)]:
            raise LedgerCorrupt(
                expected="a file that discreet wrote", got=self.name, do="Check the path."
            )

        form = self._sql("SELECT sql FROM sqlite_schema ORDER BY rowid")
        if form != [(command.encode(),) for command in _SCHEMA]:
            raise LedgerCorrupt(
                expected="the tables and triggers of a ledger", got=repr(form)[:200], do=_RESTORE
            )

        # Asking for the mode also switches back a file that another program switched.
        if self._sql("PRAGMA journal_mode = DELETE") != [(b"delete",)]:
            raise LedgerUnavailable(
                expected=f"{self.name} with a rollback journal",
                got="another journal mode, which cannot be changed now",
                do=(
                    "Close all other programs that use the file, and open it once where it can be "
                    "written."
                ),
            )

    def _sql(self, command: str, values: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
        with _said_plainly(self.name):
            return self._connection.execute(command, values).fetchall()

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[None]:
        try:
            self._sql(begin)
            yield
            self._sql("COMMIT")
        except BaseException:
            # Some errors make SQLite roll back by itself.
            if self._connection.in_transaction:
                self._sql("ROLLBACK")

            raise


def _uri(path: Path, mode: str) -> str:
    return f"{path.absolute().as_uri()}?mode={mode}"


def _connect(uri: str) -> sqlite3.Connection:
    with _said_plainly(uri):
        connection = sqlite3.connect(
            uri, timeout=_WAIT_SECONDS, isolation_level=None, check_same_thread=False, uri=True
        )

        # A damaged column type must not become a decoding error.
        connection.text_factory = bytes

        for setting in ("trusted_schema = OFF", "cell_size_check = ON", "synchronous = EXTRA"):
            connection.execute(f"PRAGMA {setting}")

        return connection


@contextmanager
def _only_writer(path: Path | None) -> Iterator[None]:
    """Hold the lock on the folder of `path`; see the header."""
    if path is None or os.name != "posix":
        yield
        return

    try:
        folder = os.open(path.resolve().parent, os.O_RDONLY)
    except OSError as refused:
        raise LedgerUnavailable(
            expected=f"the folder of {path}", got=str(refused), do="Check the path."
        ) from refused

    # Tried again and again, as a lock that waits could not be given up after a minute.
    try:
        deadline = time.monotonic() + _WAIT_SECONDS

        while not _locked(folder):
            if time.monotonic() > deadline:
                raise LedgerUnavailable(
                    expected=f"to write to {path}",
                    got="another writer for a minute",
                    do="Nothing was written. Try again.",
                )

            time.sleep(_PAUSE_SECONDS)

        yield
    finally:
        # Closing the folder lets go of the lock.
        os.close(folder)


def _locked(folder: int) -> bool:
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False

    return True


@contextmanager
def _said_plainly(name: str) -> Iterator[None]:
    """Turn SQLite's errors into ours."""
    try:
        yield
    except (sqlite3.Error, UnicodeDecodeError) as error:
        # A message that quotes damaged bytes cannot be decoded; an error of Python's own making
        # has no code.
        code = getattr(error, "sqlite_errorcode", None)
        if code == sqlite3.SQLITE_READONLY_DBMOVED:
            raise LedgerUnavailable(
                expected=f"{name} where it was opened",
                got=(
                    "nothing there, or another file: it was moved, removed or replaced while it "
                    "was in use"
                ),
                do=(
                    "Put it back and go on from the last checkpoint. A new ledger in its place "
                    "would not know what was spent."
                ),
            ) from error

        # The low byte is the error; the rest says more about it.
        if code is not None and code & 0xFF in _PASSING:
            raise LedgerUnavailable(
                expected=f"to read or write {name}",
                got=str(error),
                do="The ledger is whole. Mend the cause and try again.",
            ) from error

        raise LedgerCorrupt(
            expected=f"{name} to be a ledger", got=str(error), do=_RESTORE
        ) from error
