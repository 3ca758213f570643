"""Tables, pictures and bars of a tuning."""

import sys
from pathlib import Path

import pytest

import discreet as dp
from discreet.tuning import (
    Public,
    Settings,
    clip_search,
    tune_for_accuracy,
    tune_for_compute,
)

DATA = Public("digits", "of other people")
DPSGD = dp.Plan.dpsgd(
    records=2_000, expected_batch_size=200, steps=10, epsilon=2.0, delta=1e-5, clip_norm=0.5
)
SCORES = {0.01: 0.2, 0.1: 0.895, 1.0: 0.9, 10.0: 0.88, 100.0: 0.86}


def by_clip(settings: Settings) -> float:
    return SCORES[settings.clip_norm]


NOISES = (0.002, 0.004, 0.008)


def test_pictures_are_written_whole_by_their_suffix(tmp_path: Path) -> None:
    searched = clip_search(by_clip, DPSGD, data=DATA)
    rates = tune_for_compute(
        lambda s: s.learning_rate,
        DPSGD,
        learning_rates=[1.0, 2.0],
        clip_norms=[0.1, 1.0],
        data=DATA,
    )
    tolerated = tune_for_accuracy(
        lambda _: 0.5, DPSGD, average_noises=NOISES, accuracy=0.85, data=DATA
    )
    for number, plot in enumerate((searched.plot, rates.plot, tolerated.plot)):
        assert plot(tmp_path / f"{number}.png").read_bytes().startswith(b"\x89PNG")
    assert b"<svg" in searched.plot(tmp_path / "clip.svg").read_bytes()
    assert {path.suffix for path in tmp_path.iterdir()} == {".png", ".svg"}
    with pytest.raises(dp.errors.ParameterError, match=".png or .svg"):
        searched.plot(tmp_path / "clip.jpg")
    with pytest.raises(dp.errors.ParameterError, match="to write to"):
        searched.plot(tmp_path / "nowhere" / "clip.png")


def test_without_matplotlib_a_picture_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(dp.errors.DiscreetError, match="discreet\\[plots\\]"):
        clip_search(by_clip, DPSGD, data=DATA).plot(tmp_path / "clip.png")
    assert list(tmp_path.iterdir()) == []


def test_a_bar_is_shown_on_demand_and_not_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    clip_search(by_clip, DPSGD, data=DATA)
    assert capsys.readouterr() == ("", "")
    clip_search(by_clip, DPSGD, data=DATA, progress=True)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "5/5" in shown.err
    assert "best score 0.9" in shown.err
