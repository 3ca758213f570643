"""Four numbers, of which one is left out: found on the safe side, or refused by name."""

from itertools import product
from typing import Any

import numpy as np
import pytest

import discreet as dp
from discreet.plan import Target, default_delta
from discreet.plan.calibrated import epoch_steps, search

GIVEN: dict[str, Any] = {"sampling_probability": 0.01, "steps": 10, "noise_multiplier": 1.1}
NAMED = [
    ("records", 0), ("records", 1.5), ("records", "many"), ("records", True), ("records", 2**63),
    ("expected_batch_size", 0), ("expected_batch_size", -1.0), ("expected_batch_size", 1001),
    ("expected_batch_size", float("nan")),
    ("epochs", 0), ("epochs", -2), ("epochs", float("inf")), ("epochs", "1"), ("epochs", 1e300),
    ("noise_multiplier", 0.0), ("noise_multiplier", -1.0),
    ("noise_multiplier", None), ("noise_multiplier", "1"),
    ("clip_norm", 0.0), ("clip_norm", None), ("clip_norm", float("inf")),
    ("adjacency", "add-or-remove"), ("unit", "example"), ("numerics", "exact"),
]  # fmt: skip
CHOICES = {
    "records": 500,
    "expected_batch_size": 25,
    "sampling_probability": 0.05,
    "steps": 20,
    "epochs": 1.0,
    "noise_multiplier": 1.2,
    "epsilon": 1.5,
    "delta": 1e-4,
}


def sensible(given: set[str]) -> bool:
    """The rule, said once more in other words."""
    if {"steps", "epochs"} <= given or {"sampling_probability", "expected_batch_size"} <= given:
        return False
    if "expected_batch_size" in given and "records" not in given:
        return False
    if ("delta" in given and "epsilon" not in given) or (
        "epsilon" in given and not given & {"delta", "records"}
    ):
        return False
    four = [
        {"sampling_probability", "expected_batch_size"},
        {"steps", "epochs"},
        {"noise_multiplier"},
        {"epsilon"},
    ]
    if sum(not given & one for one in four) != 1:
        return False
    return bool(given & four[0]) or "steps" in given or "records" in given


def test_the_probability_can_be_given_by_the_batch() -> None:
    by_size = dp.Plan.dpsgd(records=60_000, expected_batch_size=600, steps=10, noise_multiplier=1.1)
    assert by_size.charges() == dp.Plan.dpsgd(**GIVEN).charges()
    assert by_size == dp.Plan.dpsgd(records=60_000, **GIVEN)
    assert by_size.expected_batch_size == 600.0


@pytest.mark.parametrize(("name", "value"), NAMED)
def test_p45_bad_arguments_of_dpsgd_are_named(name: str, value: object) -> None:
    good: dict[str, Any] = {
        "records": 1_000,
        "expected_batch_size": 10,
        "epochs": 2,
        "noise_multiplier": 1.0,
    }
    with pytest.raises(dp.errors.ParameterError) as refused:
        dp.Plan.dpsgd(**good | {name: value})
    assert refused.value.name == name


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epsilon", 0),
        ("epsilon", -1.0),
        ("epsilon", "3"),
        ("delta", 0.0),
        ("delta", 1.0),
        ("delta", -1e-5),
        ("steps", 0),
        ("steps", 1.5),
    ]
    + [("sampling_probability", bad) for bad in (0.0, 1.1, -0.1, "half")],
)
def test_p45_bad_targets_are_named(name: str, value: object) -> None:
    good: dict[str, Any] = {"sampling_probability": 0.1, "steps": 5, "epsilon": 1.0, "delta": 1e-5}
    with pytest.raises(dp.errors.ParameterError) as refused:
        dp.Plan.dpsgd(**good | {name: value})
    assert refused.value.name == name


def test_p45_every_combination_of_arguments_is_a_plan_or_refused() -> None:
    made = 0
    for pattern in product([False, True], repeat=len(CHOICES)):
        arguments: dict[str, Any] = {
            name: value for (name, value), on in zip(CHOICES.items(), pattern, strict=True) if on
        }
        if not sensible(set(arguments)):
            with pytest.raises(dp.errors.ParameterError):
                dp.Plan.dpsgd(**arguments)
            continue
        made += 1
        found = dp.Plan.dpsgd(**arguments)
        if "epsilon" in arguments:
            target = found.target or Target(1.0, 0.5)
            assert target == Target(1.5, arguments.get("delta", default_delta(500)))
            assert (
                1.5 * 0.9 <= dp.account(found, delta=target.delta).upper <= 1.5
            )  # whole numbers may stay below
        else:
            assert found.target is None
        for name in ("steps", "expected_batch_size"):
            if name in arguments:
                assert getattr(found, name) == arguments[name]
    assert made == 6 + 10 + 5 + 5  # without epsilon, noise, duration, batch; counted by hand


@pytest.mark.parametrize("adjacency", dp.Adjacency)
def test_p38_the_certified_epsilon_is_at_most_the_target_and_near_it(
    adjacency: dp.Adjacency,
) -> None:
    size: dict[str, Any] = {
        "records": 60_000,
        "epsilon": 3.0,
        "delta": 1e-6,
        "adjacency": adjacency,
        "clip_norm": 0.3,
    }
    for arguments in (
        {"expected_batch_size": 512, "epochs": 20},
        {"expected_batch_size": 512, "noise_multiplier": 2.5},
        {"epochs": 20, "noise_multiplier": 2.5},
        {"steps": 2_000, "noise_multiplier": 2.5},
    ):
        made = dp.Plan.dpsgd(**size, **arguments)
        assert 0.99 * 3.0 <= dp.account(made, delta=1e-6).upper <= 3.0
        assert made.adjacency is adjacency


def test_p38_one_step_or_one_record_more_would_exceed_the_target() -> None:
    size: dict[str, Any] = {"records": 2_000, "noise_multiplier": 1.5}
    longest = dp.Plan.dpsgd(**size, expected_batch_size=50, epsilon=1.0, delta=1e-5).steps
    largest = dp.Plan.dpsgd(**size, epochs=4, epsilon=1.0, delta=1e-5)
    longer = dp.Plan.dpsgd(**size, expected_batch_size=50, steps=round(longest * 1.01))
    larger = dp.Plan.dpsgd(
        **size, epochs=4, expected_batch_size=round(largest.expected_batch_size) + 1
    )
    for beyond in (longer, larger):
        assert dp.account(beyond, delta=1e-5).upper > 1.0 * (1 - 1e-3)
    assert largest.steps == epoch_steps(4, round(largest.expected_batch_size), 2_000)


def test_an_infeasible_target_names_the_floor() -> None:
    with pytest.raises(dp.errors.AccountingError, match="floor"):
        dp.Plan.dpsgd(records=100, epochs=5, noise_multiplier=0.1, epsilon=0.01, delta=1e-9)


def test_a_search_on_a_cost_that_is_not_monotone_still_meets_the_target() -> None:
    costs = dict(enumerate([0.2, 0.9, 1.4, 0.3, 2.0, 0.8, 3.0, 0.1], start=1))

    def cost(size: int) -> dp.Guarantee:
        step = dp.ledger.Step(dp.Everything(), dp.ledger.LaplaceSum("l", 1.0, 1.0 / costs[size]))
        return dp.account([(step, 1)], delta=1e-12, adjacency=dp.Adjacency.ADD_OR_REMOVE)

    for target in (0.15, 0.5, 1.0, 2.5):
        for rising in (True, False):
            try:
                found = search(cost, 8, Target(target, 1e-12), rising=rising)
            except dp.errors.AccountingError:
                assert costs[1 if rising else 8] > target
            else:
                assert costs[found] <= target


@pytest.mark.parametrize(
    ("epochs", "batch", "records", "steps"),
    [
        (20, 512, 60_000, 2344),
        (1, 10, 1_000, 100),
        (0.1, 10, 1_000, 10),
        (0.3, 1, 10, 3),
        (1, 1 / 3, 1, 3),
        (1, 3, 10, 4),
        (1e-9, 5, 10, 1),
    ],
)
def test_p32_epochs_become_steps_by_one_stated_rule(
    epochs: float, batch: float, records: int, steps: int
) -> None:
    assert epoch_steps(epochs, batch, records) == steps


@pytest.mark.parametrize("probability", [1 / n for n in range(1, 200)])
def test_p32_one_epoch_at_one_in_n_is_n_steps(probability: float) -> None:
    made = dp.Plan.dpsgd(sampling_probability=probability, epochs=1, noise_multiplier=1.0)
    assert made.steps == round(1 / probability)


@pytest.mark.parametrize(
    "records", [1, 2, 9, 10, 11, 99, 100, 101, 60_000, 10**6, 10**6 + 1, 2**63 - 1]
)
def test_the_default_delta_is_a_power_of_ten_below_one_in_ten_records(records: int) -> None:
    delta = default_delta(records)
    assert delta * 10 * records <= 1.0 + 1e-12 < 100 * delta * 10 * records
    assert delta < 1 / records
    assert round(np.log10(delta), 9) == round(np.log10(delta))
