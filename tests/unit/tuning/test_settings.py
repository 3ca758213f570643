"""What one trial is asked to do, and what is refused as a sweep or a plan."""

import math
from dataclasses import replace

import pytest

import discreet as dp
from discreet.tuning import (
    Public,
    Settings,
    clip_search,
)
from support.tunings import PLAN

DATA = Public("digits", "of other people")
DPSGD = dp.Plan.dpsgd(
    records=2_000, expected_batch_size=200, steps=10, epsilon=2.0, delta=1e-5, clip_norm=0.5
)
SCORES = {0.01: 0.2, 0.1: 0.895, 1.0: 0.9, 10.0: 0.88, 100.0: 0.86}


def by_clip(settings: Settings) -> float:
    return SCORES[settings.clip_norm]


@pytest.mark.parametrize(
    "wrong", [[1.0], [1.0, 1.0], [0.0, 1.0], [math.inf, 1.0], "12", 3.0, ["1", 2.0]]
)
def test_sweeps_of_other_things_are_refused(wrong: object) -> None:
    with pytest.raises(dp.errors.ParameterError, match="clip_norms"):
        clip_search(by_clip, DPSGD, wrong, data=DATA)  # type: ignore[arg-type]


def test_a_plan_for_a_public_data_set_of_another_size() -> None:
    settings = Settings(label="x", plan=DPSGD, values={"clip_norm": 1.0})
    plan = settings.plan_for(400)
    assert (plan.expected_batch_size, plan.steps, plan.noise_multiplier) == (
        200.0,
        10,
        DPSGD.noise_multiplier,
    )
    assert plan.target is None  # epsilon is another one there
    with pytest.raises(dp.errors.ParameterError, match="expected batch size"):
        settings.plan_for(199)
    with pytest.raises(dp.errors.ParameterError, match="Poisson"):
        replace(settings, plan=PLAN).plan_for(400)
