"""Damaged ledgers, by somebody who does not compute the chain anew: refused by name, or in every
field as before.

`python -m benchmarks.damage --edits 10000` does more of the same, and prints a table by kind of
edit. What the chain cannot
show, a whole file that was put back or copied, is seen by whoever kept a head: the last tests.
"""

import shutil
import sqlite3
from pathlib import Path

import pytest

import discreet as dp
from discreet.ledger.storage.store import Store
from support import damage, edits
from support.damage import Undetected
from support.victims import FIRST, INFO

EDITS = {
    "file": 400,
    "rows": 350,
    "form": 150,
    "beside": 150,
    "export": 250,
    "rows of an export": 200,
}


@pytest.mark.parametrize("part", EDITS)
def test_every_edit_is_detected_or_harmless(part: str, tmp_path: Path) -> None:
    outcomes = damage.campaign(tmp_path, EDITS[part], seed=1, parts=(part,))
    kinds = [(each.part, each.name) for each in damage.kinds_of_damage() if each.part == part]
    assert outcomes.total == EDITS[part]
    assert set(kinds) <= outcomes.detected.keys() | outcomes.harmless.keys()
    if part not in ("file", "form", "beside"):  # where every change counts
        assert outcomes.detected.total() == EDITS[part]
    if part != "beside":
        assert outcomes.detected.total() > EDITS[part] / 2


@pytest.mark.full
def test_ten_thousand_edits_are_detected_or_harmless(tmp_path: Path) -> None:
    outcomes = damage.campaign(tmp_path, 10_000, seed=2)
    assert outcomes.detected.total() > 7_000


def test_the_same_test_notices_a_ledger_without_a_chain(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The named wrong implementation: rows without digests."""
    monkeypatch.setattr("discreet.ledger.storage.book.follow", lambda digest, body: b"")
    monkeypatch.setattr("discreet.ledger.journal.follow", lambda digest, body: b"")
    monkeypatch.setattr(damage, "SCHEMA_1_NAMES", ())  # whose digests are real ones
    with pytest.raises(Undetected):
        damage.campaign(tmp_path, 100, seed=1, parts=("rows",))


def test_the_same_test_notices_an_error_that_has_no_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("discreet.ledger.storage.store._PASSING", set())
    monkeypatch.setattr("discreet.ledger.storage.store.LedgerCorrupt", sqlite3.DatabaseError)
    with pytest.raises(Undetected, match="Error"):
        damage.campaign(tmp_path, 100, seed=1, parts=("file",))


# --- what the chain cannot show, and a head that was kept does ---


def one_more_step(path: Path) -> str:
    """Charge a step, and keep the head as a report or a checkpoint does."""
    with dp.Ledger.open(path, "r+") as ledger:
        ledger.begin(INFO, [(FIRST, 1)]).reserve(FIRST, count=1)
        return ledger.head()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "a.ledger"
    dp.Ledger.open(path, budget=dp.Odometer(delta=1e-5)).close()
    return path


def test_a_file_that_was_put_back_is_seen_by_whoever_kept_a_head(
    path: Path, tmp_path: Path
) -> None:
    first = one_more_step(path)
    shutil.copy(path, tmp_path / "backup")
    second = one_more_step(path)
    shutil.copy(tmp_path / "backup", path)
    with dp.Ledger.open(path, "r") as ledger:
        assert ledger.snapshot().steps == 1  # whole, and says less than was released
        ledger.verify(first)
        with pytest.raises(
            dp.errors.LedgerCorrupt, match="another ledger, or its history was rewritten"
        ):
            ledger.verify(second)


def test_a_copy_that_went_on_elsewhere_is_seen_by_whoever_kept_its_head(
    path: Path, tmp_path: Path
) -> None:
    common = one_more_step(path)
    shutil.copy(path, tmp_path / "copy")
    here, there = one_more_step(path), one_more_step(tmp_path / "copy")
    for ledger_path, own, other in ((path, here, there), (tmp_path / "copy", there, here)):
        with dp.Ledger.open(ledger_path, "r") as ledger:
            ledger.verify(common).verify(own)
            with pytest.raises(dp.errors.LedgerCorrupt, match="never had it"):
                ledger.verify(other)


def test_rows_cut_off_with_their_head_are_seen_by_whoever_kept_one(path: Path) -> None:
    """By somebody who leaves rows out and moves the head back, which needs no digest to be
    computed.
    """
    first, second = one_more_step(path), one_more_step(path)
    connection = sqlite3.connect(path)
    last = connection.execute(
        "SELECT number FROM rows WHERE digest = ?", (bytes.fromhex(first),)
    ).fetchone()[0]
    triggers = [
        sql
        for (sql,) in connection.execute(
            "SELECT sql FROM sqlite_schema WHERE type = 'trigger' ORDER BY rowid"
        )
    ]
    connection.executescript(
        f"DROP TRIGGER no_edit; DROP TRIGGER no_removal; DELETE FROM rows WHERE number > {last};"
    )
    connection.execute("UPDATE head SET rows = ?, digest = ?", (last + 1, bytes.fromhex(first)))
    connection.commit()
    connection.executescript(";".join(triggers) + ";")
    connection.close()
    with (
        dp.Ledger.open(path, "r") as ledger,
        pytest.raises(dp.errors.LedgerCorrupt, match="never had it"),
    ):
        ledger.verify(first).verify(second)


def test_a_journal_that_was_kept_puts_the_file_back_and_is_seen_too(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A journal holds what a transaction replaced: beside the file again, it undoes that
    transaction.
    """
    first = one_more_step(path)
    journal = path.with_name(path.name + "-journal")
    journals, right = [], Store._sql

    def sql(self: Store, command: str, values: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
        if command == "COMMIT" and journal.exists():
            journals.append(journal.read_bytes())
        return right(self, command, values)

    monkeypatch.setattr(Store, "_sql", sql)
    second = one_more_step(path)
    undo = journals[-1]
    pages = (len(undo) - 512) // (4 + 4096 + 4)
    journal.write_bytes(
        edits.JOURNAL + pages.to_bytes(4, "big") + undo[12:]
    )  # as a commit begins it
    with dp.Ledger.open(path, "r") as ledger:
        assert ledger.snapshot().steps == 1
        with pytest.raises(dp.errors.LedgerCorrupt, match="never had it"):
            ledger.verify(first).verify(second)
