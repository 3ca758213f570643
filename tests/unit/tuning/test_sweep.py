"""Trials on private data: each is charged to the one ledger, within its terms,
or nothing is said.
"""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

import discreet as dp
from discreet.tuning import (
    Settings,
    Synthetic,
    TuningKind,
    planned_trials,
    tune_for_accuracy,
    tune_for_compute,
)
from support.tunings import (
    BUDGET,
    PLAN,
    RATES,
    RECORDS,
    answers,
    charged,
    honest,
    private,
    scores,
    train,
)

SCORE = dp.ledger.Step(dp.Everything(), dp.ledger.GaussianSum("score", 1.0, 8.0))


def room_for(trials: int) -> dp.Filter:
    """A filter that admits so many trials and scores, and not one more: nothing is sampled, so it
    loses nothing.
    """
    spent = [(PLAN.step, trials * PLAN.steps), (SCORE, trials)]
    upper = dp.account(spent, delta=1e-5, adjacency=PLAN.adjacency).upper
    return dp.Filter(epsilon=upper * 1.001, delta=1e-5)


def test_every_trial_and_every_score_is_charged_to_the_ledger() -> None:
    data = private()
    found = tune_for_compute(honest(data), PLAN, learning_rates=RATES, data=data)
    assert len(found.tuning.trials) == len(RATES)
    assert scores(data.ledger) == len(RATES)
    assert set(found.tuning.runs) == set(charged(data.ledger))
    assert sum(charged(data.ledger).values()) == len(RATES) * (PLAN.steps + 1)
    for charge in data.ledger.charges():
        assert charge.run.parameters is dp.units.Parameters.CHOSEN_FROM_OUTPUTS
        if charge.step.groups == (
            "score",
        ):  # one record changes the sum by 1 at most, and the noise is what was asked for
            assert charge.step == SCORE
    assert (found.tuning.kind, found.tuning.ledger_head) == (TuningKind.PRIVATE, data.ledger.head())
    assert found.tuning.score_noise == 8.0 / RECORDS


def test_p39_what_a_trial_declares_of_itself_changes_nothing_about_the_claim() -> None:
    data = private()

    def trial(settings: Settings) -> object:
        train(
            settings, data.ledger, dp.units.Parameters.FIXED_IN_ADVANCE
        )  # declared as if nothing depended on anything
        return answers(0.5)

    tune_for_compute(trial, PLAN, learning_rates=RATES, data=data)
    spent = [(PLAN.step, len(RATES) * PLAN.steps), (SCORE, len(RATES))]
    assert (
        dp.account(spent, delta=BUDGET.delta, adjacency=PLAN.adjacency).upper < 0.9 * BUDGET.epsilon
    )
    assert (
        dp.account(data.ledger).upper == BUDGET.epsilon
    )  # all of the budget: what was spent depends on outputs
    with pytest.raises(dp.errors.AccountingError):
        dp.account(data.ledger, delta=2 * BUDGET.delta)


def test_p39_a_trial_that_charged_nothing_is_refused_and_no_score_released() -> None:
    data = private()
    with pytest.raises(dp.errors.LedgerMisuse, match="charged nothing"):
        tune_for_compute(lambda _: answers(0.5), PLAN, learning_rates=RATES, data=data)
    assert charged(data.ledger) == {}


def test_p39_a_trial_that_charges_another_ledger_is_refused() -> None:
    data, other = private(), dp.Ledger.in_memory(budget=BUDGET)

    def trial(settings: Settings) -> object:
        train(settings, other)
        return answers(0.5)

    with pytest.raises(dp.errors.LedgerMisuse, match="charged nothing"):
        tune_for_compute(trial, PLAN, learning_rates=RATES, data=data)
    assert scores(data.ledger) == 0


def test_another_run_on_the_ledger_meanwhile_is_not_taken_for_the_trial() -> None:
    data = private()

    def trial(settings: Settings) -> object:
        train(replace(settings, label="somebody else"), data.ledger)
        return answers(0.5)

    with pytest.raises(dp.errors.LedgerMisuse, match="charged nothing"):
        tune_for_compute(trial, PLAN, learning_rates=RATES, data=data)
    assert scores(data.ledger) == 0


def test_labels_of_two_tunings_on_one_ledger_differ() -> None:
    data = private(dp.Filter(epsilon=9.0, delta=1e-5))
    first = tune_for_compute(honest(data), PLAN, learning_rates=RATES, data=data)
    second = tune_for_compute(honest(data), PLAN, learning_rates=RATES, data=data)
    assert not set(first.tuning.runs) & set(second.tuning.runs)


def test_the_sweep_ends_where_the_budget_does_and_says_what_it_has() -> None:
    data = private(room_for(2))
    found = tune_for_compute(honest(data), PLAN, learning_rates=[10.0, 1.0, 0.1], data=data)
    assert [trial.values["learning_rate"] for trial in found.tuning.trials] == [
        10.0,
        1.0,
    ]  # in the order given
    assert (found.learning_rate, scores(data.ledger)) == (1.0, 2)
    assert "does not fit the budget" in found.stopped
    assert "Stopped early" in str(found)
    assert charged(data.ledger) == {
        label: PLAN.steps if "score" not in label else 1 for label in found.tuning.runs
    }


def test_without_room_for_one_trial_and_its_score_nothing_is_tried() -> None:
    spent = dp.account([(PLAN.step, PLAN.steps)], delta=1e-5, adjacency=PLAN.adjacency).upper
    data = private(
        dp.Filter(epsilon=spent * 1.001, delta=1e-5)
    )  # the training fits, its score does not

    def trial(_: Settings) -> object:
        raise AssertionError("must not be tried")

    with pytest.raises(dp.errors.BudgetExceeded, match="one trial and its score"):
        tune_for_compute(trial, PLAN, learning_rates=RATES, data=data)
    assert charged(data.ledger) == {}


def test_a_trial_that_spends_more_than_its_plan_leaves_no_score_but_its_charge() -> None:
    data = private(room_for(2))

    def trial(settings: Settings) -> object:
        train(settings, data.ledger)
        if settings.learning_rate > 0.5:
            train(settings, data.ledger)  # twice: now its score does not fit
        return answers(0.5)

    found = tune_for_compute(trial, PLAN, learning_rates=RATES, data=data)
    first, second = found.tuning.trials
    assert first.score is not None
    assert second.score is None
    assert len(second.runs) == 1
    assert charged(data.ledger)[second.runs[0]] in (PLAN.steps, 2 * PLAN.steps)
    assert (scores(data.ledger), found.learning_rate) == (1, 0.1)


def test_p38_a_handle_that_was_told_of_no_budget_is_held_to_it_too(tmp_path: Path) -> None:
    path = tmp_path / "a.ledger"
    with dp.Ledger.open(path, budget=room_for(1)) as ledger, dp.Ledger.open(path) as another:

        def trial(settings: Settings) -> object:
            for _ in range(5):
                train(settings, another)
            return answers(0.5)

        with pytest.raises(dp.errors.BudgetExceeded, match="the budget refused"):
            tune_for_compute(trial, PLAN, learning_rates=RATES, data=private(ledger=ledger))
        spent = [(charge.step, charge.count) for charge in ledger.charges()]
        assert spent == 4 * [
            (PLAN.step, PLAN.steps)
        ]  # as many as fit in the place of one and its score; the fifth does not
        assert dp.account(spent, delta=1e-5, adjacency=PLAN.adjacency).upper <= room_for(1).epsilon


def test_a_marked_ledger_is_refused() -> None:
    data = private()
    data.ledger.begin(PLAN.run_info()).mark("unsafe_example")
    with pytest.raises(dp.errors.LedgerMisuse, match="unsafe_example"):
        tune_for_compute(honest(data), PLAN, learning_rates=RATES, data=data)


def test_a_trial_that_marks_the_ledger_gets_no_score() -> None:
    data = private()

    def trial(settings: Settings) -> object:
        train(settings, data.ledger)
        data.ledger.begin(PLAN.run_info()).mark("unsafe_example")
        return answers(0.5)

    with pytest.raises(dp.errors.LedgerMisuse, match="unsafe_example"):
        tune_for_compute(trial, PLAN, learning_rates=RATES, data=data)
    assert scores(data.ledger) == 0


def test_sampled_training_and_scores_share_one_filter() -> None:
    plan = dp.Plan.dpsgd(
        records=50, expected_batch_size=5, steps=3, noise_multiplier=4.0
    ).for_leaves({"grad/w": 2})
    data = private()
    found = tune_for_compute(honest(data), plan, learning_rates=RATES, data=data)
    assert len(found.tuning.trials) == 3
    assert "Rényi filter" in dp.account(data.ledger).accountant


def test_a_model_trained_with_torch_is_tuned_alike() -> None:
    import torch

    from discreet.training import PrivateRun

    plan = dp.Plan.dpsgd(records=50, expected_batch_size=10, steps=2, noise_multiplier=6.0)
    data = private()
    train_set = torch.utils.data.TensorDataset(torch.ones(50, 3), torch.zeros(50, dtype=torch.long))
    inputs = torch.ones(RECORDS, 3)

    def trial(settings: Settings) -> object:
        model = torch.nn.Linear(3, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=settings.learning_rate)
        run = PrivateRun(
            model,
            settings.plan,
            ledger=data.ledger,
            label=settings.label,
            parameters=data.parameters,
        )
        for batch in run.batches(train_set):
            run.backward(
                lambda m, b: torch.nn.functional.cross_entropy(m(b[0]), b[1], reduction="none"),
                batch,
            )
            optimizer.step()
        return (model(inputs).argmax(1) == 0).numpy()

    found = tune_for_compute(trial, plan, learning_rates=[0.1, 1.0], data=data)
    assert (len(found.tuning.trials), scores(data.ledger)) == (2, 2)
    assert set(found.tuning.runs) == set(charged(data.ledger))


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
