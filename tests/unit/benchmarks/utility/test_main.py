"""`python -m benchmarks.utility`: what can be asked for, and what is refused."""

import sys
from pathlib import Path

import pytest
import torch
from benchmarks.utility import __main__ as command
from benchmarks.utility.recipes import recipes


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["utility", *arguments])
    before = torch.get_num_threads()
    try:
        return command.main()
    finally:
        torch.set_num_threads(before)


def test_the_list_names_every_recipe(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "--list") == 0
    out = capsys.readouterr().out
    assert all(f"{name}: " in out for name in recipes())


def test_without_data_every_recipe_fails_and_the_next_is_tried(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        command, "recipes", lambda: {"cnn": recipes()["cnn"], "again": recipes()["cnn"]}
    )
    assert (
        run(monkeypatch, "all", "--data", str(tmp_path), "--results", str(tmp_path / "results"))
        == 1
    )
    assert capsys.readouterr().out.count("Expected MNIST") == 2
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("nothing-known",),
        ("cnn", "--epsilon", "1", "--without-privacy"),
        ("all", "--epsilon", "1"),
        ("cnn", "--seed", "1"),
    ],
)
def test_p45_what_makes_no_sense_is_refused(
    monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    with pytest.raises(SystemExit) as caught:
        run(monkeypatch, *arguments)
    assert caught.value.code == 2
