"""Random damage to a ledger, file and export: it is refused, or it says exactly what the original said.

That is: charges, plans, terms, ends and marks.

11,000 edits in all: bits flipped, bytes changed, cut off, rows deleted, swapped, repeated, moved, numbers edited.
"""

import random
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

import discreet as dp
from discreet.ledger import Snapshot, store
from support.examples import varied_ledger

Edit = Callable[[bytes, random.Random], bytes]
EDITS_OF_A_FILE, EDITS_OF_ROWS, EDITS_OF_AN_EXPORT = 5000, 1000, 5000


# --- any file ---


def flip_a_bit(whole: bytes, chance: random.Random) -> bytes:
    place = chance.randrange(len(whole))
    return whole[:place] + bytes([whole[place] ^ (1 << chance.randrange(8))]) + whole[place + 1 :]


def overwrite_some_bytes(whole: bytes, chance: random.Random) -> bytes:
    place, length = chance.randrange(len(whole)), chance.randint(1, 64)
    return whole[:place] + chance.randbytes(length) + whole[place + length :]


def cut_off(whole: bytes, chance: random.Random) -> bytes:
    return whole[: chance.randrange(len(whole))]


def delete_a_piece(whole: bytes, chance: random.Random) -> bytes:
    place = chance.randrange(len(whole))
    return whole[:place] + whole[place + chance.randint(1, 64) :]


def edit_a_number(whole: bytes, chance: random.Random) -> bytes:
    """Such as a count made smaller, or noise made larger: the edits that would pay."""
    match = chance.choice(list(re.finditer(rb"(?<=:)\d+(\.\d+)?(?=[,}])", whole)))
    other = str(chance.choice([0, 1, 2, 1000, 0.5, 1e9])).encode()
    return whole[: match.start()] + other + whole[match.end() :]


ANYWHERE: list[Edit] = [flip_a_bit, flip_a_bit, overwrite_some_bytes, cut_off, delete_a_piece, edit_a_number]


# --- an export, line by line ---


def delete_a_line(whole: bytes, chance: random.Random) -> bytes:
    lines = whole.splitlines(keepends=True)
    del lines[chance.randrange(len(lines))]
    return b"".join(lines)


def swap_two_lines(whole: bytes, chance: random.Random) -> bytes:
    lines = whole.splitlines(keepends=True)
    one, two = chance.sample(range(len(lines)), 2)
    lines[one], lines[two] = lines[two], lines[one]
    return b"".join(lines)


def repeat_a_line(whole: bytes, chance: random.Random) -> bytes:
    lines = whole.splitlines(keepends=True)
    lines.insert(chance.randrange(len(lines) + 1), chance.choice(lines))
    return b"".join(lines)


LINES: list[Edit] = [delete_a_line, swap_two_lines, repeat_a_line]


def verdict(read: Callable[[], dp.Ledger], original: Snapshot) -> bool:
    """Whether it was refused; if not, it must say what the original said."""
    try:
        with read() as ledger:
            assert ledger.verify().snapshot() == original
    except dp.LedgerError:
        return True
    return False


def test_no_edit_of_the_file_lowers_the_cost(tmp_path: Path) -> None:
    path = tmp_path / "a.ledger"
    with varied_ledger(path) as ledger:
        original = ledger.snapshot()
    whole, chance = path.read_bytes(), random.Random(1)
    refused = 0
    for number in range(EDITS_OF_A_FILE):
        path.write_bytes(ANYWHERE[number % len(ANYWHERE)](whole, chance))
        refused += verdict(lambda: dp.Ledger.open(path, "r"), original)
    assert refused > EDITS_OF_A_FILE / 3  # the rest hit bytes that hold nothing


def test_no_edit_of_the_rows_by_sql_lowers_the_cost(tmp_path: Path) -> None:
    path = tmp_path / "a.ledger"
    with varied_ledger(path) as ledger:
        original = ledger.snapshot()
    whole, chance = path.read_bytes(), random.Random(2)
    commands = [
        "DELETE FROM rows WHERE number = :one",
        "DELETE FROM rows WHERE number >= :one",
        "UPDATE rows SET number = -number WHERE number = :one",
        "UPDATE rows SET body = (SELECT body FROM rows WHERE number = :two) WHERE number = :one AND :one != :two",
        "UPDATE rows SET digest = (SELECT digest FROM rows WHERE number = :two) WHERE number = :one AND :one != :two",
        "INSERT INTO rows SELECT number + 99, body, digest FROM rows WHERE number = :one",
        "INSERT INTO rows SELECT (SELECT max(number) + 1 FROM rows), body, digest FROM rows WHERE number = :one",
        "UPDATE rows SET body = CAST(replace(CAST(body AS TEXT), ':1', ':0') AS BLOB) WHERE number = :one",
        "UPDATE head SET rows = :one",
        "UPDATE head SET digest = (SELECT digest FROM rows WHERE number = :one), rows = :one + 1",
        "DELETE FROM head",
    ]
    changed = refused = 0
    for number in range(EDITS_OF_ROWS):
        path.write_bytes(whole)
        connection = sqlite3.connect(path)
        connection.executescript(
            "PRAGMA synchronous = OFF; PRAGMA journal_mode = MEMORY; DROP TRIGGER no_edit; DROP TRIGGER no_removal;"
        )
        before = everything(connection)
        rows = len(before[0])
        choice = {"one": chance.randrange(rows), "two": chance.randrange(rows)}
        connection.execute(commands[number % len(commands)], choice)
        connection.commit()
        changed += everything(connection) != before
        connection.executescript(";".join(store._SCHEMA[2:]) + ";")
        connection.close()
        refused += verdict(lambda: dp.Ledger.open(path, "r"), original)
    assert refused == changed > 0.7 * EDITS_OF_ROWS  # every change of a row or of the head, and nothing else


def everything(connection: sqlite3.Connection) -> tuple[list[object], list[object]]:
    """All rows and the head, as they are."""
    return (
        connection.execute("SELECT * FROM rows ORDER BY number").fetchall(),
        connection.execute("SELECT * FROM head").fetchall(),
    )


def test_no_edit_of_the_export_lowers_the_cost(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    ledger = varied_ledger()
    original = ledger.snapshot()
    ledger.export(path)
    whole, chance = path.read_bytes(), random.Random(3)
    edits = [*ANYWHERE, *LINES]
    for number in range(EDITS_OF_AN_EXPORT):
        damaged = edits[number % len(edits)](whole, chance)
        path.write_bytes(damaged)
        refused = verdict(lambda: dp.Ledger.load(path), original)
        assert refused or damaged == whole, "every byte of an export is covered"


def test_the_same_test_would_notice_a_ledger_without_a_chain(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The named wrong implementation: rows without digests."""
    monkeypatch.setattr("discreet.ledger.book.follow", lambda digest, body: b"")
    monkeypatch.setattr("discreet.ledger.ledger.follow", lambda digest, body: b"")
    with pytest.raises(AssertionError):
        test_no_edit_of_the_rows_by_sql_lowers_the_cost(tmp_path)
