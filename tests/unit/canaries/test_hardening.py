"""What is no array, no number or no list of scores gets a typed error, whatever NumPy would have
said.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from discreet import Plan
from discreet.auditing import (
    SecretText,
    exposure_by_rank,
    lira,
    logit_confidence,
    loss_attack,
    scaled,
)
from discreet.canaries import Canaries, Scores, mislabelled, out_of_distribution
from discreet.errors import ParameterError
from discreet.verdict import audit

RAGGED: Any = [[1.0], [2.0, 3.0]]
WRAPS: Any = np.array([2**64 - 1], np.uint64)
FIVE: Any = 5
NOTHING: Any = lambda _: None  # noqa: E731
COINS = np.random.default_rng(1).random(40) < 0.5
SCORES: Any = Scores(np.where(COINS, 1.0, -1.0), COINS)
PLAN = Plan.dpsgd(records=10, sampling_probability=0.1, steps=1, noise_multiplier=1.0)
FILE = '{"schema": true, "attack": "a", "values": [1], "inside": [true], "trials": [0]}'

WRONG: dict[str, Callable[[], object]] = {
    "scores": lambda: Scores(RAGGED, [True, False]),
    "a score beyond float64": lambda: Scores(np.array(["1e4000"], np.longdouble), [True]),
    "a number of a run that would wrap": lambda: Scores([1.0], [True], trials=WRAPS),
    "pooled: one": lambda: Scores.pooled(SCORES),
    "pooled: others": lambda: Scores.pooled([FIVE]),
    "a version that is true": lambda: Scores.from_json(FILE),
    "a place that would wrap": lambda: Canaries(WRAPS),
    "labels": lambda: mislabelled(RAGGED, 3),
    "inputs that are infinite": lambda: out_of_distribution(
        1, (2,), classes=2, low=-1e300, high=1e300
    ),
    "candidates": lambda: exposure_by_rank(1.0, RAGGED),
    "losses of texts": lambda: SecretText(length=1).exposure(
        "A", "1", lambda texts: ["x"] * len(texts)
    ),
    "losses": lambda: loss_attack(RAGGED, [True, False]),
    "confidences": lambda: logit_confidence(RAGGED),
    "references": lambda: lira([1.0, 2.0], [True, False], RAGGED, [[True, False]]),
    "members of references": lambda: lira([1.0, 2.0], [True, False], [[1.0, 2.0]], RAGGED),
    "a delta": lambda: audit(PLAN, SCORES, delta=FIVE),
    "a profile": lambda: scaled(SCORES, epsilon=float, profile=lambda _: NOTHING, delta=0.1),
}


@pytest.mark.parametrize("call", WRONG.values(), ids=WRONG)
def test_bad_input_gets_a_typed_error(call: Callable[[], object]) -> None:
    with pytest.raises(ParameterError):
        call()


def test_runs_are_numbered_anew_however_far_apart_they_were() -> None:
    far = Scores([1.0, 2.0], [True, False], trials=[-(2**63), 2**63 - 1])
    assert Scores.pooled([far, far]).trials.tolist() == [0, 1, 2, 3]
