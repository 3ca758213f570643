from __future__ import annotations

import math
import time

import pytest

from discreet.accounting.calibration import calibrate as calibrating
from discreet.accounting.calibration.calibrate import Calibration, calibrate, solve
from discreet.accounting.calibration.unknowns import NoiseMultiplier, Steps, Unknown
from discreet.errors import ParameterError
from discreet.ledger.events import Everything, FixedSize, GaussianSum, Poisson, Shuffled, Step
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


def test_estimates_leave_one_evaluation_to_do() -> None:
    found = calibrate(epsilon=3.0, delta=1e-6, probability=0.005, steps=20_000)
    assert found.evaluations == 1


@pytest.mark.parametrize("wrong", [0.0, math.nan, math.inf, 1e-9, 1e9])
def test_wrong_estimates_cost_evaluations_and_no_safety(
    wrong: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Whoever returned the value of the estimates, without an evaluation of its own, would fail.
    monkeypatch.setattr(calibrating, "sketched_epsilon", lambda *_: wrong)
    found = calibrate(epsilon=3.0, delta=1e-6, probability=0.005, steps=20_000)
    check_result(found, 3.0)
    assert found.evaluations > 1
