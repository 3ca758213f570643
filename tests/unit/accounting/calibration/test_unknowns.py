"""What can be solved for: each unknown by itself, its direction, its limits and its start."""

from __future__ import annotations

import math

import pytest

from discreet.accounting.calibration.calibrate import Calibration, calibrate, solve
from discreet.accounting.calibration.unknowns import (
    ExpectedBatchSize,
    ExpectedBatchSizeAtAverageNoise,
    GroupNoise,
    NoiseFactor,
    NoiseMultiplier,
    Probability,
    ProbabilityAtAverageNoise,
    Steps,
    Unknown,
    infeasible,
)
from discreet.accounting.normalise import normalise
from discreet.accounting.rdp import composed
from discreet.errors import AccountingError, ParameterError
from discreet.ledger.events import Everything, GaussianSum, LaplaceSum, Poisson, Step
from discreet.units import Adjacency

TWO = Step(Poisson(0.01), [GaussianSum("a", 1.0, 2.0), GaussianSum("b", 3.0, 7.0)])


def check_result(found: Calibration, epsilon: float, tolerance: float = 1e-3) -> None:
    assert found.guarantee.upper <= epsilon
    assert found.guarantee.upper >= epsilon * (1 - tolerance)
    assert found.evaluations <= 12


def test_probability_and_its_limit() -> None:
    found = calibrate(epsilon=3.0, delta=1e-6, noise_multiplier=1.3, steps=20_000)
    check_result(found, 3.0)
    assert isinstance(found.unknown, Probability)
    assert calibrate(epsilon=300.0, delta=1e-6, noise_multiplier=1.3, steps=20).value == 1.0


def test_steps_are_whole_and_one_more_would_exceed() -> None:
    # A published example: probability 0.1, noise 3, delta 1e-6: 155 steps for epsilon 2 (1.99626).
    found = calibrate(
        epsilon=2.0, delta=1e-6, probability=0.1, noise_multiplier=3.0, tolerance=1e-6
    )
    assert found.value == 155
    assert isinstance(found.value, int)
    with pytest.raises(AccountingError, match="the floor is"):
        calibrate(epsilon=0.1, delta=1e-6, probability=0.5, noise_multiplier=0.5)


def test_expected_batch_size() -> None:
    found = solve(ExpectedBatchSize(1_000_000, 1.3, 20_000), epsilon=3.0, delta=1e-6)
    check_result(found, 3.0)
    share = calibrate(epsilon=3.0, delta=1e-6, noise_multiplier=1.3, steps=20_000).value
    assert found.value == pytest.approx(1e6 * share, rel=2e-3)
    assert solve(ExpectedBatchSize(1000, 50.0, 10), epsilon=3.0, delta=1e-6).value == 1000
    with pytest.raises(AccountingError, match="the floor is"):
        solve(ExpectedBatchSize(10, 0.5, 1000), epsilon=1.0, delta=1e-6)


def test_fixed_average_noise() -> None:
    unknown = ProbabilityAtAverageNoise(1_000_000, 3e-4, 20_000)
    found = solve(unknown, epsilon=3.0, delta=1e-6)
    check_result(found, 3.0)
    # A larger sample is never worse here; a fixed noise multiplier would say the opposite.
    larger = solve(unknown, epsilon=2.8, delta=1e-6)
    assert larger.value > found.value
    batch = solve(ExpectedBatchSizeAtAverageNoise(1_000_000, 3e-4, 20_000), epsilon=3.0, delta=1e-6)
    assert batch.guarantee.upper <= 3.0
    assert batch.value == pytest.approx(found.value * 1e6, rel=5e-3)
    with pytest.raises(AccountingError, match="the floor is"):
        solve(ProbabilityAtAverageNoise(10_000, 2e-4, 20_000), epsilon=3.0, delta=1e-6)


def test_moments_fall_with_the_probability_at_fixed_average_noise() -> None:
    unknown = ProbabilityAtAverageNoise(1000, 5e-3, 1)
    for order in (2.0, 3.0, 8.0, 20.0):
        costs = []
        for probability in (0.1, 0.15, 0.2, 0.3, 0.5, 0.7, 0.9, 0.99):
            ((step, count),) = unknown.steps_at(probability)
            costs.append(composed(normalise([(step, count)], Adjacency.ADD_OR_REMOVE), order))
        assert costs == sorted(costs, reverse=True)


def test_one_factor_on_the_noise_of_some_steps() -> None:
    look = Step(Everything(), [GaussianSum("look", 1.0, 12.0)])
    found = solve(
        NoiseFactor(scaled=((TWO, 1000), (look, 1)), fixed=((look, 2),)), epsilon=1.0, delta=1e-5
    )
    check_result(found, 1.0)
    pairs = NoiseFactor(scaled=((TWO, 1000), (look, 1)), fixed=((look, 2),)).steps_at(2.0)
    assert [[query.noise_std for query in step.queries] for step, _ in pairs] == [  # type: ignore[attr-defined]
        [4.0, 14.0],
        [24.0],
        [12.0],
    ]
    assert [count for _, count in pairs] == [1000, 1, 2]
    with pytest.raises(AccountingError, match="the floor is"):
        solve(NoiseFactor(scaled=((TWO, 1000),), fixed=((look, 10_000),)), epsilon=1.0, delta=1e-5)
    with pytest.raises(ParameterError, match="steps of Gaussian sums"):
        NoiseFactor(scaled=((Step(Poisson(0.1), [LaplaceSum("count", 1.0, 2.0)]), 1),))
    with pytest.raises(ParameterError, match="steps of Gaussian sums"):
        NoiseFactor(scaled=(), fixed=((look, 1),))


def test_noise_of_one_group() -> None:
    found = solve(GroupNoise(TWO, "b", 1000), epsilon=1.0, delta=1e-5)
    check_result(found, 1.0)
    whole = calibrate(epsilon=1.0, delta=1e-5, probability=0.01, steps=1000).value
    exact = 3.0 / math.sqrt(whole**-2 - 0.25)  # Eq. 1 solved for the second group
    assert found.value == pytest.approx(exact, rel=5e-3)
    with pytest.raises(AccountingError, match="the floor is"):
        solve(GroupNoise(TWO, "b", 1000), epsilon=0.1, delta=1e-5)
    with pytest.raises(ParameterError):
        GroupNoise(TWO, "c", 1000)


def test_steps_without_a_gaussian() -> None:
    found = solve(
        Steps(Step(Everything(), [LaplaceSum("a", 1.0, 20.0)])),
        epsilon=3.0,
        delta=1e-6,
        accountant="rdp",
    )
    assert found.value == 154


@pytest.mark.parametrize(
    "unknown",
    [
        NoiseMultiplier(Poisson(0.01), 1000),
        Probability(1.3, 1000),
        ExpectedBatchSize(10_000, 1.3, 1000),
        ProbabilityAtAverageNoise(10_000, 3e-3, 1000),
        ExpectedBatchSizeAtAverageNoise(10_000, 3e-3, 1000),
        Steps(TWO),
        GroupNoise(TWO, "b", 1000),
        NoiseFactor(scaled=((TWO, 1000),)),
    ],
    ids=lambda unknown: type(unknown).__name__,
)
def test_cost_moves_in_the_direction_that_is_stated(unknown: Unknown) -> None:
    """By a Rényi divergence at two values within the limits: wrong would be a search that ends on
    the side that costs more than was asked for.
    """
    low, high = unknown.limits(1e-6)
    assert low < high
    start = min(max(unknown.start(1.0)[0], low), high / 2.0)
    costs = [
        composed(normalise(unknown.steps_at(value), Adjacency.ADD_OR_REMOVE), 4.0)
        for value in (start, 2.0 * start)
    ]
    assert (costs[0] < costs[1]) is unknown.costs_more


def test_what_cannot_be_reached_is_said_with_the_floor() -> None:
    error = infeasible(Probability(1.3, 1000), 0.5, 1e-6, 0.75)
    assert "sampling probability" in str(error)
    assert "0.5: infeasible, the floor is 0.75" in str(error)
