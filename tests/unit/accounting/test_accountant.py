"""The public accountant: sources, refusals, what the guarantee says."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from discreet.accounting import account
from discreet.errors import AccountingError, ParameterError
from discreet.ledger.events import (
    Everything,
    ExponentialChoice,
    GaussianSum,
    Poisson,
    RandomizedResponse,
    Shuffled,
    Step,
)
from discreet.ledger.snapshot import RunRecord, Snapshot
from discreet.ledger.storage.rows import RunInfo
from discreet.units import Adjacency, Numerics, Parameters, Randomness, Unit

ADD = Adjacency.ADD_OR_REMOVE
STEP = Step(Poisson(0.01), [GaussianSum("grad", 1.0, 4.0)])
RUN = RunInfo(
    unit=Unit.USER,
    adjacency=ADD,
    groups=("grad",),
    numerics=Numerics.CERTIFIED,
    randomness=Randomness.SYSTEM,
    parameters=Parameters.FIXED_IN_ADVANCE,
)


def ledger_of(
    *runs: tuple[RunInfo, int], unsettled: int = 0, marks: tuple[str, ...] = ()
) -> Snapshot:
    """What a file of schema 1 holds: runs with so many steps charged, and no terms."""
    records = [
        RunRecord(info=info, charged=((STEP, count),), unsettled=((STEP, unsettled),))
        for info, count in runs
    ]
    return Snapshot(runs=tuple(records), marks=marks, schema=1)


def test_exactly_one_of_delta_and_epsilon() -> None:
    for both in ({}, {"delta": 1e-5, "epsilon": 1.0}):
        with pytest.raises(ParameterError, match="but not both"):
            account([(STEP, 10)], adjacency=ADD, **both)  # type: ignore[arg-type]


def test_a_ledger_states_its_own_terms() -> None:
    found = account(ledger_of((RUN, 6_000), (RUN, 4_000), unsettled=7), delta=1e-5)
    assert (found.unit, found.adjacency, found.numerics) == (Unit.USER, ADD, Numerics.CERTIFIED)
    assert found.lower <= 0.946866801 <= found.upper
    assert found.sampling == ("Poisson with probability 0.01",)
    assert any("not settled" in line for line in found.assumptions)
    assert any("cryptographically" in line for line in found.assumptions)
    assert any(
        "as every run declares" in line for line in found.assumptions
    )  # nothing better is known of such files


def test_t05_a_void_ledger_has_no_number() -> None:
    marked = ledger_of((RUN, 1), marks=("unsafe_seed",))
    keyed = ledger_of((RUN, 1), (replace(RUN, randomness=Randomness.UNSAFE_TEST_KEY), 1))
    for ledger, mark in ((marked, "unsafe_seed"), (keyed, "unsafe_test_key")):
        levels: list[dict[str, Any]] = [
            {"delta": 1e-5},
            {"epsilon": 1.0},
            {"delta": 1e-5, "accountant": "rdp"},
        ]
        for level in levels:
            found = account(ledger, **level)
            assert (found.lower, found.upper, found.estimate, found.delta_lower) == (
                0.0,
                math.inf,
                None,
                None,
            )
            assert found.voided_by == (mark,)
            assert str(found) == f"NO GUARANTEE: voided by {mark}."


def test_several_runs_compose() -> None:
    one = account(ledger_of((RUN, 100)), delta=1e-5)
    two = account(ledger_of((RUN, 100), (replace(RUN, label="again"), 100)), delta=1e-5)
    same = account(ledger_of((RUN, 200)), delta=1e-5)
    assert two.upper == same.upper > one.upper


def test_p39_parameters_chosen_from_outputs_are_refused() -> None:
    run = replace(RUN, parameters=Parameters.CHOSEN_FROM_OUTPUTS)
    with pytest.raises(AccountingError, match="a budget that is named afterwards proves nothing"):
        account(ledger_of((run, 1)), delta=1e-5)
    with pytest.raises(AccountingError, match="may have been chosen by looking"):
        account([ledger_of((RUN, 1)), ledger_of((run, 1))], delta=1e-5)


def test_unknown_accountant_and_bad_levels() -> None:
    with pytest.raises(ParameterError, match="'tight' or 'rdp'"):
        account([(STEP, 1)], delta=1e-5, adjacency=ADD, accountant="clt")  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="at least 0"):
        account([(STEP, 1)], epsilon=-1.0, adjacency=ADD)
    with pytest.raises(ParameterError):
        account([(STEP, 1)], delta=0.0, adjacency=ADD)


def test_renyi_states_an_upper_bound_only() -> None:
    tight = account([(STEP, 10_000)], delta=1e-5, adjacency=ADD)
    renyi = account([(STEP, 10_000)], delta=1e-5, adjacency=ADD, accountant="rdp")
    assert renyi.lower == 0.0
    assert renyi.estimate is None
    assert tight.upper <= renyi.upper


def test_delta_at_epsilon_and_back() -> None:
    found = account([(STEP, 10_000)], epsilon=0.946866801, adjacency=ADD)
    assert found.delta_lower is not None
    assert found.delta_lower <= 1e-5 <= found.delta <= 1.01e-5
    assert found.upper == 0.946866801


def test_p33_one_hundred_choices_cost_more_than_one() -> None:
    step = Step(Everything(), [ExponentialChoice("pick", 1.0, 4.0)])
    one = account([(step, 1)], delta=1e-6, adjacency=ADD)
    many = account([(step, 100)], delta=1e-6, adjacency=ADD)
    assert one.upper == pytest.approx(0.5, abs=0.01)
    assert many.upper > 5.0
    assert many.lower == 0.0  # the pair only dominates; no lower bound is claimed


def test_p35_full_batch_replace_one_is_twice_the_sensitivity_in_both_accountants() -> None:
    step = Step(Everything(), [GaussianSum("grad", 1.0, 1.0)])
    found = account([(step, 1)], delta=1e-6, adjacency=Adjacency.REPLACE_ONE)
    assert found.upper == pytest.approx(10.997151, abs=1e-6)
    renyi = account([(step, 1)], delta=1e-6, adjacency=Adjacency.REPLACE_ONE, accountant="rdp")
    assert renyi.upper > found.upper


def test_p26_shuffled_is_not_amplified() -> None:
    step = Step(Shuffled(200), [GaussianSum("grad", 1.0, 1.0)])
    found = account([(step, 1)], delta=1e-6, adjacency=Adjacency.ZERO_OUT)
    assert found.upper == pytest.approx(4.886554, rel=2e-3)
    assert "no amplification" in found.sampling[0]


def test_randomized_response_once_is_pure() -> None:
    step = Step(Everything(), [RandomizedResponse("vote", 2, 0.75)])
    found = account([(step, 1)], delta=1e-9, adjacency=Adjacency.REPLACE_ONE)
    assert found.upper == pytest.approx(1.0986122887, rel=1e-6)


def test_p37_no_release_costs_nothing_and_tiny_costs_are_not_zero() -> None:
    assert account([], delta=1e-6, adjacency=ADD).upper == 0.0
    step = Step(Poisson(1e-5), [GaussianSum("grad", 1.0, 1.0)])
    assert account([(step, 10_000)], delta=1e-12, adjacency=ADD).lower > 0.0


def test_huge_epsilon_does_not_crash() -> None:
    for sampling, noise, count in (
        (Poisson(0.5), 0.3, 10**6),
        (Poisson(0.5), 0.01, 10),
        (Everything(), 0.001, 1000),
    ):
        step = Step(sampling, [GaussianSum("grad", 1.0, noise)])
        found = account([(step, count)], delta=1e-5, adjacency=ADD)
        assert 900.0 < found.upper < float("inf")
