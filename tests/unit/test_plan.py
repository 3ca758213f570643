"""A plan says what will be charged, and cannot be changed."""

from dataclasses import FrozenInstanceError
from typing import Any

import pytest

import discreet as dp


def test_the_probability_can_be_given_by_the_batch() -> None:
    by_size = dp.Plan.dpsgd(records=60_000, expected_batch_size=600, steps=10, noise_multiplier=1.1)
    assert by_size == dp.Plan.dpsgd(sampling_probability=0.01, steps=10, noise_multiplier=1.1)


def test_charges_are_the_step_as_often_as_planned() -> None:
    plan = dp.Plan.dpsgd(sampling_probability=0.01, steps=10, noise_multiplier=1.1, clip_norm=0.5)
    (charge,) = plan.charges()
    assert (charge.step, charge.count, charge.unsettled) == (plan.step, 10, 0)
    assert plan.step == dp.Step(dp.Poisson(0.01), dp.GaussianSum("grad", 0.5, 0.55))


def test_executing_a_plan_charges_the_ledger_what_the_plan_says() -> None:
    plan = dp.Plan.dpsgd(sampling_probability=0.01, steps=30, noise_multiplier=1.1)
    ledger = dp.Ledger.in_memory()
    ledger.begin(plan.run_info())
    for _ in ledger.steps(plan.step, plan.steps):
        pass
    assert ledger.charges() == plan.charges()


@pytest.mark.parametrize(
    "arguments",
    [
        {"steps": 10, "noise_multiplier": 1.0},
        {"steps": 10, "noise_multiplier": 1.0, "records": 100},
        {"steps": 10, "noise_multiplier": 1.0, "expected_batch_size": 10},
        {"steps": 10, "noise_multiplier": 1.0, "sampling_probability": 0.1, "records": 100},
        {"steps": 10, "noise_multiplier": 1.0, "records": 100, "expected_batch_size": 101},
        {"steps": 0, "noise_multiplier": 1.0, "sampling_probability": 0.1},
        {"steps": 10, "noise_multiplier": 0.0, "sampling_probability": 0.1},
        {"steps": 10, "noise_multiplier": 1.0, "sampling_probability": 0.0},
        {"steps": 10, "noise_multiplier": 1.0, "sampling_probability": 0.1, "clip_norm": 0.0},
    ],
)
def test_p45_nonsense_is_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(dp.ParameterError):
        dp.Plan.dpsgd(**arguments)


def test_a_plan_cannot_be_changed() -> None:
    plan = dp.Plan.dpsgd(sampling_probability=0.01, steps=10, noise_multiplier=1.1)
    with pytest.raises(FrozenInstanceError):
        plan.steps = 1  # type: ignore[misc]
