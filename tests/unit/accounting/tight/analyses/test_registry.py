"""Every cost has its analysis; what is out of range or unknown is refused."""

from typing import Any

import pytest

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
from discreet.accounting.tight.analyses.fixed_size import Exchange
from discreet.accounting.tight.analyses.poisson import PoissonAdd, PoissonRemove, PoissonReplace
from discreet.accounting.tight.analyses.registry import directions
from discreet.accounting.tight.analyses.segment import Segment
from discreet.accounting.tight.analyses.truncated import Mixture
from discreet.accounting.tight.rounding import OutOfRangeError
from discreet.errors import AccountingError


@pytest.mark.parametrize(
    ("cost", "kinds"),
    [
        (Gaussian(1.0), (PoissonRemove, PoissonRemove)),
        (PoissonGaussian(0.1, 1.0), (PoissonRemove, PoissonAdd)),
        (PoissonGaussian(0.1, 1.0, replace=True), (PoissonReplace, PoissonReplace)),
        (TruncatedPoissonGaussian(0.1, 30, 100, 1.0), (Mixture, Mixture)),
        (FixedSizeGaussian(3, 10, 1.0), (Exchange, Exchange)),
        (Laplace(1.0), (Segment, Segment)),
        (BoundedRange(1.0), (Segment, Segment)),
        (Response(3, 0.6), (Segment, Segment)),
    ],
)
def test_each_cost_has_both_directions(cost: Cost, kinds: tuple[type, type]) -> None:
    assert tuple(type(direction) for direction in directions(cost)) == kinds


def test_a_gaussian_is_its_own_reverse_and_a_poisson_sample_is_not() -> None:
    first, second = directions(Gaussian(1.0))
    assert first == second
    first, second = directions(PoissonGaussian(0.1, 1.0))
    assert first != second


@pytest.mark.parametrize(
    "cost",
    [
        Gaussian(0.01),
        PoissonGaussian(0.1, 1e101),
        BallsInBinsGaussian(3, 0.02),
        Laplace(1.0 / 301.0),
        BoundedRange(300.0),
    ],
)
def test_losses_beyond_the_range_of_float64_are_refused(cost: Cost) -> None:
    with pytest.raises(OutOfRangeError, match="for the tight accountant"):
        directions(cost)


def test_an_unknown_cost_is_refused_with_the_list_of_known_ones() -> None:
    class Unknown:
        noise_multiplier = 1.0

    unknown: Any = Unknown()
    with pytest.raises(AccountingError, match="PoissonGaussian"):
        directions(unknown)
