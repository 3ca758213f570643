from __future__ import annotations

import math
import time

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
)
from discreet.accounting.normalise import normalise
from discreet.accounting.rdp import composed
from discreet.errors import AccountingError, ParameterError
from discreet.ledger.events import (
    Everything,
    FixedSize,
    GaussianSum,
    LaplaceSum,
    Poisson,
    Shuffled,
    Step,
)
from discreet.units import Adjacency

TWO = Step(Poisson(0.01), [GaussianSum("a", 1.0, 2.0), GaussianSum("b", 3.0, 7.0)])


def check_result(found: Calibration, epsilon: float, tolerance: float = 1e-3) -> None:
    assert found.guarantee.upper <= epsilon
    assert found.guarantee.upper >= epsilon * (1 - tolerance)
    assert found.evaluations <= 12


@pytest.mark.parametrize(
    ("probability", "steps", "epsilon", "delta", "stored"),
    [  # dp-accounting 0.6.0, PLD, tolerance of its search 1e-3: not certified, but near the truth
        (0.005, 20_000, 3.0, 1e-6, 1.29544),
        (0.01, 1_000, 1.0, 1e-5, 1.41463),
        (0.1, 1_000, 8.0, 1e-6, 2.21759),
        (1e-3, 100_000, 2.0, 1e-7, 1.01868),
        (0.08192, 1_000, 3.0, 1e-5, 3.71426),
    ],
)
def test_noise_multiplier(
    probability: float, steps: int, epsilon: float, delta: float, stored: float
) -> None:
    start = time.process_time()
    found = calibrate(epsilon=epsilon, delta=delta, probability=probability, steps=steps)
    assert time.process_time() - start < 2.0
    check_result(found, epsilon)
    assert found.value == pytest.approx(stored, rel=3e-3)
    assert isinstance(found.unknown, NoiseMultiplier)
    assert "noise multiplier" in str(found)


@pytest.mark.parametrize(
    ("epsilon", "delta", "noise"),
    [(0.1, 1e-5, 30.749566), (1.0, 1e-5, 3.730632), (1.0, 1e-6, 4.224679), (10.0, 1e-5, 0.499889)],
)
def test_full_batch_is_the_analytic_gaussian_mechanism(
    epsilon: float, delta: float, noise: float
) -> None:
    found = solve(NoiseMultiplier(Everything(), 1), epsilon=epsilon, delta=delta, tolerance=1e-5)
    assert found.value == pytest.approx(noise, rel=2e-5)
    assert found.value >= noise * (
        1 - 1e-6
    )  # the classic formula at epsilon 10 gives 0.484: too little
    many = solve(NoiseMultiplier(Poisson(1.0), 100), epsilon=epsilon, delta=delta, tolerance=1e-5)
    assert many.value == pytest.approx(10 * noise, rel=2e-5)


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


@pytest.mark.parametrize(
    ("unknown", "adjacency"),
    [
        (NoiseMultiplier(Shuffled(100), 10), Adjacency.ZERO_OUT),
        (NoiseMultiplier(FixedSize(100, 10_000), 1000), Adjacency.REPLACE_ONE),
        (NoiseMultiplier(Poisson(0.01), 1000), Adjacency.REPLACE_ONE),
        (Steps(TWO), Adjacency.ADD_OR_REMOVE),
    ],
    ids=repr,
)
def test_any_sampling_and_adjacency_by_renyi(unknown: Unknown, adjacency: Adjacency) -> None:
    found = solve(unknown, epsilon=3.0, delta=1e-6, adjacency=adjacency, accountant="rdp")
    check_result(found, 3.0, tolerance=2e-3)
    assert found.guarantee.adjacency is adjacency
    assert found.guarantee.accountant == "rdp"


def test_steps_without_a_gaussian() -> None:
    found = solve(
        Steps(Step(Everything(), [LaplaceSum("a", 1.0, 20.0)])),
        epsilon=3.0,
        delta=1e-6,
        accountant="rdp",
    )
    assert found.value == 154


def test_adjacency_matters() -> None:
    plain = calibrate(epsilon=3.0, delta=1e-6, probability=0.01, steps=1000).value
    replace = calibrate(
        epsilon=3.0, delta=1e-6, probability=0.01, steps=1000, adjacency=Adjacency.REPLACE_ONE
    ).value
    assert replace > 1.02 * plain


def test_refusals() -> None:
    with pytest.raises(ParameterError, match="left out"):
        calibrate(epsilon=1.0, delta=1e-5, probability=0.1)
    with pytest.raises(ParameterError, match="left out"):
        calibrate(epsilon=1.0, delta=1e-5, probability=0.1, steps=10, noise_multiplier=1.0)
    with pytest.raises(ParameterError):
        calibrate(epsilon=0.0, delta=1e-5, probability=0.1, steps=10)
    with pytest.raises(ParameterError):
        calibrate(epsilon=1.0, delta=0.0, probability=0.1, steps=10)
    with pytest.raises(ParameterError):
        calibrate(epsilon=1.0, delta=1e-5, probability=0.0, steps=10)
    with pytest.raises(ParameterError):
        calibrate(epsilon=1.0, delta=1e-5, probability=0.1, steps=0)
    with pytest.raises(ParameterError):
        calibrate(epsilon=1.0, delta=1e-5, probability=0.1, steps=10, tolerance=0.0)
