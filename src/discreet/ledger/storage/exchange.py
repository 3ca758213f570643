"""JSON Lines, the exchange format: one row a line with its digest, and a seal as the last line.

    {"digest":"<64 hex digits>","row":{...}}
    ...
    {"head":"<64 hex digits>","rows":N}

A file without its seal was cut off and is refused.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from discreet._files import publish
from discreet.errors import LedgerCorrupt, LedgerNotFound
from discreet.ledger.storage.book import Book
from discreet.ledger.storage.store import StoredLine

__all__ = ["read_export", "write"]

_AGAIN = "Export the ledger again, or restore this file from a copy."
# A line is cut at fixed places and not parsed: the row keeps the bytes that were digested.
_BEFORE, _BETWEEN, _AFTER = b'{"digest":"', b'","row":', b"}"
_DIGITS = 64


def write(path: Path, lines: Iterable[StoredLine]) -> None:
    """A whole file at `path`, or nothing."""

    def write_draft(draft: Path) -> None:
        with draft.open("xb") as file:
            rows, head = 0, b""

            for body, digest in lines:
                file.write(_BEFORE + digest.hex().encode() + _BETWEEN + body + _AFTER + b"\n")
                rows, head = rows + 1, digest

            # Last, and on disk before the file gets its name: a file without a seal was cut off.
            file.write(_seal(rows, head))
            file.flush()
            os.fsync(file.fileno())

    publish(path, write_draft)


def read_export(path: Path) -> list[StoredLine]:
    """The rows of an export, all checked.

    Raises:
        LedgerCorrupt: with the number of the first wrong row.
    """
    try:
        content = path.read_bytes()
    except OSError as refused:
        raise LedgerNotFound(
            expected=f"an export at {path}", got=str(refused), do="Check the path."
        ) from refused

    # The usual mistake: a ledger where its export was meant.
    if content.startswith(b"SQLite format 3"):
        raise LedgerCorrupt(
            expected="an export in JSON Lines", got="a ledger", do="Open it with Ledger.open."
        )

    # A whole file ends in a line break, so nothing follows the last one.
    *texts, seal = content.split(b"\n")[:-1] or [b""]
    if not content.endswith(b"\n") or not texts:
        raise LedgerCorrupt(
            expected="rows and a seal, each on a line of its own", got="a file cut off", do=_AGAIN
        )

    # The same checks as for a ledger on disk: chain, rows, and what they say together.
    book = Book()
    lines = []

    for text in texts:
        line = _split(text, book.rows)
        book.read(*line)
        lines.append(line)

    if seal + b"\n" != _seal(book.rows, book.digest):
        raise LedgerCorrupt(
            expected=f"the seal {_seal(book.rows, book.digest)!r}",
            got=f"{seal[:100]!r}; rows are missing at the end, or the seal was edited",
            do=_AGAIN,
            row=book.rows,
        )

    return lines


def _seal(rows: int, head: bytes) -> bytes:
    return b'{"head":"%s","rows":%d}\n' % (head.hex().encode(), rows)


def _split(text: bytes, number: int) -> StoredLine:
    digits = text[len(_BEFORE) : len(_BEFORE) + _DIGITS]
    body = text[len(_BEFORE) + _DIGITS + len(_BETWEEN) : -len(_AFTER)]

    try:
        digest = bytes.fromhex(digits.decode("ascii"))
    except ValueError:
        digest = b""

    # Written anew it must give the same bytes: a second spelling would hide an edit.
    if text != _BEFORE + digest.hex().encode() + _BETWEEN + body + _AFTER:
        raise LedgerCorrupt(
            expected="a line with a digest and a row", got=f"{text[:100]!r}", do=_AGAIN, row=number
        )

    return body, digest
