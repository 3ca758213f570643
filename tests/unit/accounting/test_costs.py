"""The costs: what they refuse, and that the loss of randomized response is rounded up."""

import math
from fractions import Fraction

import pytest
from mpmath import log, mp, mpf

from discreet.accounting.costs import (
    BoundedRange,
    Cost,
    FixedSizeGaussian,
    Gaussian,
    Laplace,
    PoissonGaussian,
    Response,
    TruncatedPoissonGaussian,
)
from discreet.errors import ParameterError

mp.dps = 50


@pytest.mark.parametrize("value", [0.0, -1.0, math.inf, math.nan])
def test_noise_and_range_must_be_positive_and_finite(value: float) -> None:
    with pytest.raises(ParameterError, match="noise_multiplier"):
        Gaussian(value)
    with pytest.raises(ParameterError, match="noise_multiplier"):
        PoissonGaussian(0.1, value)
    with pytest.raises(ParameterError, match="noise_multiplier"):
        Laplace(value)
    with pytest.raises(ParameterError, match="epsilon"):
        BoundedRange(value)


@pytest.mark.parametrize("probability", [0.0, 1.0, -0.1, math.nan])
def test_a_poisson_probability_lies_between_0_and_1(probability: float) -> None:
    with pytest.raises(ParameterError, match="probability"):
        PoissonGaussian(probability, 1.0)


@pytest.mark.parametrize("truth", [0.1, 0.2500001, 0.5, 0.999999, 1.0 - 2.0**-53])
@pytest.mark.parametrize("categories", [2, 4, 1000])
def test_the_gap_is_not_below_the_largest_loss(categories: int, truth: float) -> None:
    # Rounded to nearest, or computed from 1 - truth in float64, it would be below for some.
    lie = (1 - Fraction(truth)) / (categories - 1)
    if Fraction(truth) > lie:
        ratio = Fraction(truth) / lie
        exact = log(mpf(ratio.numerator) / mpf(ratio.denominator))
        assert exact <= mpf(Response(categories, truth).gap) <= exact * (1 + mpf(2) ** -40)


@pytest.mark.parametrize(
    ("cost", "attained"),
    [
        (Gaussian(1.0), True),
        (Gaussian(1.0, attained=False), False),
        (PoissonGaussian(0.1, 1.0), True),
        (TruncatedPoissonGaussian(0.1, 3, 10, 1.0), False),
        (FixedSizeGaussian(3, 10, 1.0), False),
        (Response(2, 0.7), True),
    ],
)
def test_only_pairs_that_data_sets_have_give_lower_bounds(cost: Cost, attained: bool) -> None:
    assert cost.attained is attained
