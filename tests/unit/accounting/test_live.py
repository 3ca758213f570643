"""A running upper bound: never below the truth, hardly above it."""

from __future__ import annotations

import pytest

import discreet as dp
from discreet.accounting import LiveEpsilon, account
from discreet.ledger.events import GaussianSum, Poisson, Step
from discreet.units import Adjacency

ADD = Adjacency.ADD_OR_REMOVE
STEP = Step(Poisson(0.01), [GaussianSum("grad", 1.0, 4.0)])


def test_live_epsilon_never_reports_less_and_hardly_more() -> None:
    meter = LiveEpsilon(delta=1e-5, adjacency=ADD)
    for total in (1, 2, 3, 50, 51, 52, 100, 400, 401, 1_000):
        meter.add(STEP, total - sum(meter.counts.values()))
        exact = account([(STEP, total)], delta=1e-5, adjacency=ADD)
        assert exact.lower <= meter.epsilon <= exact.upper * 1.03 + 1e-12
    assert meter.exact() == account([(STEP, 1_000)], delta=1e-5, adjacency=ADD).upper


def test_a_step_refused_by_the_meter_was_not_added() -> None:
    meter = LiveEpsilon(delta=1e-6, adjacency=dp.Adjacency.ADD_OR_REMOVE)
    with pytest.raises(dp.errors.AccountingError):
        meter.add(dp.ledger.Step(dp.ledger.Shuffled(10), dp.ledger.GaussianSum("g", 1.0, 1.0)), 10)
    assert meter.counts == {}
    good = dp.ledger.Step(dp.Poisson(0.01), dp.ledger.GaussianSum("g", 1.0, 1.0))
    meter.add(good)
    assert meter.epsilon > 0.0
    with pytest.raises(dp.errors.ParameterError, match="adjacency"):
        LiveEpsilon(delta=1e-6, adjacency="add-or-remove")  # type: ignore[arg-type]


def test_steps_of_before_count_from_the_beginning_and_the_same_step_adds_up() -> None:
    meter = LiveEpsilon(delta=1e-5, adjacency=ADD, before=[(STEP, 30), (STEP, 70)])
    assert meter.counts == {STEP: 100}
    assert meter.epsilon >= account([(STEP, 100)], delta=1e-5, adjacency=ADD).lower


def test_within_the_look_ahead_nothing_is_computed_again() -> None:
    meter = LiveEpsilon(delta=1e-5, adjacency=ADD, look_ahead=0.5)
    meter.add(STEP, 100)
    before = meter.epsilon
    meter.add(STEP, 50)
    assert meter.epsilon == before
    meter.add(STEP)
    assert meter.epsilon > before


@pytest.mark.parametrize("change", [{"delta": 0.0}, {"look_ahead": 1.0}, {"tolerance": 0.0}])
def test_numbers_out_of_range_are_refused(change: dict[str, float]) -> None:
    arguments = {"delta": 1e-5} | change
    with pytest.raises(dp.errors.ParameterError, match=next(iter(change))):
        LiveEpsilon(adjacency=ADD, **arguments)  # type: ignore[arg-type]
