"""Closed forms of the Gaussian against many digits, and inversion by proven ends."""

import math

import pytest
from mpmath import mp, mpf, ncdf

from discreet.accounting.gaussian import fold, gaussian_delta, gaussian_epsilon, invert

mp.dps = 50


def exact_delta(noise: float, epsilon: float) -> mpf:
    mu, level = 1 / mpf(noise), mpf(epsilon)
    return ncdf(mu / 2 - level / mu) - mp.exp(level) * ncdf(-mu / 2 - level / mu)


@pytest.mark.parametrize("noise", [0.05, 0.3, 1.0, 7.0, 1e3])
@pytest.mark.parametrize("epsilon", [0.0, 1e-3, 0.4, 3.0, 40.0])
def test_the_interval_holds_the_exact_delta_and_is_narrow(noise: float, epsilon: float) -> None:
    # A difference of two ndtr, without erfcx, loses all digits where delta is small.
    lower, upper = gaussian_delta(noise, epsilon)
    exact = exact_delta(noise, epsilon)
    assert mpf(lower) <= exact <= mpf(upper)
    assert upper - lower <= 1e-9 * float(exact) + 1e-13 * (epsilon == 0.0) + 2e-300


@pytest.mark.parametrize("noise", [0.3, 1.0, 30.0])
@pytest.mark.parametrize("delta", [1e-200, 1e-6, 0.01])
def test_both_ends_of_epsilon_are_proven(noise: float, delta: float) -> None:
    lower, upper = gaussian_epsilon(noise, delta)
    assert exact_delta(noise, lower) >= delta * (1 - 1e-30) or lower == 0.0
    assert exact_delta(noise, upper) <= delta * (1 + 1e-30)
    assert upper - lower <= 1e-9 * upper


def test_edge_cases() -> None:
    assert gaussian_delta(1.0, math.inf) == (0.0, 1e-300)
    assert gaussian_delta(1e-5, 1.0) == (1.0 - 1e-15, 1.0)
    assert gaussian_delta(1e200, 0.0)[0] == 0.0
    assert gaussian_epsilon(1.0, 0.5) == (0.0, 0.0)
    assert gaussian_epsilon(1.0, 0.0) == (0.0, math.inf)
    assert gaussian_epsilon(1e-200, 1e-6) == (0.0, math.inf)


def test_a_search_that_ends_elsewhere_cannot_make_an_end_wrong() -> None:
    # The curve is known to 10 percent only, and jumps: the ends must be those of the bounds.
    def curve(epsilon: float) -> tuple[float, float]:
        value = math.exp(-epsilon) if epsilon < 3.0 else 0.5 * math.exp(-epsilon)
        return 0.9 * value, 1.1 * value

    lower, upper = invert(curve, 0.04, 1.0)
    assert curve(lower)[0] >= 0.04
    assert curve(upper)[1] <= 0.04


def test_folding_is_exact_or_rounded_down() -> None:
    assert fold([(3.0, 9)]) == 1.0
    assert fold([(1.0, 3)]) <= 1.0 / math.sqrt(3.0) * (1.0 + 2.0**-53)
    assert fold([(1.0, 1), (2.0, 4)]) < fold([(1.0, 1)])
