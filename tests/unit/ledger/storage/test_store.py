"""Rows on disk: settings that survive a power failure; what is no ledger is not taken for one."""

import sqlite3
import stat
from pathlib import Path

import pytest

import discreet as dp
from discreet.ledger.storage.store import Store
from support.examples import INFO, STEP, counts, roomy_ledger, varied_ledger


@pytest.fixture
def ledger() -> dp.Ledger:
    return roomy_ledger()


def total(ledger: dp.Ledger) -> int:
    return sum(charge.count for charge in ledger.charges())


def test_power_loss_settings_are_in_force(tmp_path: Path) -> None:
    ledger = dp.Ledger.open(tmp_path / "a.ledger")
    connection = ledger._journal.store._connection
    assert connection.execute("PRAGMA synchronous").fetchone() == (3,)  # EXTRA
    assert connection.execute("PRAGMA journal_mode").fetchone() == (b"delete",)


def test_sql_cannot_edit_or_delete_rows(tmp_path: Path) -> None:
    varied_ledger(tmp_path / "a.ledger").close()
    connection = sqlite3.connect(tmp_path / "a.ledger")
    for command in (
        "DELETE FROM rows WHERE number = 3",
        "UPDATE rows SET body = x'00' WHERE number = 3",
    ):
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            connection.execute(command)
    connection.close()


def test_a_path_without_a_ledger_is_said(tmp_path: Path) -> None:
    for mode in ("r", "r+"):
        with pytest.raises(dp.errors.LedgerNotFound):
            dp.Ledger.open(tmp_path / "none.ledger", mode)
    with pytest.raises(dp.errors.LedgerUnavailable):
        dp.Ledger.open(tmp_path / "no" / "folder.ledger")
    with pytest.raises(dp.errors.ParameterError, match=r"'a', 'r\+' or 'r'"):
        dp.Ledger.open(tmp_path / "x", "w")  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"not a ledger", b"SQLite format 3\x00" + b"\x00" * 200])
def test_a_file_that_is_no_ledger_is_never_taken_over(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.ledger"
    path.write_bytes(content)
    with pytest.raises(dp.errors.LedgerCorrupt):
        dp.Ledger.open(path)
    assert path.read_bytes() == content


def test_another_programs_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE rows (number, body, digest)")
    connection.commit()
    connection.close()
    with pytest.raises(dp.errors.LedgerCorrupt, match="a file that discreet wrote"):
        dp.Ledger.open(path)


def test_a_ledger_can_be_read_where_nothing_can_be_written(tmp_path: Path) -> None:
    folder = tmp_path / "fixed"
    folder.mkdir()
    path = folder / "a.ledger"
    before = counts(varied_ledger(path))
    path.chmod(stat.S_IRUSR)
    folder.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        assert counts(dp.Ledger.open(path, "r").verify()) == before
    finally:
        folder.chmod(stat.S_IRWXU)


def test_a_busy_ledger_is_unavailable_not_corrupt_and_nothing_is_charged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("discreet.ledger.storage.store._WAIT_SECONDS", 0.05)
    ledger = roomy_ledger(tmp_path / "a.ledger")
    run = ledger.begin(INFO)
    blocker = sqlite3.connect(tmp_path / "a.ledger", isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    with pytest.raises(dp.errors.LedgerUnavailable, match="locked"):
        run.reserve(STEP, count=1)
    blocker.execute("ROLLBACK")
    blocker.close()
    assert ledger.charges() == ()
    run.reserve(STEP, count=1)
    assert total(ledger.verify()) == 1


def test_a_full_disk_is_unavailable_and_nothing_is_charged(tmp_path: Path) -> None:
    ledger = dp.Ledger.open(
        tmp_path / "a.ledger", budget=dp.Odometer(delta=1e-5)
    )  # on which every step is welcome
    run = ledger.begin(INFO)
    pages = ledger._journal.store._connection.execute("PRAGMA page_count").fetchone()[0]
    ledger._journal.store._connection.execute(f"PRAGMA max_page_count = {pages}")
    taken = 0
    with pytest.raises(dp.errors.LedgerUnavailable, match="full"):
        while True:
            run.reserve(
                dp.ledger.Step(dp.Poisson(0.1), dp.ledger.GaussianSum("grad", 1, 1 + taken)),
                count=1,
            )
            taken += 1
    assert taken > 0
    assert total(ledger.verify()) == taken


def test_what_is_appended_in_a_transaction_that_fails_is_not_there() -> None:
    store = Store.in_memory([(b"row", b"digest")])
    with pytest.raises(ValueError, match="stop"), store.appending():
        store.append(1, b"more", b"next")
        raise ValueError("stop")
    assert not store.in_transaction
    with store.reading():
        assert list(store.lines(0)) == [(b"row", b"digest")]
        assert store.head() == (1, b"digest")


def test_a_new_file_beside_the_journal_of_another_ledger_is_refused(tmp_path: Path) -> None:
    """SQLite would roll that journal back into the new file."""
    (tmp_path / "a.ledger-journal").write_bytes(b"")
    with pytest.raises(dp.errors.LedgerExists, match="part of another ledger"):
        Store.create(tmp_path / "a.ledger", [])
    assert not (tmp_path / "a.ledger").exists()
