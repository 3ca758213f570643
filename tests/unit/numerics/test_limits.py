"""The bound on a sample's size: never below the truth, and not far above it."""

import math
from fractions import Fraction

import pytest
from scipy import stats

from discreet.errors import ParameterError
from discreet.numerics import overflow_probability


@pytest.mark.parametrize(("n", "q"), [(1, 0.5), (10, 0.3), (40, 0.9), (25, 0.0), (25, 1.0)])
def test_overflow_is_never_below_the_exact_tail(n: int, q: float) -> None:
    for k in range(1, n + 2):
        chance = Fraction(q)
        tail = sum(
            (math.comb(n, j) * chance**j * (1 - chance) ** (n - j) for j in range(k, n + 1)),
            Fraction(0),
        )
        assert Fraction(overflow_probability(k, records=n, probability=q)) >= tail


@pytest.mark.parametrize(("n", "q", "limit"), [(60_000, 256 / 60_000, 400), (10**9, 1e-6, 1_300)])
def test_overflow_is_within_a_small_factor_of_the_truth(n: int, q: float, limit: int) -> None:
    """A union bound, or Hoeffding's with the range in the place of the divergence, is far above."""
    truth = stats.binom.logsf(limit - 1, n, q)
    assert truth <= math.log(overflow_probability(limit, records=n, probability=q)) <= truth + 12.0


def test_overflow_falls_with_the_limit() -> None:
    bounds = [overflow_probability(k, records=100, probability=0.5) for k in range(50, 102)]
    assert bounds[0] == 1.0
    assert bounds == sorted(bounds, reverse=True)
    assert bounds[-1] == 0.0  # 101 of 100: no sample is that large


def test_what_float64_cannot_hold_is_not_zero() -> None:
    """Rounded to nearest, a bound of 1e-9000000 would be 0: a claim that nothing is charged."""
    assert overflow_probability(10**6, records=10**6, probability=1e-9) == 5e-324


def test_a_probability_that_is_none_is_refused() -> None:
    with pytest.raises(ParameterError, match="probability"):
        overflow_probability(2, records=3, probability=math.nan)
