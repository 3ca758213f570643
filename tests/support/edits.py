"""Edits of a ledger by somebody who does not compute the chain anew: of bytes, of rows, of files
beside it.
"""

from __future__ import annotations

import json
import random
import re
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from discreet.ledger.storage import store

__all__ = [
    "EDITS_OF_BYTES",
    "EDITS_OF_FORM",
    "EDITS_OF_LINES",
    "EDITS_OF_ROWS",
    "JOURNAL",
    "LEFT_BESIDE",
    "Rows",
    "edit_form",
    "read_rows",
    "write_rows",
]

EditOfBytes = Callable[[bytes, random.Random], bytes]

_PAGE = 4096  # bytes, SQLite's default


# --- bytes of any file ---


def flip_a_bit(whole: bytes, chance: random.Random) -> bytes:
    place = chance.randrange(len(whole))
    return whole[:place] + bytes([whole[place] ^ (1 << chance.randrange(8))]) + whole[place + 1 :]


def flip_a_bit_of_the_first_hundred_bytes(whole: bytes, chance: random.Random) -> bytes:
    return flip_a_bit(whole[:100], chance) + whole[100:]


def overwrite_some_bytes(whole: bytes, chance: random.Random) -> bytes:
    place, length = chance.randrange(len(whole)), chance.randint(1, 64)
    return whole[:place] + chance.randbytes(length) + whole[place + length :]


def cut_off(whole: bytes, chance: random.Random) -> bytes:
    return whole[: chance.randrange(len(whole))]


def cut_off_whole_pages(whole: bytes, chance: random.Random) -> bytes:
    return whole[: _PAGE * chance.randrange(max(1, len(whole) // _PAGE))]


def delete_a_piece(whole: bytes, chance: random.Random) -> bytes:
    place = chance.randrange(len(whole))
    return whole[:place] + whole[place + chance.randint(1, 64) :]


def insert_a_piece(whole: bytes, chance: random.Random) -> bytes:
    place = chance.randrange(len(whole) + 1)
    return whole[:place] + chance.randbytes(chance.randint(1, 64)) + whole[place:]


def blank_a_page(whole: bytes, chance: random.Random) -> bytes:
    place = _PAGE * chance.randrange(-(-len(whole) // _PAGE))
    length = len(whole[place : place + _PAGE])
    return whole[:place] + bytes(length) + whole[place + length :]


def swap_two_pages(whole: bytes, chance: random.Random) -> bytes:
    pages = [whole[place : place + _PAGE] for place in range(0, len(whole), _PAGE)]
    left, right = chance.randrange(len(pages)), chance.randrange(len(pages))
    pages[left], pages[right] = pages[right], pages[left]
    return b"".join(pages)


def edit_a_number(whole: bytes, chance: random.Random) -> bytes:
    """Such as a count made smaller, or noise made larger: the edits that would pay."""
    match = chance.choice(list(re.finditer(rb"(?<=:)\d+(\.\d+)?(?=[,}])", whole)))
    other = str(chance.choice([0, 1, 2, 1000, 0.5, 1e9])).encode()
    return whole[: match.start()] + other + whole[match.end() :]


def edit_a_number_in_its_place(whole: bytes, chance: random.Random) -> bytes:
    """As many digits as before, so that nothing else moves."""
    match = chance.choice(list(re.finditer(rb"(?<=:)\d+(?=[,}])", whole)))
    other = str(chance.randrange(10 ** len(match[0]))).rjust(len(match[0]), "1").encode()
    return whole[: match.start()] + other + whole[match.end() :]


EDITS_OF_BYTES: dict[str, EditOfBytes] = {
    "a bit flipped": flip_a_bit,
    "a bit of the first 100 bytes flipped": flip_a_bit_of_the_first_hundred_bytes,
    "up to 64 bytes overwritten": overwrite_some_bytes,
    "cut off": cut_off,
    "cut off after a page": cut_off_whole_pages,
    "a piece deleted": delete_a_piece,
    "a piece inserted": insert_a_piece,
    "a page blanked": blank_a_page,
    "two pages swapped": swap_two_pages,
    "a number edited": edit_a_number,
    "a number edited in its place": edit_a_number_in_its_place,
}


# --- lines of an export ---


def delete_a_line(whole: bytes, chance: random.Random) -> bytes:
    lines = whole.splitlines(keepends=True)
    del lines[chance.randrange(len(lines))]
    return b"".join(lines)


def swap_two_lines(whole: bytes, chance: random.Random) -> bytes:
    lines = whole.splitlines(keepends=True)
    left, right = chance.sample(range(len(lines)), 2)
    lines[left], lines[right] = lines[right], lines[left]
    return b"".join(lines)


def repeat_a_line(whole: bytes, chance: random.Random) -> bytes:
    lines = whole.splitlines(keepends=True)
    lines.insert(chance.randrange(len(lines) + 1), chance.choice(lines))
    return b"".join(lines)


def end_lines_otherwise(whole: bytes, chance: random.Random) -> bytes:
    return whole.replace(b"\n", chance.choice([b"\r\n", b"\n\n", b" \n"]), chance.randint(1, 3))


EDITS_OF_LINES: dict[str, EditOfBytes] = {
    "a line deleted": delete_a_line,
    "two lines swapped": swap_two_lines,
    "a line repeated": repeat_a_line,
    "lines ended otherwise": end_lines_otherwise,
}


# --- rows, through SQL or in an export ---


@dataclass(frozen=True)
class Rows:
    """The rows of a ledger with their numbers, and its head."""

    lines: tuple[tuple[Any, Any, Any], ...]  # number, body, digest
    head: tuple[tuple[Any, Any], ...]  # rows, digest; once, in a ledger that is whole

    def numbered(self, pairs: list[tuple[Any, Any]]) -> Rows:
        """Other rows, numbered from 0 on, under the same head."""
        return replace(self, lines=tuple((number, *pair) for number, pair in enumerate(pairs)))

    @property
    def pairs(self) -> list[tuple[Any, Any]]:
        """Bodies and digests."""
        return [(body, digest) for _, body, digest in self.lines]

    def of_kind(self, *kinds: str) -> list[int]:
        """Numbers of the rows of these kinds."""
        return [number for number, body, _ in self.lines if json.loads(body)["kind"] in kinds]

    def with_body(self, number: int, body: Any) -> Rows:
        """Another content in one row."""
        pairs = self.pairs
        pairs[number] = body, pairs[number][1]
        return self.numbered(pairs)


EditOfRows = Callable[[Rows, random.Random], Rows]


def delete_a_row(rows: Rows, chance: random.Random) -> Rows:
    gone = chance.randrange(len(rows.lines))
    return replace(rows, lines=rows.lines[:gone] + rows.lines[gone + 1 :])


def delete_a_row_and_close_the_gap(rows: Rows, chance: random.Random) -> Rows:
    return _without(rows, chance.randrange(len(rows.lines)), chance)


def delete_terms(rows: Rows, chance: random.Random) -> Rows:
    return _without(rows, chance.choice(rows.of_kind("held") or [0]), chance)


def delete_an_end_or_a_settlement(rows: Rows, chance: random.Random) -> Rows:
    return _without(rows, chance.choice(rows.of_kind("ended", "settled") or [0]), chance)


def delete_the_end(rows: Rows, chance: random.Random) -> Rows:
    """Rows cut off at the end; the head says how many there are, but not with which digest."""
    left = chance.randrange(1, len(rows.lines))
    return _counted(replace(rows, lines=rows.lines[:left]), chance)


def swap_two_rows(rows: Rows, chance: random.Random) -> Rows:
    """Contents, digests, or both."""
    left, right = chance.sample(range(len(rows.lines)), 2)
    pairs = rows.pairs
    (body, digest), (other_body, other_digest) = pairs[left], pairs[right]
    if chance.random() < 0.7:
        body, other_body = other_body, body
    if chance.random() < 0.7:
        digest, other_digest = other_digest, digest
    pairs[left], pairs[right] = (body, digest), (other_body, other_digest)
    return rows.numbered(pairs)


def repeat_a_row(rows: Rows, chance: random.Random) -> Rows:
    pairs = rows.pairs
    pairs.insert(chance.randrange(len(pairs) + 1), chance.choice(pairs))
    return _counted(rows.numbered(pairs), chance)


def insert_a_row(rows: Rows, chance: random.Random) -> Rows:
    """Such as a settlement that was never written."""
    pairs = rows.pairs
    row = {"schema": 2, "kind": "settled", "lease": chance.randrange(len(pairs)), "taken": 0}
    pairs.insert(chance.randrange(len(pairs) + 1), (_json(row), chance.randbytes(32)))
    return _counted(rows.numbered(pairs), chance)


def move_a_row_away(rows: Rows, chance: random.Random) -> Rows:
    """To a number where nobody looks."""
    lines = list(rows.lines)
    chosen = chance.randrange(len(lines))
    number, body, digest = lines[chosen]
    lines[chosen] = chance.choice([-number - 1, number + 1_000, 2**62]), body, digest
    return replace(rows, lines=tuple(lines))


def edit_the_schema(rows: Rows, chance: random.Random) -> Rows:
    """1 for 2 and 2 for 1, in one row or in all."""
    chosen = (
        range(len(rows.lines)) if chance.random() < 0.3 else [chance.randrange(len(rows.lines))]
    )
    for number in chosen:
        row = json.loads(rows.lines[number][1])
        rows = rows.with_body(
            number, _json(row | {"schema": chance.choice([3 - row["schema"], 3, 0, "2", None])})
        )
    return rows


def edit_a_budget(rows: Rows, chance: random.Random) -> Rows:
    """Another epsilon, delta or rule."""
    chosen = rows.of_kind("held")
    if not chosen:
        return rows
    number = chance.choice(chosen)
    row = json.loads(rows.lines[number][1])
    other = {
        "epsilon": chance.choice([9.0, 0.1, None]),
        "delta": chance.choice([1e-3, 1e-9, None]),
        "rule": "odometer",
    }
    name = chance.choice(sorted(other))
    row["terms"][name] = other[name]
    return rows.with_body(number, _json(row))


def edit_a_plan(rows: Rows, chance: random.Random) -> Rows:
    """Other counts in a commitment or in a list."""
    chosen = [
        number
        for number in rows.of_kind("held", "began")
        if _planned(json.loads(rows.lines[number][1]))
    ]
    if not chosen:
        return rows
    number = chance.choice(chosen)
    row = json.loads(rows.lines[number][1])
    pair = chance.choice(_planned(row))
    pair[1] = max(1, pair[1] + chance.choice([-1, 1, 50]))
    return rows.with_body(number, _json(row))


def edit_a_count(rows: Rows, chance: random.Random) -> Rows:
    """Fewer steps reserved, or fewer taken."""
    chosen = rows.of_kind("reserved", "settled")
    if not chosen:
        return rows
    number = chance.choice(chosen)
    row = json.loads(rows.lines[number][1])
    name = "count" if row["kind"] == "reserved" else "taken"
    return rows.with_body(number, _json(row | {name: max(0, row[name] - 1)}))


def spell_a_row_otherwise(rows: Rows, chance: random.Random) -> Rows:
    """The same content with spaces, or in another order."""
    number = chance.randrange(len(rows.lines))
    row = json.loads(rows.lines[number][1])
    return rows.with_body(number, json.dumps(row, sort_keys=chance.random() < 0.5).encode())


def edit_a_byte_of_a_row(rows: Rows, chance: random.Random) -> Rows:
    number = chance.randrange(len(rows.lines))
    return rows.with_body(number, flip_a_bit(rows.lines[number][1], chance))


def edit_a_digest(rows: Rows, chance: random.Random) -> Rows:
    pairs = rows.pairs
    number = chance.randrange(len(pairs))
    others = [
        chance.randbytes(32),
        chance.choice(pairs)[1],
        b"",
        pairs[number][1][:-1],
        pairs[number][1] + b"\0",
    ]
    pairs[number] = pairs[number][0], chance.choice(others)
    return rows.numbered(pairs)


def edit_the_head(rows: Rows, chance: random.Random) -> Rows:
    count, digest = rows.head[0]
    others = [
        (count + chance.choice([-1, 1]), digest),
        (count, chance.randbytes(32)),
        (count, chance.choice(rows.pairs)[1]),
        (chance.randrange(count), chance.choice(rows.pairs)[1]),
        (count, b""),
    ]
    return replace(rows, head=(chance.choice(others),))


def _without(rows: Rows, gone: int, chance: random.Random) -> Rows:
    pairs = rows.pairs
    del pairs[gone]
    return _counted(rows.numbered(pairs), chance)


def _counted(rows: Rows, chance: random.Random) -> Rows:
    """With a head that counts the rows, or not."""
    return (
        rows if chance.random() < 0.5 else replace(rows, head=((len(rows.lines), rows.head[0][1]),))
    )


def _planned(row: dict[str, Any]) -> list[Any]:
    planned: list[Any] = row.get("planned") or row.get("terms", {}).get("planned") or []
    return planned


def _json(row: dict[str, Any]) -> bytes:
    return json.dumps(row, sort_keys=True, separators=(",", ":")).encode()


EDITS_OF_ROWS: dict[str, EditOfRows] = {
    "a row deleted": delete_a_row,
    "a row deleted, the gap closed": delete_a_row_and_close_the_gap,
    "terms deleted": delete_terms,
    "an end or a settlement deleted": delete_an_end_or_a_settlement,
    "rows deleted at the end": delete_the_end,
    "two rows swapped": swap_two_rows,
    "a row repeated": repeat_a_row,
    "a row inserted": insert_a_row,
    "a row moved away": move_a_row_away,
    "another schema": edit_the_schema,
    "another budget": edit_a_budget,
    "another plan": edit_a_plan,
    "another count": edit_a_count,
    "a row spelled otherwise": spell_a_row_otherwise,
    "a bit of a row flipped": edit_a_byte_of_a_row,
    "a digest edited": edit_a_digest,
    "the head edited": edit_the_head,
}


def read_rows(path: Path) -> Rows:
    """What a file holds, whether it makes sense or not."""
    with _connected(path) as connection:
        lines = connection.execute(
            "SELECT number, body, digest FROM rows ORDER BY number"
        ).fetchall()
        return Rows(
            tuple(lines), tuple(connection.execute("SELECT rows, digest FROM head").fetchall())
        )


def write_rows(path: Path, rows: Rows) -> None:
    """Put other rows into a file, past its triggers, which are there again afterwards."""
    with _connected(path) as connection:
        connection.executescript(
            "DROP TRIGGER no_edit; DROP TRIGGER no_removal; DELETE FROM rows; DELETE FROM head;"
        )
        connection.executemany("INSERT INTO rows VALUES (?, ?, ?)", rows.lines)
        connection.executemany("INSERT INTO head VALUES (1, ?, ?)", rows.head)
        connection.commit()
        connection.executescript(";".join(store._SCHEMA[2:]) + ";")


# --- the form of a file ---

EDITS_OF_FORM: dict[str, tuple[str, ...]] = {
    "a trigger dropped": ("DROP TRIGGER no_edit", "DROP TRIGGER no_removal"),
    "a table, an index or a view added": (
        "CREATE TABLE other (x)",
        "CREATE INDEX other ON rows (digest)",
        "CREATE VIEW other AS SELECT * FROM rows",
    ),
    "a table dropped or renamed": (
        "DROP TABLE head",
        "DROP TABLE rows",
        "ALTER TABLE rows RENAME TO other",
    ),
    "a column added": ("ALTER TABLE rows ADD COLUMN other", "ALTER TABLE head ADD COLUMN other"),
    "no head, or no rows": ("DELETE FROM head", "DROP TRIGGER no_removal; DELETE FROM rows"),
    "values of another type": (
        "DROP TRIGGER no_edit; UPDATE rows SET digest = hex(digest)",
        "DROP TRIGGER no_edit; UPDATE rows SET body = 7 WHERE number = 1",
        "UPDATE head SET digest = hex(digest)",
        "UPDATE head SET rows = 'many'",
        "UPDATE head SET rows = rows + 0.5",
    ),
    "not marked as a ledger": ("PRAGMA application_id = 0",),
    "written anew": (
        "VACUUM",
        "PRAGMA page_size = 1024; VACUUM",
        "PRAGMA user_version = 7",
        "REINDEX",
    ),
    "another journal mode": ("PRAGMA journal_mode = WAL",),
}


def edit_form(path: Path, commands: tuple[str, ...], chance: random.Random) -> None:
    """One of these commands, in SQL; triggers that it dropped on the way to something else are made
    again.
    """
    command = chance.choice(commands)
    with _connected(path) as connection:
        connection.executescript(command)
        *before, _ = command.split("; ")
        for trigger in before:
            connection.executescript(
                "".join(made for made in store._SCHEMA[2:] if trigger.split()[-1] in made)
            )


class _connected:  # noqa: N801  (reads as a verb where it is used)
    """A connection that syncs nothing, and is closed at the end."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path)

    def __enter__(self) -> sqlite3.Connection:
        self._connection.executescript("PRAGMA synchronous = OFF; PRAGMA journal_mode = MEMORY;")
        return self._connection

    def __exit__(self, *_: object) -> None:
        self._connection.commit()
        self._connection.close()


# --- files beside it ---

JOURNAL = bytes.fromhex("d9d505f920a163d7")  # with which every journal of SQLite begins


def _journal_that_cuts_off(whole: bytes, chance: random.Random) -> bytes:
    """A header alone: the file was that many pages before the transaction."""
    pages = chance.randrange(len(whole) // _PAGE + 2)
    numbers = [0, chance.getrandbits(32), pages, 512, _PAGE]
    return (JOURNAL + b"".join(number.to_bytes(4, "big") for number in numbers)).ljust(512, b"\0")


def _journal_of_another_file(whole: bytes, chance: random.Random) -> bytes:
    """A header with pages whose checksums do not fit."""
    header = bytearray(_journal_that_cuts_off(whole, chance))
    header[8:12] = (2).to_bytes(4, "big")
    header[16:20] = (len(whole) // _PAGE).to_bytes(4, "big")
    pages = [(number + 1).to_bytes(4, "big") + chance.randbytes(_PAGE + 4) for number in range(2)]
    return bytes(header) + b"".join(pages)


LEFT_BESIDE: dict[str, tuple[str, EditOfBytes]] = {
    "an empty journal": ("-journal", lambda _, chance: b""),
    "a journal of noise": (
        "-journal",
        lambda _, chance: chance.randbytes(chance.randint(1, 9_000)),
    ),
    "a journal of zeros": ("-journal", lambda _, chance: bytes(chance.randint(1, 9_000))),
    "a journal that cuts off": ("-journal", _journal_that_cuts_off),
    "a journal of another file": ("-journal", _journal_of_another_file),
    "a write-ahead log of noise": (
        "-wal",
        lambda _, chance: chance.randbytes(chance.randint(1, 9_000)),
    ),
    "shared memory of noise": ("-shm", lambda _, chance: chance.randbytes(32_768)),
}
