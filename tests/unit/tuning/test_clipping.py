"""ClipSearch: the smallest clip norm that hurts only slightly, and never on private data."""

import math
from dataclasses import replace

import numpy as np
import pytest

import discreet as dp
from discreet.tuning import (
    Public,
    Settings,
    clip_search,
    tune_for_compute,
)
from support.tunings import PLAN, private

DATA = Public("digits", "of other people")
DPSGD = dp.Plan.dpsgd(
    records=2_000, expected_batch_size=200, steps=10, epsilon=2.0, delta=1e-5, clip_norm=0.5
)
SCORES = {0.01: 0.2, 0.1: 0.895, 1.0: 0.9, 10.0: 0.88, 100.0: 0.86}


def by_clip(settings: Settings) -> float:
    return SCORES[settings.clip_norm]


def test_the_smallest_clip_norm_that_hurts_only_slightly_is_taken() -> None:
    assert clip_search(by_clip, DPSGD, data=DATA).clip_norm == 0.1
    assert clip_search(by_clip, DPSGD, data=DATA, tolerance=0.0).clip_norm == 1.0
    found = clip_search(by_clip, DPSGD, data=DATA, tolerance=0.9)
    assert (found.clip_norm, found.best) == (0.01, 0.9)
    assert "Try smaller ones" in str(found)
    assert "Try smaller ones" not in str(clip_search(by_clip, DPSGD, data=DATA))


def test_clip_norms_come_in_any_order_and_plans_have_next_to_no_noise() -> None:
    seen = []

    def trial(settings: Settings) -> float:
        seen.append((settings.plan.noise_multiplier, settings.plan.target, settings.plan.steps))
        return by_clip(settings)

    assert clip_search(trial, DPSGD, [10.0, 0.1, 1.0], data=DATA).clip_norm == 0.1
    assert set(seen) == {(1e-6, None, 10)}


def test_without_noise_private_data_are_refused_before_any_trial() -> None:
    def trial(_: Settings) -> float:
        raise AssertionError("must not be tried")

    with pytest.raises(dp.errors.ParameterError, match="AdaptiveClip.*Normalised") as wrong:
        clip_search(trial, DPSGD, data=private())
    assert "no privacy at all" in str(wrong.value)


def test_a_trial_that_diverges_has_no_score_and_is_not_chosen() -> None:
    found = clip_search(
        lambda s: np.float32(math.nan) if s.clip_norm < 1 else by_clip(s), DPSGD, data=DATA
    )
    assert found.clip_norm == 1.0
    assert found.tuning.trials[0].score is None
    assert "none" in str(found)
    with pytest.raises(dp.errors.ParameterError, match="finite score"):
        clip_search(lambda _: math.nan, DPSGD, data=DATA)


@pytest.mark.parametrize("score", ["0.9", None, [0.9], True])
def test_scores_of_other_kinds_are_refused(score: object) -> None:
    with pytest.raises(dp.errors.ParameterError, match="score"):
        clip_search(lambda _: score, DPSGD, data=DATA)


def test_other_mistakes_are_named() -> None:
    with pytest.raises(dp.errors.ParameterError, match="data"):
        clip_search(by_clip, DPSGD, data="public")  # type: ignore[arg-type]
    with pytest.raises(dp.errors.ParameterError, match="trial"):
        clip_search(0.5, DPSGD, data=DATA)  # type: ignore[arg-type]
    with pytest.raises(dp.errors.ParameterError, match="tolerance"):
        clip_search(by_clip, DPSGD, data=DATA, tolerance=-0.1)
    with pytest.raises(dp.errors.ParameterError, match="single clip norm"):
        clip_search(
            by_clip, replace(DPSGD, mechanism=dp.Normalised(1.0, 1.0), target=None), data=DATA
        )
    with pytest.raises(dp.errors.ParameterError, match="number of records"):
        clip_search(
            by_clip,
            dp.Plan.dpsgd(sampling_probability=0.1, steps=5, noise_multiplier=1.0),
            data=DATA,
        )
    with pytest.raises(dp.errors.ParameterError, match="private plan"):
        tune_for_compute(
            by_clip, replace(PLAN, mechanism=dp.NotPrivate()), learning_rates=[1.0], data=DATA
        )
    with pytest.raises(dp.errors.ParameterError, match="learning rate"):
        clip_search(lambda settings: settings.learning_rate, DPSGD, data=DATA)
