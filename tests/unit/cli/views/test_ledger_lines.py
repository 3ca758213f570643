"""Rows of a ledger for the command line: from the file or an export, as of one moment."""

from pathlib import Path

import pytest

import discreet as dp
from discreet.cli.views.ledger_lines import event_data, event_words, lines_of, opening
from discreet.ledger.storage.codec import encode
from discreet.ledger.storage.rows import Marked
from support.command import PLAN, executed


def test_a_ledger_and_its_export_have_the_same_rows(tmp_path: Path) -> None:
    with executed(tmp_path / "a.ledger", PLAN) as ledger:
        ledger.export(tmp_path / "a.jsonl")
        identity = ledger.snapshot().ledger
    lines = lines_of(tmp_path / "a.ledger")
    assert lines == lines_of(tmp_path / "a.jsonl")
    assert opening(lines).ledger == identity


def test_rows_that_begin_with_another_one_are_no_ledger() -> None:
    with pytest.raises(dp.errors.LedgerCorrupt, match="opens the ledger"):
        opening([(encode(Marked(1, "unsafe_example")), b"")])


def test_scripts_get_every_field_and_people_read_the_same() -> None:
    query = dp.ledger.GaussianSum("grad", 1.0, 2.5)
    data = event_data(query)
    assert data["kind"] == "GaussianSum"
    assert data["noise_std"] == 2.5
    for name, value in data.items():
        assert name == "kind" or f"{name} {value}" in event_words(query)
