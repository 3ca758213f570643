"""JSON Lines: out and in again without a change, or refused."""

import json
from pathlib import Path

import pytest

import discreet as dp
from support.examples import INFO, STEP, counts, varied_ledger


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    varied_ledger().export(tmp_path / "a.jsonl")
    return tmp_path / "a.jsonl"


def test_an_export_comes_back_with_the_same_head_charges_and_marks(tmp_path: Path) -> None:
    original = varied_ledger(tmp_path / "a.ledger")
    original.export(tmp_path / "a.jsonl")
    for loaded in (
        dp.Ledger.load(tmp_path / "a.jsonl"),
        dp.Ledger.load(tmp_path / "a.jsonl", into=tmp_path / "b.ledger"),
    ):
        assert loaded.verify(expected_head=original.head()).head() == original.head()
        assert loaded.charges() == original.charges()
        assert loaded.marks() == original.marks()
        assert loaded.runs() == original.runs()
        assert loaded.snapshot() == original.snapshot()


def test_every_line_is_json(exported: Path) -> None:
    *rows, seal = [json.loads(line) for line in exported.read_text().splitlines()]
    assert seal == {"head": rows[-1]["digest"], "rows": len(rows)}


def test_a_loaded_ledger_goes_on_in_its_new_file_but_not_in_memory(
    exported: Path, tmp_path: Path
) -> None:
    ledger = dp.Ledger.load(exported, into=tmp_path / "b.ledger")
    ledger.begin(INFO).reserve(STEP, count=1)
    ledger.verify()
    with pytest.raises(dp.errors.LedgerMisuse, match="opened to read"):
        dp.Ledger.load(exported).begin(INFO)


def test_nothing_is_overwritten(exported: Path, tmp_path: Path) -> None:
    before = exported.read_bytes()
    with pytest.raises(dp.errors.LedgerExists):
        varied_ledger().export(exported)
    varied_ledger(tmp_path / "b.ledger").close()
    there = (tmp_path / "b.ledger").read_bytes()
    with pytest.raises(dp.errors.LedgerExists):
        dp.Ledger.load(exported, into=tmp_path / "b.ledger")
    assert exported.read_bytes() == before
    assert (tmp_path / "b.ledger").read_bytes() == there
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.jsonl", "b.ledger"]


def test_a_missing_file_and_folder_are_said(tmp_path: Path) -> None:
    with pytest.raises(dp.errors.LedgerNotFound):
        dp.Ledger.load(tmp_path / "none.jsonl")
    with pytest.raises(dp.errors.LedgerUnavailable, match="a folder for"):
        varied_ledger().export(tmp_path / "no" / "folder.jsonl")
    with pytest.raises(dp.errors.LedgerUnavailable, match="a folder for"):
        dp.Ledger.open(tmp_path / "none" / "a.ledger")


def test_every_way_to_cut_it_off_is_noticed(exported: Path) -> None:
    whole = exported.read_bytes()
    for length in range(0, len(whole), 5):
        exported.write_bytes(whole[:length])
        with pytest.raises(dp.errors.LedgerCorrupt):
            dp.Ledger.load(exported)


def test_the_first_wrong_row_is_named(exported: Path) -> None:
    lines = exported.read_bytes().splitlines(keepends=True)
    original = counts(varied_ledger())
    for number in range(len(lines) - 1):
        edited = [*lines]
        edited[number] = lines[number].replace(b'"kind"', b'"kinD"')
        exported.write_bytes(b"".join(edited))
        with pytest.raises(dp.errors.LedgerCorrupt) as caught:
            dp.Ledger.load(exported)
        assert caught.value.row == number
    exported.write_bytes(b"".join(lines))
    assert counts(dp.Ledger.load(exported)) == original
