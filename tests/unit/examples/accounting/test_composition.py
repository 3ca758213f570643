from __future__ import annotations

import math

import pytest
from examples.accounting.composition import Statement, advanced, amplified, basic, optimal
from scipy.stats import norm

from discreet.errors import ParameterError


def sampled_gaussian_delta(q: float, s: float, epsilon: float) -> float:
    """Exact delta of one removal: sup over thresholds of P - e^eps Q, in closed form at the root of
    the ratio.
    """
    x = s * s * math.log1p(math.expm1(epsilon) / q) + 0.5
    return float(
        (1 - q) * norm.sf(x / s) + q * norm.sf((x - 1) / s) - math.exp(epsilon) * norm.sf(x / s)
    )


@pytest.mark.parametrize(("q", "epsilon"), [(0.01, 1.0), (0.1, 1.0), (0.01, 3.0)])
def test_p40_linear_amplification_is_false_and_the_theorem_is_true(
    q: float, epsilon: float
) -> None:
    # The classic noise for (epsilon, 1e-5), sampled: (q epsilon, q delta) is claimed in places, and
    # violated.
    delta = 1e-5
    noise = math.sqrt(2 * math.log(1.25 / delta)) / epsilon
    if epsilon <= 1:
        valid = amplified(Statement(epsilon, delta), probability=q)
        assert sampled_gaussian_delta(q, noise, valid.epsilon) <= valid.delta
    assert sampled_gaussian_delta(q, noise, q * epsilon) > 1.8 * q * delta


def test_p40_published_violation() -> None:
    noise = math.sqrt(2 * math.log(1.25e5))
    assert math.isclose(sampled_gaussian_delta(0.01, noise, 0.01), 2.8283e-7, rel_tol=1e-3)


@pytest.mark.parametrize("count", [1, 2, 10, 501])
def test_each_theorem_is_at_least_as_good_as_the_one_before(count: int) -> None:
    one = Statement(0.05, 1e-9)
    simple = basic(one, count=count)
    strong = advanced(one, count=count, slack=1e-6)
    best = optimal(one, count=count, slack=1e-6)
    assert strong.epsilon <= simple.epsilon
    assert best.epsilon <= strong.epsilon + 1e-12
    assert best.delta <= 1e-6 + count * one.delta * (1 + 1e-6)


def test_optimal_composition_is_exact_for_randomized_response() -> None:
    # k = 3 pure mechanisms with e^eps = 3: delta at epsilon = eps by direct enumeration of the
    # eight outcomes.
    p = 0.75
    outcomes = [
        (math.comb(3, j) * p**j * (1 - p) ** (3 - j), math.comb(3, j) * p ** (3 - j) * (1 - p) ** j)
        for j in range(4)
    ]
    exact = sum(max(0.0, a - 3 * b) for a, b in outcomes)
    found = optimal(Statement(math.log(3), 0.0), count=3, slack=exact * 1.0001)
    assert math.isclose(found.epsilon, math.log(3), rel_tol=1e-12)
    assert math.isclose(found.delta, exact, rel_tol=1e-6)


def test_edges() -> None:
    assert amplified(Statement(1e4, 0.1), probability=0.5) == Statement(1e4, 0.05)
    assert amplified(Statement(2.0, 0.1), probability=1.0).epsilon == pytest.approx(2.0)
    assert advanced(Statement(1e4, 0.0), count=2, slack=0.1) == basic(Statement(1e4, 0.0), count=2)
    assert optimal(Statement(0.0, 0.0), count=7, slack=0.1).epsilon == 0.0
    with pytest.raises(ParameterError):
        Statement(-1.0, 0.0)
    with pytest.raises(ParameterError):
        Statement(1.0, 1.1)
