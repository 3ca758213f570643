"""The score of a private trial: one bounded value for each record, noised and charged."""

import numpy as np
import pytest

import discreet as dp
from discreet.tuning import Settings, tune_for_compute
from discreet.tuning.score import _rows
from support.tunings import PLAN, RATES, RECORDS, RIGHT, honest, private, scores, train


def test_scores_are_noised_and_near_the_truth() -> None:
    data = private()
    found = tune_for_compute(honest(data), PLAN, learning_rates=RATES, data=data)
    for trial in found.tuning.trials:
        right = RIGHT[trial.values["learning_rate"]]
        assert trial.score is not None
        assert (
            0.0 < abs(trial.score - right) < 9 * data.score_noise
        )  # exactly right: once in 10^16; nine deviations: 10^-18
    assert found.learning_rate == 1.0  # 0.25 ahead, twelve and a half deviations


@pytest.mark.parametrize(
    "returned",
    [0.123456, np.float64(0.123456), [0.123456] * RECORDS,
     np.full(RECORDS - 1, 0.123456), np.full((RECORDS, 1), 0.123456),
     np.array(["0.123456"] * RECORDS), None],
    ids=["a raw score", "a NumPy number", "a list", "fewer", "a column", "texts", "nothing"],
)  # fmt: skip
def test_p42_what_is_not_one_value_per_record_is_refused_unseen(returned: object) -> None:
    data = private()

    def trial(settings: Settings) -> object:
        train(settings, data.ledger)
        return returned

    with pytest.raises(dp.errors.ParameterError, match="one value in") as wrong:
        tune_for_compute(trial, PLAN, learning_rates=RATES, data=data)
    assert "123456" not in str(wrong.value)
    assert str(RECORDS - 1) not in str(
        wrong.value
    )  # how many came back: of a selection, that would be the score itself
    assert scores(data.ledger) == 0


def test_no_value_of_a_record_counts_more_than_one_and_none_raises() -> None:
    data = private(noise_std=0.001, budget=dp.Filter(epsilon=1e9, delta=1e-5))
    values = np.zeros(RECORDS)
    values[:5] = [np.nan, np.inf, -np.inf, 1e300, -7.0]  # two count as right, and as one each

    def trial(settings: Settings) -> object:
        train(settings, data.ledger)
        return values

    (found,) = tune_for_compute(trial, PLAN, learning_rates=[1.0], data=data).tuning.trials
    assert found.score == pytest.approx(2 / RECORDS, abs=1e-4)


def test_p42_no_value_of_a_record_warns_or_raises_whatever_the_caller_has_set() -> None:
    values = np.zeros(RECORDS, np.longdouble)
    values[:3] = np.array(["1e4000", "1e-4000", "nan"], np.longdouble)
    with np.errstate(all="raise"):
        assert _rows(values, RECORDS)[:3, 0].tolist() == [1.0, 0.0, 0.0]
