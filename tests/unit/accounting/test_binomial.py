from __future__ import annotations

import math
from fractions import Fraction

import pytest

from discreet.accounting._binomial import at_least


def _exact(count: int, trials: int, probability: float) -> Fraction:
    q = Fraction(probability)
    return sum(
        (
            Fraction(math.comb(trials, k)) * q**k * (1 - q) ** (trials - k)
            for k in range(count, trials + 1)
        ),
        start=Fraction(0),
    )


@pytest.mark.parametrize("probability", [1e-3, 0.1, 0.5, 0.9, 1 - 1e-9])
@pytest.mark.parametrize("trials", [1, 7, 40])
def test_bounds_enclose_the_exact_tail_and_are_narrow(trials: int, probability: float) -> None:
    for count in range(trials + 2):
        low, high = at_least(count, trials, probability)
        exact = _exact(count, trials, probability)
        assert Fraction(low) <= exact <= Fraction(high), (count, low, high)
        assert high - low <= 1e-11 * high + 1e-299 or exact > Fraction(1, 2)


def test_the_two_forms_of_a_mass_agree_where_either_may_be_used() -> None:
    # Binomial coefficients in whole numbers on one side of the boundary, Stirling's series on the
    # other.
    for trials, probability in ((3000, 0.1), (3000, 0.08)):
        for count in range(295, 307):
            low, high = at_least(count, trials, probability)
            below, above = (
                at_least(count - 1, trials, probability)[1],
                at_least(count + 1, trials, probability)[0],
            )
            mass = math.exp(
                math.lgamma(trials + 1)
                - math.lgamma(count + 1)
                - math.lgamma(trials - count + 1)
                + count * math.log(probability)
                + (trials - count) * math.log1p(-probability)
            )
            assert math.isclose(high - above, mass, rel_tol=1e-7)
            assert low <= below


def test_stored_tails_of_a_large_binomial() -> None:
    # mpmath 1.3, 50 digits, sum of the masses by their ratios.
    for count, trials, probability, tail in STORED:
        low, high = at_least(count, trials, probability)
        assert low <= tail * (1 + 1e-15), count
        assert high >= tail * (1 - 1e-15), count
        assert high - low <= 1e-8 * tail, count


def test_edge_cases() -> None:
    assert at_least(0, 5, 0.3) == (1.0, 1.0)
    assert at_least(6, 5, 0.3) == (0.0, 0.0)
    assert at_least(5, 5, 1.0) == (1.0, 1.0)
    low, high = at_least(900_000, 1_000_000, 1e-3)
    assert low == 0.0
    assert high <= 1e-299


STORED = [
    (5000, 999999, 0.005, 0.5018665000393049),
    (5200, 999999, 0.005, 0.0024585015874353111),
    (5400, 999999, 0.005, 1.1114603432924028e-8),
    (4800, 999999, 0.005, 0.99787787632252843),
    (400, 100000, 0.003, 2.0968030122407979e-8),
]
