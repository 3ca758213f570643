"""Given computation and privacy: the best pair of learning rate and clip norm at the same
epsilon.
"""

import math
from dataclasses import replace

import pytest

import discreet as dp
from discreet.tuning import Public, Settings, Synthetic, TuningKind, tune_for_compute
from support.tunings import PLAN

DATA = Public("digits", "of other people")
DPSGD = dp.Plan.dpsgd(
    records=2_000, expected_batch_size=200, steps=10, epsilon=2.0, delta=1e-5, clip_norm=0.5
)


def test_the_best_pair_wins_and_its_plan_has_the_same_epsilon() -> None:
    def trial(settings: Settings) -> float:
        assert settings.plan.target == DPSGD.target
        assert settings.plan.noise_multiplier == pytest.approx(DPSGD.noise_multiplier)
        return (
            -abs(math.log(settings.learning_rate * settings.clip_norm / 2.0)) - settings.clip_norm
        )  # 4 at 0.5, 20 at 0.1

    found = tune_for_compute(
        trial,
        DPSGD,
        learning_rates=[4.0, 20.0, 100.0],
        clip_norms=[0.5, 0.1],
        data=Synthetic("made up"),
    )
    assert (found.learning_rate, found.best.values["clip_norm"]) == (20.0, 0.1)
    assert found.plan.queries()[0].sensitivity == 0.1
    assert found.plan.target == DPSGD.target
    assert dp.account(found.plan, delta=1e-5).upper <= 2.0
    assert len(found.tuning.trials) == 6
    assert found.tuning.kind is TuningKind.SYNTHETIC
    assert "lies at the end" not in str(found)  # of two clip norms, one always does
    found = tune_for_compute(
        lambda s: s.learning_rate, DPSGD, learning_rates=[4.0, 20.0, 100.0], data=DATA
    )
    assert "The best learning_rate lies at the end" in str(found)


def test_any_private_plan_will_do_where_its_clip_norm_stays() -> None:
    plan = replace(
        PLAN,
        mechanism=dp.AdaptiveClip(dp.Gaussian(1.0, 1.0), quantile=0.5, count_noise_std=20.0),
        leaves=None,
    )
    found = tune_for_compute(
        lambda settings: -settings.learning_rate, plan, learning_rates=[2.0, 1.0], data=DATA
    )
    assert (found.plan, found.learning_rate) == (plan, 1.0)
    with pytest.raises(dp.errors.ParameterError, match="single clip norm"):
        tune_for_compute(lambda _: 0.0, plan, learning_rates=[1.0], clip_norms=[1.0], data=DATA)


def test_clip_norms_are_those_of_gradients_and_metrics_keep_theirs() -> None:
    parts = {"grad/*": dp.Gaussian(1.0, 2.0), "metric/*": dp.Gaussian(1.0, 40.0)}
    plan = replace(DPSGD, mechanism=dp.Groups(parts), target=None)
    found = tune_for_compute(
        lambda s: -s.clip_norm, plan, learning_rates=[1.0], clip_norms=[0.5, 0.1], data=DATA
    )
    assert [query.sensitivity for query in found.plan.queries()] == [0.1, 1.0]
    assert found.plan.noise_multiplier == pytest.approx(plan.noise_multiplier)
