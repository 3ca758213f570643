from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy.special import ndtr

from discreet.accounting.costs import BallsInBinsGaussian
from discreet.accounting.tight.analyses.atoms import Atoms, spread_out
from discreet.accounting.tight.analyses.balls_in_bins import balls_in_bins_directions
from discreet.accounting.tight.lattice.bracket import epsilon_bracket
from discreet.accounting.tight.lattice.pair import Composition

if TYPE_CHECKING:
    from discreet.accounting.tight.interface import Direction
    from discreet.accounting.tight.rounding import FloatArray


def _delta(direction: Direction, epsilon: float) -> float:
    return float(direction.cells(np.array([epsilon])).over.upper[-1])


def test_one_epoch_against_stored_monte_carlo_values() -> None:
    # Monte Carlo, 100 batches, noise .8, and the (larger) values of Poisson sampling with
    # probability 1/100, 100 steps.
    remove, add = balls_in_bins_directions(BallsInBinsGaussian(100, 0.8))
    for epsilon, sampled, poisson in (
        (0.25, 1.17e-2, 1.41e-2),
        (0.5, 1.44e-3, 2.53e-3),
        (1.0, 6.3e-5, 1.26e-4),
    ):
        found = _delta(remove, epsilon)
        assert math.isclose(found, sampled, rel_tol=0.02)
        assert found < poisson
        assert _delta(add, epsilon) < found


@pytest.mark.parametrize("noise", [0.7, 1.0, 2.0])
def test_two_batches_against_an_integral_in_the_plane(noise: float) -> None:
    remove, add = balls_in_bins_directions(BallsInBinsGaussian(2, noise))
    for epsilon in (0.0, 0.3, 1.0):
        forward, backward = _plane(noise, epsilon)
        assert forward * (1 - 1e-6) <= _delta(remove, epsilon) <= forward * 1.01
        assert backward * (1 - 1e-6) <= _delta(add, epsilon)
        if noise >= 1.0:  # below, the lattice's lowest point shows in this direction
            assert _delta(add, epsilon) <= backward * 1.03


def _plane(noise: float, epsilon: float) -> tuple[float, float]:
    """H(P||Q) and H(Q||P) for two batches: over the first coordinate by a rule, over the second in
    closed form.
    """
    z = np.linspace(-9.0, 9.0, 4001)
    weight = np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi) * (z[1] - z[0])
    first = np.exp(z / noise - 0.5 / noise**2)
    t = math.exp(epsilon)
    # E (c + Y/2)_+ and its mirror image, Y log-normal with mean 1.
    forward = np.sum(weight * _call(2.0 * t - first, noise)) / 2.0
    rest = 2.0 / t - first
    put = _call(rest, noise) - 1.0 + rest
    backward = np.sum(weight * np.where(rest > 0.0, put, 0.0)) * t / 2.0
    return float(forward), float(backward)


def _call(strike: FloatArray, noise: float) -> FloatArray:
    """E (Y - strike)_+."""
    safe = np.maximum(strike, 1e-300)
    upper = -np.log(safe) * noise + 0.5 / noise
    return np.where(strike > 0.0, ndtr(upper) - strike * ndtr(upper - 1.0 / noise), 1.0 - strike)


def test_one_batch_is_the_gaussian_and_more_batches_cost_less() -> None:
    gaussian = 1.0 - 2.0 * float(ndtr(-0.5))  # delta at epsilon 0, noise 1
    values = [
        _delta(balls_in_bins_directions(BallsInBinsGaussian(t, 1.0))[0], 0.0) for t in (1, 2, 8, 64)
    ]
    assert gaussian <= values[0] <= gaussian * 1.001
    assert values == sorted(values, reverse=True)
    assert values[-1] < 0.35 * values[0]


def test_epochs_compose() -> None:
    cost = BallsInBinsGaussian(200, 1.0)
    found = [
        max(
            epsilon_bracket(Composition(((one, epochs),)), 1e-6, 1e-2).upper
            for one in balls_in_bins_directions(cost)
        )
        for epochs in (1, 10)
    ]
    assert (
        0.4 < found[0] < 0.587
    )  # Poisson sampling at the same noise: .5868; no amplification: 4.887
    assert found[0] < found[1] < 10 * found[0]


def test_too_little_noise_is_not_amplified() -> None:
    remove, add = balls_in_bins_directions(BallsInBinsGaussian(100, 0.2))
    assert remove == add
    assert math.isclose(_delta(remove, 0.0), 1.0 - 2.0 * float(ndtr(-2.5)), rel_tol=1e-9)


def test_spreading_keeps_the_mean_and_never_lowers_a_curve() -> None:
    generator = np.random.default_rng(3)
    loss = np.sort(generator.normal(size=50))
    mass = generator.dirichlet(np.ones(50))
    rough = spread_out(loss, mass, 0.3)
    assert math.isclose(
        float(np.sum(rough.mass * np.exp(-rough.loss))),
        float(np.sum(mass * np.exp(-loss))),
        rel_tol=1e-9,
    )
    exact = Atoms(loss, mass, 0.0, 0.0)
    for epsilon in np.linspace(-3.0, 3.0, 31):
        assert _delta(exact, epsilon) <= _delta(rough, epsilon) * (1 + 1e-9) + 1e-15
