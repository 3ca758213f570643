from __future__ import annotations

import math
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from discreet.accounting import rdp
from discreet.accounting.costs import (
    BallsInBinsGaussian,
    BoundedRange,
    Cost,
    FixedSizeGaussian,
    Gaussian,
    Laplace,
    PoissonGaussian,
    Response,
    TruncatedPoissonGaussian,
)
from discreet.accounting.rdp.conversion import epsilon_from
from discreet.errors import AccountingError, ParameterError

COSTS: list[Cost] = [
    Gaussian(1.0),
    PoissonGaussian(0.01, 1.0),
    PoissonGaussian(0.01, 1.0, replace=True),
    TruncatedPoissonGaussian(0.01, 130, 10_000, 1.0),
    FixedSizeGaussian(100, 10_000, 2.0),
    BallsInBinsGaussian(10, 2.0),
    Laplace(3.0),
    BoundedRange(0.2),
    Response(3, 0.5),
]


@pytest.mark.parametrize("cost", COSTS, ids=repr)
def test_a_count_counts_for_every_cost(cost: Cost) -> None:
    once = rdp.composed([(cost, 1)], 7.5)
    assert math.isclose(rdp.composed([(cost, 100)], 7.5), 100 * once, rel_tol=1e-12)
    assert math.isclose(rdp.composed([(cost, 40), (cost, 60)], 7.5), 100 * once, rel_tol=1e-12)
    assert rdp.epsilon([(cost, 100)], delta=1e-6).value > rdp.epsilon([(cost, 1)], delta=1e-6).value


@pytest.mark.parametrize("cost", COSTS, ids=repr)
def test_epsilon_and_delta_are_inverse(cost: Cost) -> None:
    bound = rdp.epsilon([(cost, 20)], delta=1e-7)
    assert math.isclose(rdp.delta([(cost, 20)], epsilon=bound.value).value, 1e-7, rel_tol=1e-3)


def test_order_is_searched_far_beyond_any_list() -> None:
    bound = rdp.epsilon([(Gaussian(1e5), 1)], delta=1e-5)
    assert bound.order > 1e4
    # At order 1024, where the usual list ends, the bound is forty times as large.
    assert bound.value * 40 < epsilon_from(rdp.composed([(Gaussian(1e5), 1)], 1024.0), 1024.0, 1e-5)


def test_conversion_of_a_real_mechanism_is_never_below_the_truth() -> None:
    # One Gaussian: delta is known in closed form; a wrong sign in the conversion fails this at
    # once.
    from scipy.stats import norm

    for noise in (0.3, 1.0, 4.0, 30.0):
        for delta in (0.3, 1e-2, 1e-6, 1e-12):
            epsilon = rdp.epsilon([(Gaussian(noise), 1)], delta=delta).value
            truth = norm.cdf(0.5 / noise - epsilon * noise) - math.exp(epsilon) * norm.cdf(
                -0.5 / noise - epsilon * noise
            )
            assert truth <= delta


def test_underflow_is_not_perfect_privacy() -> None:
    assert rdp.delta([(Gaussian(1.0), 1)], epsilon=1e4).value > 0.0
    assert rdp.epsilon([(PoissonGaussian(1e-12, 100.0), 1)], delta=1e-300).value > 0.0


def test_pure_losses() -> None:
    assert math.isclose(rdp.epsilon([(Laplace(4.0), 3)], delta=0.0).value, 0.75, rel_tol=1e-9)
    assert rdp.epsilon([(Gaussian(4.0), 1)], delta=0.0).value == math.inf
    assert rdp.delta([(Laplace(4.0), 3)], epsilon=0.76).value == 0.0
    assert rdp.epsilon([], delta=1e-6).value == 0.0


@settings(max_examples=20, deadline=None)
@given(
    q=st.floats(1e-4, 0.9),
    s=st.floats(0.5, 10.0),
    steps=st.integers(1, 10_000),
    delta=st.floats(1e-12, 1e-2),
)
def test_monotone(q: float, s: float, steps: int, delta: float) -> None:
    base = rdp.epsilon([(PoissonGaussian(q, s), steps)], delta=delta).value
    slack = 1 + 1e-6
    assert (
        base
        <= rdp.epsilon([(PoissonGaussian(min(0.99, q * 1.1), s), steps)], delta=delta).value * slack
    )
    assert base <= rdp.epsilon([(PoissonGaussian(q, s), steps + 1)], delta=delta).value * slack
    assert base <= rdp.epsilon([(PoissonGaussian(q, s * 0.9), steps)], delta=delta).value * slack
    assert base <= rdp.epsilon([(PoissonGaussian(q, s), steps)], delta=delta / 2).value * slack


def test_curve_is_vectorised_and_convex_in_the_order() -> None:
    orders = np.linspace(1.1, 60.0, 200)
    log_moments = (orders - 1) * rdp.divergence_curve([(PoissonGaussian(0.01, 1.0), 10)], orders)
    assert np.all(np.diff(log_moments, 2) >= -1e-9)


def test_refusals() -> None:
    for order in (1.0, 0.5, -3.0, math.nan):
        with pytest.raises(ParameterError):
            rdp.composed([(Gaussian(1.0), 1)], order)
    with pytest.raises(AccountingError, match="cost"):
        rdp.divergence("gaussian", 2.0)
    with pytest.raises(ParameterError):
        rdp.epsilon([(Gaussian(1.0), 1)], delta=1.0)
    with pytest.raises(ParameterError):
        rdp.delta([(Gaussian(1.0), 1)], epsilon=-1.0)


def test_one_query_takes_milliseconds() -> None:
    rdp.epsilon([(PoissonGaussian(0.02, 1.0), 200)], delta=1e-6)
    start = time.process_time()
    for k in range(10):
        rdp.epsilon([(PoissonGaussian(0.005 + 1e-4 * k, 1.0), 200)], delta=1e-6)
    assert time.process_time() - start < 0.5
