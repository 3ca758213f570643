"""What an attack says of canaries, and the file that it is kept in."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from discreet.canaries import Scores
from discreet.errors import ParameterError

SCORES = Scores(
    [0.1, -2.0, 1e-300, 3.0],
    [True, False, True, False],
    trials=[4, 4, 7, 9],
    attack="loss threshold",
)


def same(one: Scores, other: Scores) -> bool:
    pairs = zip(
        (one.values, one.inside, one.trials),
        (other.values, other.inside, other.trials),
        strict=True,
    )
    return all(np.array_equal(*pair) for pair in pairs) and one.attack == other.attack


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    SCORES.save(tmp_path / "scores.json")
    assert same(Scores.load(tmp_path / "scores.json"), SCORES)
    with pytest.raises(ParameterError, match="nothing is yet"):
        SCORES.save(tmp_path / "scores.json")
    with pytest.raises(ParameterError, match="readable"):
        Scores.load(tmp_path / "none.json")


def test_runs_are_counted() -> None:
    assert (SCORES.runs, SCORES.independent) == (3, False)
    assert Scores([1.0, 2.0], [True, False], trials=[0, 1]).independent
    assert Scores([1.0], [True]).independent


def test_pooled_runs_stay_apart() -> None:
    pooled = Scores.pooled([SCORES, SCORES, Scores([1.0], [False])])
    assert len(pooled) == 9
    assert pooled.runs == 7
    assert pooled.values[:4].tolist() == SCORES.values.tolist()
    wrong: Any
    for wrong in ([], SCORES):
        with pytest.raises(ParameterError, match="at least one"):
            Scores.pooled(wrong)


def test_scores_do_not_change_with_the_arrays_that_they_came_from() -> None:
    values = np.array([1.0, 2.0])
    scores = Scores(values, [True, False])
    values[:] = 9.0
    assert scores.values.tolist() == [1.0, 2.0]
    with pytest.raises(ValueError, match="read-only"):
        scores.values[0] = 0.0


@pytest.mark.parametrize(
    ("values", "inside", "more"),
    [
        ([], [], {}),
        ([1.0, np.nan], [True, False], {}),
        ([np.inf], [True], {}),
        ([1.0], [1], {}),
        ([1.0], [True, False], {}),
        ([[1.0]], [[True]], {}),
        (["a"], [True], {}),
        ([1.0], [True], {"trials": [0.5]}),
        ([1.0], [True], {"trials": [1, 2]}),
        ([1.0], [True], {"attack": "a\nb"}),
    ],
)
def test_wrong_scores_are_refused(values: Any, inside: Any, more: dict[str, Any]) -> None:
    with pytest.raises(ParameterError):
        Scores(values, inside, **more)


@pytest.mark.parametrize(
    "change", [{"schema": 2}, {"more": 1}, {"values": "x"}, {"inside": [1, 0, 1, 0]}]
)
def test_another_file_is_refused(change: dict[str, object]) -> None:
    table = json.loads(SCORES.to_json()) | change
    with pytest.raises(ParameterError):
        Scores.from_json(json.dumps(table))
    for text in ("", "[]", "{", "null"):
        with pytest.raises(ParameterError):
            Scores.from_json(text)


def test_p45_a_key_given_twice_is_refused() -> None:
    """Else the second value wins: here, coins that nobody tossed."""
    forged = SCORES.to_json().replace(
        '"trials"', '"inside": [false, true, false, true], "trials"', 1
    )
    assert json.loads(forged)["inside"] == [False, True, False, True]
    with pytest.raises(ParameterError, match="a key stands twice"):
        Scores.from_json(forged)


@pytest.mark.parametrize("heads", ["ab" * 32, ["AB" * 32], ["ab"], [7], None], ids=str)
def test_heads_are_digests(heads: Any) -> None:
    with pytest.raises(ParameterError, match="heads"):
        Scores([1.0], [True], heads=heads)


def test_pooled_scores_name_every_ledger_once() -> None:
    one, two = (Scores([1.0, 2.0], [True, False], heads=[digit * 64]) for digit in "ab")
    assert Scores.pooled([one, two, one]).heads == ("a" * 64, "b" * 64)
