"""A schedule accounts for a run, and refuses everything that needs the number of records."""

import pytest

import discreet as dp
from discreet.errors import ParameterError
from discreet.ledger.events import (
    BallsInBins,
    Everything,
    FixedSize,
    Poisson,
    Sampling,
    Shuffled,
    TruncatedPoisson,
)
from discreet.plan import Schedule
from discreet.randomness import Source


@pytest.mark.parametrize("policy", [Everything(), Poisson(0.5), Shuffled(3), BallsInBins(3)])
def test_a_policy_for_any_number_of_records_is_scheduled(policy: Sampling) -> None:
    schedule = Schedule(policy, steps=3)
    assert (schedule.event, schedule.steps) == (policy, 3)


@pytest.mark.parametrize("policy", [FixedSize(2, 10), TruncatedPoisson(0.5, 2, 10)])
def test_a_policy_that_states_the_number_needs_a_sampler(policy: Sampling) -> None:
    with pytest.raises(ParameterError, match="use Sampler"):
        Schedule(policy, steps=3)


@pytest.mark.parametrize("steps", [0, -1, 1.5, True, None])
def test_steps_are_counted(steps: int) -> None:
    with pytest.raises(ParameterError, match="steps"):
        Schedule(Poisson(0.5), steps=steps)


def test_nothing_is_drawn_and_nothing_divided() -> None:
    schedule = Schedule(Poisson(0.5), steps=3)
    with pytest.raises(ParameterError, match="records"):
        _ = schedule.expected_batch_size
    with pytest.raises(ParameterError, match="records"):
        schedule.draw(Source.system())
    plan = dp.Plan(sampler=schedule, mechanism=dp.Gaussian(1.0, 2.0))
    assert dp.account(plan, delta=1e-6).upper > 0.0
