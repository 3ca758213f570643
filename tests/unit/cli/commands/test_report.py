"""`discreet report`: into files or to standard output, and never both."""

import json
from pathlib import Path

import pytest

from discreet.cli.commands.report import Format, _check_stdout
from discreet.errors import DiscreetError
from support.command import PLAN, executed, in_process


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    path = tmp_path / "a.ledger"
    executed(path, PLAN).close()
    return path


def test_the_suffix_of_a_file_says_its_format(ledger: Path, tmp_path: Path) -> None:
    page, data = tmp_path / "a.html", tmp_path / "a.json"
    done = in_process("report", ledger, "--delta", 1e-6, "--out", page, "--out", data)
    assert done.code == 0, done.err
    assert page.read_text().startswith("<!doctype html>")
    assert json.loads(data.read_text())["claim"]["delta"] == 1e-6


def test_a_file_that_exists_is_replaced_only_by_force(ledger: Path, tmp_path: Path) -> None:
    page = tmp_path / "a.md"
    page.write_text("mine")
    done = in_process("report", ledger, "--delta", 1e-6, "--out", page)
    assert done.code == 2
    assert page.read_text() == "mine"


@pytest.mark.parametrize(
    ("places", "kind", "as_json"),
    [
        (["-", "a.html"], None, False),
        (["a.html"], Format.HTML, False),
        ([], Format.HTML, True),
    ],
    ids=["file and pipe", "format of a file", "format and summary"],
)
def test_two_things_for_standard_output_are_refused(
    places: list[str], kind: Format | None, as_json: bool
) -> None:
    with pytest.raises(DiscreetError, match="Nothing was written"):
        _check_stdout([Path(place) for place in places], kind, as_json=as_json)


def test_one_thing_for_standard_output_is_fine() -> None:
    _check_stdout([Path("-")], Format.HTML, as_json=False)
    _check_stdout([Path("a.html"), Path("a.md")], None, as_json=True)
