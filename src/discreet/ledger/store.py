"""Rows on disk: one SQLite file, append-only, durable when a write returns, several processes at once.

Why these settings:

*   Rollback journal, not write-ahead log: every committed row is in the one file, so a copy of that file (mailed, backed up,
    moved without its side files) can never be a consistent but older ledger.
*   synchronous=EXTRA: in this journal mode FULL alone may lose the last commit on power loss, because deleting the journal is
    what commits, and only EXTRA forces that deletion to disk [SQLite2024, "PRAGMA synchronous"].
*   A new ledger is built under another name and linked into place, so a path holds a whole ledger or none.
*   Row and head are written in one transaction; rows left out at the end do not go unnoticed.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from discreet.errors import DiscreetError, LedgerCorrupt, LedgerExists, LedgerNotFound, LedgerUnavailable

__all__ = ["Line", "Store"]

_APPLICATION = 0x64697363  # "disc", in the file's header
_WAIT_SECONDS = 60.0
_SCHEMA = """
    CREATE TABLE rows (number INTEGER PRIMARY KEY, body BLOB NOT NULL, digest BLOB NOT NULL);
    CREATE TABLE head (one INTEGER PRIMARY KEY CHECK (one = 1), rows INTEGER NOT NULL, digest BLOB NOT NULL);
    CREATE TRIGGER no_edit BEFORE UPDATE ON rows BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END;
    CREATE TRIGGER no_removal BEFORE DELETE ON rows BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END;
    INSERT INTO head VALUES (1, 0, x'');
"""
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

Line = tuple[bytes, bytes]
"""A row's content and its digest."""


class Store:
    """The rows of one ledger; knows nothing of what they mean."""

    def __init__(self, connection: sqlite3.Connection, name: str) -> None:
        self._connection = connection
        self.name = name

    @classmethod
    def in_memory(cls, lines: Iterable[Line]) -> Store:
        """Rows that live as long as the process."""
        store = cls(_connect(":memory:"), "a ledger in memory")
        with _said_plainly(store.name):
            _fill(store, lines)
        return store

    @classmethod
    def create(cls, path: Path, lines: Iterable[Line]) -> None:
        """Put a whole new file at `path`, or nothing.

        Raises:
            LedgerExists: if something is there already.
        """
        draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}.new")
        try:
            with _said_plainly(str(path)):
                store = cls(_connect(f"{draft.absolute().as_uri()}?mode=rwc"), str(path))
                _fill(store, lines)
                store.close()
            os.link(draft, path)
            _sync_folder(path.parent)
        except FileExistsError:
            raise LedgerExists(
                expected="a path where nothing is yet", got=str(path), do="Choose another path; no ledger is ever overwritten."
            ) from None
        except OSError as refused:
            raise LedgerUnavailable(
                expected=f"to create {path}", got=str(refused), do="Check the folder and its permissions."
            ) from refused
        finally:
            draft.unlink(missing_ok=True)

    @classmethod
    def open(cls, path: Path, *, read_only: bool) -> Store:
        """The file at `path`, which must exist."""
        if not path.is_file():
            raise LedgerNotFound(expected=f"a ledger at {path}", got="no file there", do="Check the path.")
        if path.stat().st_size == 0:
            raise LedgerCorrupt(
                expected=f"a ledger at {path}",
                got="an empty file",
                do="Restore the ledger from a copy; a new one is never empty.",
            )
        writable = os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)
        # Where possible even a reader opens for writing: a journal that a killed writer left behind must be rolled back.
        mode = "rw" if writable or not read_only else "ro"
        with _said_plainly(str(path)):
            store = cls(_connect(f"{path.absolute().as_uri()}?mode={mode}"), str(path))
            if store._one("PRAGMA application_id") != (_APPLICATION,):
                raise LedgerCorrupt(expected="a file that discreet wrote", got=str(path), do="Check the path.")
            if read_only:
                store._connection.execute("PRAGMA query_only = ON")
        return store

    @contextmanager
    def reading(self) -> Iterator[None]:
        """What is read inside is of one moment, whatever other processes append."""
        with self._transaction("BEGIN"):
            yield

    @contextmanager
    def appending(self) -> Iterator[None]:
        """What is appended inside is durable when the block is left, or not there at all if it raises."""
        with self._transaction("BEGIN IMMEDIATE"):
            yield

    def lines(self, start: int) -> Iterator[Line]:
        """Rows from number `start` on."""
        expected = start
        for number, body, digest in self._connection.execute(
            "SELECT number, body, digest FROM rows WHERE number >= ? ORDER BY number", (start,)
        ):
            if number != expected or not isinstance(body, bytes) or not isinstance(digest, bytes):
                raise LedgerCorrupt(
                    expected=f"row {expected}, with content and digest",
                    got=f"row {number!r}; a row is missing or damaged",
                    do="Restore the ledger from a copy; do not spend on this one.",
                    row=expected,
                )
            yield body, digest
            expected += 1

    def head(self) -> tuple[int, bytes]:
        """Number of rows and digest of the last, as written together with it."""
        row = self._one("SELECT rows, digest FROM head WHERE one = 1")
        match row:
            case (int(rows), bytes(digest)):
                return rows, digest
        raise LedgerCorrupt(expected="a head", got=repr(row), do="Restore the ledger from a copy; do not spend on this one.")

    def append(self, number: int, body: bytes, digest: bytes) -> None:
        """One more row; only inside `appending`."""
        self._connection.execute("INSERT INTO rows VALUES (?, ?, ?)", (number, body, digest))
        self._connection.execute("UPDATE head SET rows = ?, digest = ? WHERE one = 1", (number + 1, digest))

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def _one(self, question: str) -> object:
        return self._connection.execute(question).fetchone()

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[None]:
        with _said_plainly(self.name):
            self._connection.execute(begin)
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise


def _connect(uri: str) -> sqlite3.Connection:
    connection = sqlite3.connect(uri, timeout=_WAIT_SECONDS, isolation_level=None, check_same_thread=False, uri=True)
    connection.text_factory = bytes  # a damaged column type must not become a decoding error
    for setting in ("trusted_schema = OFF", "cell_size_check = ON", "synchronous = EXTRA"):
        connection.execute(f"PRAGMA {setting}")
    return connection


def _fill(store: Store, lines: Iterable[Line]) -> None:
    connection = store._connection  # noqa: SLF001  (a second constructor)
    connection.execute(f"PRAGMA application_id = {_APPLICATION}")
    connection.executescript(_SCHEMA)
    with store.appending():
        for number, (body, digest) in enumerate(lines):
            store.append(number, body, digest)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def _said_plainly(name: str) -> Iterator[None]:
    """Turn SQLite's errors into ours."""
    try:
        yield
    except DiscreetError:
        raise
    except (sqlite3.Error, UnicodeDecodeError) as error:  # the latter: a message that quotes damaged bytes
        code = getattr(error, "sqlite_errorcode", None)  # absent on errors of Python's own making
        if code is not None and code & 0xFF in _PASSING:
            raise LedgerUnavailable(
                expected=f"to read or write {name}", got=str(error), do="Nothing was written. Mend the cause and try again."
            ) from error
        raise LedgerCorrupt(
            expected=f"{name} to be a ledger", got=str(error), do="Restore the ledger from a copy; do not spend on this one."
        ) from error
