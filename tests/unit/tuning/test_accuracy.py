"""Given accuracy and privacy: the most noise that is tolerated, and the batch that it takes."""

from dataclasses import replace

import pytest

import discreet as dp
from discreet.tuning import (
    Public,
    Settings,
    tune_for_accuracy,
)
from support.tunings import (
    answers,
    private,
    train,
)

DATA = Public("digits", "of other people")
DPSGD = dp.Plan.dpsgd(
    records=2_000, expected_batch_size=200, steps=10, epsilon=2.0, delta=1e-5, clip_norm=0.5
)
NOISES = (0.002, 0.004, 0.008)


def test_the_most_noise_that_is_tolerated_becomes_a_batch() -> None:
    def trial(settings: Settings) -> float:
        query = settings.plan.queries()[0]
        assert settings.plan.expected_batch_size == 200.0
        return 1.0 - 30.0 * query.noise_std / 200.0

    found = tune_for_accuracy(trial, DPSGD, average_noises=NOISES, accuracy=0.85, data=DATA)
    assert found.average_noise == 0.004
    assert found.plan is not None
    query = found.plan.queries()[0]
    assert query.noise_std / found.plan.expected_batch_size == pytest.approx(0.004)
    assert (query.sensitivity, found.plan.steps) == (0.5, DPSGD.steps)
    assert dp.account(found.plan, delta=1e-5).upper <= 2.0
    for words in ("Predicted, not measured", "assumes", "noise in the average gradient"):
        assert words in str(found)


def test_a_noise_beyond_one_that_failed_is_not_trusted() -> None:
    scores = {0.002: 0.9, 0.004: 0.7, 0.008: 0.9}
    found = tune_for_accuracy(
        lambda settings: scores[settings.values["average_noise"]],
        DPSGD,
        average_noises=NOISES,
        accuracy=0.85,
        data=DATA,
    )
    assert found.average_noise == 0.002


def test_where_nothing_reaches_the_accuracy_or_no_batch_epsilon_there_is_no_plan() -> None:
    found = tune_for_accuracy(lambda _: 0.5, DPSGD, average_noises=NOISES, accuracy=0.85, data=DATA)
    assert (found.plan, found.average_noise, found.tuning.chosen) == (None, None, None)
    assert "not even the least noise" in str(found)
    found = tune_for_accuracy(lambda _: 0.9, DPSGD, average_noises=[1e-5], accuracy=0.85, data=DATA)
    assert (found.plan, found.average_noise) == (None, 1e-5)
    assert "not even all records" in str(found)
    with pytest.raises(dp.errors.ParameterError, match="target"):
        tune_for_accuracy(
            lambda _: 0.9,
            replace(DPSGD, target=None),
            average_noises=NOISES,
            accuracy=0.85,
            data=DATA,
        )


def test_given_accuracy_the_first_that_reaches_it_ends_the_sweep() -> None:
    small = dp.Plan.dpsgd(
        records=2_000, expected_batch_size=200, steps=2, epsilon=2.0, delta=1e-5
    ).for_leaves({"grad/w": 2})
    data = private(dp.Filter(epsilon=50.0, delta=1e-5), noise_std=1.0)
    tried = []

    def trial(settings: Settings) -> object:
        train(settings, data.ledger)
        tried.append(settings.values["average_noise"])
        return answers(0.4 if settings.values["average_noise"] > 0.03 else 0.9)

    found = tune_for_accuracy(
        trial, small, average_noises=[0.01, 0.02, 0.04], accuracy=0.8, data=data
    )
    assert tried == [0.04, 0.02]  # the least noise, which costs most, is not tried
    assert found.average_noise == 0.02
    assert found.plan is not None
    assert found.plan.target == small.target
