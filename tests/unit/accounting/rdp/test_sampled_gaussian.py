"""Moments of the sampled Gaussian against the binomial formula, and that the rough one is close."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from discreet.accounting.rdp.sampled_gaussian import log_moment, rough_log_moment

orders = st.floats(1.001, 200.0)
probabilities = st.floats(1e-7, 0.95)
noises = st.floats(0.3, 30.0)


def binomial_formula(order: int, q: float, s: float) -> float:
    """Log-moment at a whole order: the textbook sum, all terms positive."""
    return math.log1p(
        sum(
            math.comb(order, k)
            * (1 - q) ** (order - k)
            * q**k
            * math.expm1(k * (k - 1) / (2 * s * s))
            for k in range(2, order + 1)
        )
    )


@given(order=st.integers(2, 20), q=probabilities, s=st.floats(0.8, 30.0))
def test_whole_orders_agree_with_the_binomial_formula(order: int, q: float, s: float) -> None:
    exact = binomial_formula(order, q, s)
    found = log_moment(float(order), 0.0, probability=q, noise_multiplier=s)
    assert exact * (1 - 1e-12) <= found <= exact * (1 + 1e-10)


@given(order=orders, q=probabilities, s=noises)
def test_removal_dominates_addition_at_every_order(order: float, q: float, s: float) -> None:
    removal = log_moment(order, 0.0, probability=q, noise_multiplier=s)
    addition = log_moment(0.0, order - 1.0, probability=q, noise_multiplier=s)
    assert addition <= removal * (1 + 1e-8)


@pytest.mark.parametrize(("p", "n"), [(3.5, 0.0), (0.0, 2.5), (3.5, 2.5)])
def test_the_moment_is_above_a_fine_sum_and_close_to_it(p: float, n: float) -> None:
    # A sum that forgets the tangent, its tails or the strip's error would be below.
    q, s = 0.2, 1.3
    step = 1e-3
    total = 0.0
    for k in range(-20_000, 20_001):
        t = k * step
        a = 1.0 - q + q * math.exp(t / s - 0.5 / s**2)
        b = 1.0 - q + q * math.exp(-t / s - 0.5 / s**2)
        total += step * math.exp(-0.5 * t * t) / math.sqrt(2.0 * math.pi) * a**p / b**n
    moment = log_moment(p, n, probability=q, noise_multiplier=s)
    assert math.log(total) * (1 - 1e-9) <= moment <= math.log(total) * (1 + 1e-9)


@pytest.mark.parametrize("q", [1e-6, 1e-2, 0.5, 1.0])
def test_the_rough_moment_is_near_the_certified_one(q: float) -> None:
    certified = log_moment(6.0, 0.0, probability=q, noise_multiplier=2.0)
    rough = rough_log_moment(6.0, 0.0, probability=q, noise_multiplier=2.0)
    assert rough == pytest.approx(certified, rel=0.05)


def test_a_grid_that_would_be_too_long_is_not_made() -> None:
    assert math.isinf(log_moment(1e9, 0.0, probability=0.5, noise_multiplier=1e-3))
