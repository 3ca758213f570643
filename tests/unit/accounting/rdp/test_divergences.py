"""The divergence of each mechanism against textbook forms, and that rounding never loses it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from discreet.accounting.rdp import divergences as d

orders = st.floats(1.001, 200.0)
probabilities = st.floats(1e-7, 0.95)
noises = st.floats(0.3, 30.0)


@given(order=orders, q=probabilities, s=noises)
def test_amplification_never_hurts_and_never_reaches_zero(order: float, q: float, s: float) -> None:
    whole = d.gaussian_divergence(order, noise_multiplier=s)
    one = d.poisson_gaussian(order, probability=q, noise_multiplier=s)
    other = d.poisson_gaussian_replace(order, probability=q, noise_multiplier=s)
    assert 0.0 < one <= whole
    assert (
        one
        <= other * (1 + 1e-9)
        <= d.gaussian_divergence(order, noise_multiplier=s / 2) * (1 + 1e-9)
    )


@given(order=orders, q=probabilities, s=st.floats(0.6, 60.0))
def test_fixed_size_lies_between_one_direction_and_twice_the_moment(
    order: float, q: float, s: float
) -> None:
    found = d.fixed_size_gaussian(order, fraction=q, noise_multiplier=s)
    one = d.poisson_gaussian(order, probability=q, noise_multiplier=s / 2)
    assert one * (1 - 1e-12) <= found <= d.gaussian_divergence(order, noise_multiplier=s / 2)
    if one * (order - 1) < 30:
        assert found * (order - 1) <= math.log1p(2 * math.expm1(one * (order - 1))) * (1 + 1e-9)


def test_a_cut_that_never_happens_costs_nothing_and_one_that_always_does_costs_as_fixed_size() -> (
    None
):
    for replace in (False, True):
        one = d.poisson_gaussian_replace if replace else d.poisson_gaussian
        plain = one(5.0, probability=0.01, noise_multiplier=2.0)
        at = [
            d.truncated_poisson_gaussian(
                5.0, probability=0.01, overflow=p, noise_multiplier=2.0, replace=replace
            )
            for p in (0.0, 1e-9, 1e-3, 0.5, 1.0)
        ]
        assert at == sorted(at)
        assert math.isclose(at[0], plain, rel_tol=1e-12)
        assert at[-1] == d.fixed_size_gaussian(5.0, fraction=0.01, noise_multiplier=2.0)


@pytest.mark.parametrize(
    ("records", "q", "limit"),
    [(1000, 0.1, 120), (10**6, 0.005, 5400), (50, 0.5, 50), (10**6, 0.005, 9000)],
)
def test_overflow_probability_is_rounded_up(records: int, q: float, limit: int) -> None:
    exact = float(binom.logsf(limit - 1, records, q))
    assert math.log(d.truncation_probability(records, q, limit)) >= exact


@given(order=orders, x=st.floats(1e-5, 20.0))
def test_laplace_against_its_textbook_form(order: float, x: float) -> None:
    found = d.laplace(order, scale=1.0 / x)
    a = order
    log = np.logaddexp(
        math.log(a / (2 * a - 1)) + (a - 1) * x, math.log((a - 1) / (2 * a - 1)) - a * x
    ) / (a - 1)
    assert found >= log - 1e-15 / (a - 1)
    assert found <= log * (1 + 1e-9) + 1e-11 / (a - 1)
    assert found <= x * (1 + 1e-12)


@given(order=orders, spread=st.floats(1e-4, 30.0))
def test_bounded_range_is_at_least_every_two_point_pair(order: float, spread: float) -> None:
    found = d.bounded_range(order, spread=spread)
    for t in np.linspace(0.0, spread, 41)[1:-1]:
        high, low = math.exp(t), math.exp(t - spread)
        mass = (1 - low) / (high - low)
        moment = np.logaddexp(math.log(mass) + order * t, math.log1p(-mass) + order * (t - spread))
        assert found >= (moment - 1e-13) / (order - 1)
    assert found <= min(spread, order * spread**2 / 8) * (1 + 1e-12)


@given(order=orders, categories=st.integers(2, 50), share=st.floats(0.0, 0.999))
def test_response_against_its_three_values(order: float, categories: int, share: float) -> None:
    truth = 1 / categories + share * (1 - 1 / categories) * 0.999
    rest = (1 - truth) / (categories - 1)
    found = d.randomized_response(order, categories=categories, truth_probability=truth)
    logs = [
        order * math.log(truth) + (1 - order) * math.log(rest),
        order * math.log(rest) + (1 - order) * math.log(truth),
    ]
    moment = np.logaddexp.reduce(
        [*logs, math.log((categories - 2) * rest)] if categories > 2 else logs
    )
    assert found >= (moment - 1e-13 * (1 + order)) / (order - 1)
    assert found <= moment / (order - 1) * (1 + 1e-9) + 1e-10 * (1 + order) / (order - 1)


def test_the_response_between_two_values_has_its_gap_as_a_limit() -> None:
    truth = math.exp(0.7) / (1 + math.exp(0.7))
    at = [
        d.randomized_response(order, categories=2, truth_probability=truth)
        for order in (4.0, 1e9, math.inf)
    ]
    assert at[0] < at[1] <= at[2]
    assert math.isclose(at[2], 0.7, rel_tol=1e-12)


def test_a_tiny_divergence_is_not_rounded_to_nothing() -> None:
    # A difference of two numbers near 1 would give exactly 0 here, and epsilon 0 with it.
    found = d.poisson_gaussian(2.0, probability=1e-12, noise_multiplier=50.0)
    assert math.isclose(found, 1e-24 * math.expm1(1 / 2500), rel_tol=1e-3)
