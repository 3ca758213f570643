"""Private tuning on each kind of terms: a filter, an odometer, a list of all trials and scores that
was fixed in advance.
"""

from collections.abc import Iterable

import pytest

import discreet as dp
from discreet.tuning import Settings, Synthetic, planned_trials, tune_for_accuracy, tune_for_compute
from support.tunings import PLAN, RATES, RECORDS, answers, charged, honest, private, scores, train

SAMPLED = dp.Plan.dpsgd(
    records=50, expected_batch_size=5, steps=30, noise_multiplier=2.0
).for_leaves({"grad/w": 2})
DELTA = 1e-5


def listed(plans: Iterable[dp.Plan], *, epsilon: float | None = None) -> dp.Budget:
    """All trials and their scores, and nothing else."""
    steps = planned_trials(plans, records=RECORDS, noise_std=8.0)
    return dp.Budget(epsilon=epsilon, delta=None if epsilon is None else DELTA, plans=steps)


def tight(plan: dp.Plan, trials: int) -> float:
    """What so many trials and their scores cost together, if they are fixed in advance."""
    return dp.account(
        planned_trials([plan] * trials, records=RECORDS, noise_std=8.0), delta=DELTA
    ).upper


# --- a filter ---


def test_a_filter_states_its_whole_budget_whatever_was_tried() -> None:
    data = private(dp.Filter(epsilon=3.0, delta=DELTA))
    tune_for_compute(honest(data), SAMPLED, learning_rates=RATES[:1], data=data)
    first = dp.account(data.ledger)
    tune_for_compute(honest(data), SAMPLED, learning_rates=RATES, data=data)
    assert (first.upper, first.delta) == (3.0, DELTA)
    assert dp.account(data.ledger).upper == 3.0


def test_a_sampled_plan_that_meets_the_budget_tightly_does_not_fit_a_filter_and_is_not_tried() -> (
    None
):
    data = private(dp.Filter(epsilon=tight(SAMPLED, 1), delta=DELTA))
    with pytest.raises(dp.errors.BudgetExceeded, match="one trial and its score"):
        tune_for_compute(honest(data), SAMPLED, learning_rates=RATES, data=data)
    assert charged(data.ledger) == {}


# --- an odometer ---


def test_an_odometer_states_what_trials_cost_as_they_are_made() -> None:
    data = private(dp.Odometer(delta=DELTA))
    readings = []
    for rate in RATES:
        tune_for_compute(honest(data), SAMPLED, learning_rates=[rate], data=data)
        readings.append(dp.account(data.ledger))
    epsilons = [reading.upper for reading in readings]
    assert epsilons == sorted(set(epsilons))  # every trial costs something
    for trials, reading in enumerate(readings, 1):
        assert reading.if_fixed is not None
        assert reading.if_fixed == pytest.approx(tight(SAMPLED, trials), rel=2e-3)
        assert reading.upper > reading.if_fixed
        assert "whatever decided" in reading.basis


def test_an_odometer_with_a_limit_ends_the_sweep_there() -> None:
    free = private(dp.Odometer(delta=DELTA))
    tune_for_compute(honest(free), SAMPLED, learning_rates=RATES[:2], data=free)
    limit = dp.account(free.ledger).upper

    data = private(dp.Odometer(delta=DELTA, epsilon=limit))
    found = tune_for_compute(honest(data), SAMPLED, learning_rates=RATES, data=data)
    assert len(found.tuning.trials) == 2
    assert "does not fit the budget" in found.stopped
    assert dp.account(data.ledger).upper <= limit


# --- a list ---


def test_trials_that_were_fixed_in_advance_are_accounted_for_tightly() -> None:
    data = private(listed([SAMPLED] * 3))
    found = tune_for_compute(honest(data), SAMPLED, learning_rates=RATES, data=data)
    assert (len(found.tuning.trials), scores(data.ledger), found.stopped) == (3, 3, "")
    claim = dp.account(data.ledger, delta=DELTA)
    assert claim.upper == tight(SAMPLED, 3)
    assert {run.info.parameters for run in data.ledger.runs()} == {
        dp.units.Parameters.FIXED_IN_ADVANCE
    }
    filtered = dp.Filter(
        epsilon=claim.upper, delta=DELTA
    )  # the same trials, chosen by looking, do not fit as much
    short = private(filtered)
    assert tune_for_compute(honest(short), SAMPLED, learning_rates=RATES, data=short).stopped


def test_a_trial_that_comes_to_mind_later_is_refused_for_good() -> None:
    data = private(listed([PLAN] * 3))
    tune_for_compute(honest(data), PLAN, learning_rates=RATES, data=data)
    before = charged(data.ledger)
    with pytest.raises(
        dp.errors.BudgetExceeded,
        match="Only trials that were fixed before the first release fit a list",
    ):
        tune_for_compute(honest(data), PLAN, learning_rates=[3.0], data=data)
    assert charged(data.ledger) == before


def test_another_plan_than_those_listed_is_refused() -> None:
    data = private(listed([PLAN] * 3))
    with pytest.raises(dp.errors.BudgetExceeded, match="another kind"):
        tune_for_compute(honest(data), SAMPLED, learning_rates=RATES, data=data)
    assert charged(data.ledger) == {}


def test_every_listed_trial_counts_though_a_good_score_ends_the_sweep() -> None:
    small = dp.Plan.dpsgd(
        records=2_000, expected_batch_size=200, steps=2, epsilon=2.0, delta=DELTA
    ).for_leaves({"grad/w": 2})
    noises = [0.04, 0.02, 0.01]
    plans: list[dp.Plan] = []

    def note(settings: Settings) -> float:
        plans.append(settings.plan)
        return 0.0

    # What each trial takes is public: the plans of the same sweep on made-up data.
    tune_for_accuracy(note, small, average_noises=noises, accuracy=0.8, data=Synthetic("nothing"))
    assert len(plans) == len(noises)
    data = private(listed(plans))

    def trial(settings: Settings) -> object:
        train(settings, data.ledger, data.parameters)
        return answers(0.9)

    found = tune_for_accuracy(trial, small, average_noises=noises, accuracy=0.8, data=data)
    assert len(found.tuning.trials) == 1
    claim = dp.account(data.ledger, delta=DELTA)
    assert (
        claim.upper
        == dp.account(planned_trials(plans, records=RECORDS, noise_std=8.0), delta=DELTA).upper
    )
    assert "all count" in claim.basis


def test_a_list_that_exceeds_its_budget_is_refused_before_any_trial() -> None:
    data = private(listed([SAMPLED] * 3, epsilon=0.9 * tight(SAMPLED, 3)))
    with pytest.raises(dp.errors.BudgetExceeded):
        tune_for_compute(honest(data), SAMPLED, learning_rates=RATES, data=data)
    assert charged(data.ledger) == {}


def test_a_trial_chosen_from_outputs_has_no_place_on_a_list() -> None:
    data = private(listed([PLAN]))

    def trial(settings: Settings) -> object:
        train(settings, data.ledger, dp.units.Parameters.CHOSEN_FROM_OUTPUTS)
        return answers(0.5)

    with pytest.raises(dp.errors.LedgerMisuse, match="chosen from outputs"):
        tune_for_compute(trial, PLAN, learning_rates=[1.0], data=data)
    assert charged(data.ledger) == {}


@pytest.mark.parametrize(
    ("plans", "records", "noise_std", "name"),
    [
        ([], 5, 1.0, "plans"),
        ([5], 5, 1.0, "plan"),
        ([PLAN], 0, 1.0, "records"),
        ([PLAN], 5, 0.0, "noise_std"),
    ],
    ids=["no trial", "no plan", "no records", "no noise"],
)
def test_a_list_of_trials_is_checked(
    plans: list[dp.Plan], records: int, noise_std: float, name: str
) -> None:
    with pytest.raises(dp.errors.ParameterError, match=name):
        planned_trials(plans, records=records, noise_std=noise_std)
