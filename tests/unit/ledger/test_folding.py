"""Eq. 1 in exact arithmetic, rounded down; roots on the right side of the truth."""

import math
from fractions import Fraction

import pytest

from discreet.errors import NumericsError, ParameterError
from discreet.ledger.events import CorrelatedGaussianSum, GaussianSum, LaplaceSum, Query
from discreet.ledger.folding import folded_noise_multiplier, root_above, root_below, sum_above


def test_groups_fold_to_one() -> None:
    assert folded_noise_multiplier([GaussianSum("a", 2.0, 3.0)]) == 1.5
    pair = [GaussianSum("a", 3.0, 15.0), GaussianSum("b", 4.0, 15.0)]
    assert folded_noise_multiplier(pair) == 3.0


def test_a_series_folds_with_its_strategy() -> None:
    series = CorrelatedGaussianSum("a", 1.0, 8.0, 2.0, rounds=4, participations=2, separation=2)
    assert folded_noise_multiplier([series]) == 4.0


def test_the_fold_is_never_above_the_truth() -> None:
    queries: list[Query] = [GaussianSum(f"g{i}", 0.1 * (i + 1), 0.3) for i in range(50)]
    exact = sum((query.gaussian_cost or Fraction(0) for query in queries), Fraction(0))
    folded = folded_noise_multiplier(queries)
    assert Fraction(folded) ** 2 * exact <= 1
    assert Fraction(math.nextafter(folded, math.inf)) ** 2 * exact > 1 - Fraction(1, 2**60)


def test_other_noise_does_not_fold() -> None:
    with pytest.raises(ParameterError, match="LaplaceSum"):
        folded_noise_multiplier([GaussianSum("a", 1.0, 1.0), LaplaceSum("b", 1.0, 1.0)])


@pytest.mark.parametrize("square", [Fraction(2), Fraction(1, 3), Fraction(9), Fraction(10**40, 7)])
def test_roots_are_next_to_the_truth_on_their_side(square: Fraction) -> None:
    below, above = root_below(square), root_above(square)
    assert Fraction(below) ** 2 <= square <= Fraction(above) ** 2
    assert above in (below, math.nextafter(below, math.inf))


def test_long_sums_are_rounded_up_and_little() -> None:
    terms = [Fraction(1, 3 + number) for number in range(100)]
    exact = sum(terms, Fraction(0))
    assert exact <= sum_above(terms) <= exact * (1 + Fraction(1, 2**200))
    assert sum_above(terms[:32]) == sum(terms[:32], Fraction(0))


@pytest.mark.parametrize("square", [Fraction(2) ** 2000, Fraction(1, 2**2000)])
def test_what_float64_cannot_hold_is_refused(square: Fraction) -> None:
    with pytest.raises(NumericsError, match="units"):
        root_below(square)
