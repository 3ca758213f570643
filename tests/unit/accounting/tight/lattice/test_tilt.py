"""Tilts: the exponent at which Chernoff's bound is best, and what the cumulant is."""

import math

import numpy as np
import pytest

from discreet.accounting.gaussian import gaussian_delta
from discreet.accounting.tight.analyses.poisson import PoissonRemove
from discreet.accounting.tight.lattice.tilt import (
    Law,
    log_peak,
    sharpened,
    tilt_for_delta,
    tilt_for_epsilon,
)

# A Gaussian with mu = 1/2, composed: K(theta) = theta (1 + theta) mu^2 / 2 for each step.
LAW = Law(((PoissonRemove(1.0, 2.0).quadrature(), 4.0),))


def test_the_cumulant_of_a_gaussian_is_known() -> None:
    theta = np.array([0.1, 1.0, 7.0])
    assert LAW.cumulant(theta) == pytest.approx(theta * (1.0 + theta) * 4.0 / 8.0, rel=1e-9)


@pytest.mark.parametrize("theta", [0.01, 1.0, 30.0])
def test_the_peak_is_the_largest_value(theta: float) -> None:
    s = np.linspace(1e-4, 20.0 / theta, 200_001)
    peak = float(np.max(np.exp(-theta * s) * -np.expm1(-s)))
    assert math.exp(log_peak(np.array([theta]))[0]) == pytest.approx(peak, rel=1e-5)


@pytest.mark.parametrize("epsilon", [0.3, 2.0, 6.0])
def test_the_tilt_is_best_and_its_bound_is_above_the_truth(epsilon: float) -> None:
    tilt = tilt_for_epsilon(LAW, epsilon)
    assert tilt.log_delta >= math.log(gaussian_delta(1.0, epsilon)[0])
    for factor in (0.8, 1.25):
        theta = factor * np.array([tilt.theta])
        bound = LAW.cumulant(theta) + log_peak(theta) - theta * epsilon
        assert float(bound[0]) > tilt.log_delta


def test_the_sharpened_epsilon_is_nearer_to_the_truth() -> None:
    tilt = tilt_for_delta(LAW, math.log(1e-6))
    better = sharpened(LAW, tilt)
    assert better.theta == tilt.theta
    truth = 4.8866  # of one Gaussian with multiplier 1 at delta 1e-6
    assert abs(better.epsilon - truth) < 0.2 * abs(tilt.epsilon - truth)


def test_capping_drops_tails_and_nothing_else() -> None:
    capped = LAW.capped(1e-9).parts[0][0]
    full = LAW.parts[0][0]
    lost = np.exp(full.log_weight).sum() - np.exp(capped.log_weight).sum()
    assert 0.0 < lost < 1e-9
    assert len(capped.loss) < len(full.loss)
