"""Events to costs: every sampling, every adjacency, every refusal."""

from __future__ import annotations

import numpy as np
import pytest

from discreet.accounting.costs import (
    BallsInBinsGaussian,
    BoundedRange,
    FixedSizeGaussian,
    Gaussian,
    Laplace,
    PoissonGaussian,
    Response,
    TruncatedPoissonGaussian,
)
from discreet.accounting.normalise import costs_of_step, normalise
from discreet.errors import AccountingError, NumericsError
from discreet.ledger.events import (
    BallsInBins,
    CorrelatedGaussianSum,
    Everything,
    ExponentialChoice,
    FixedSize,
    GaussianSum,
    LaplaceSum,
    Poisson,
    RandomizedResponse,
    Shuffled,
    Step,
    TruncatedPoisson,
)
from discreet.ledger.folding import folded_noise_multiplier
from discreet.units import Adjacency

ADD, ZERO, REPLACE = Adjacency.ADD_OR_REMOVE, Adjacency.ZERO_OUT, Adjacency.REPLACE_ONE
SUM = GaussianSum("grad", 2.0, 3.0)


def test_p34_groups_fold_whatever_the_type_of_the_numbers() -> None:
    plain = [GaussianSum("a", 3.0, 12.0), GaussianSum("b", 4.0, 16.0)]
    other = [GaussianSum("a", 3, np.int64(12)), GaussianSum("b", np.float32(4), 16)]  # type: ignore[arg-type]
    expected = (2 * (1 / 4.0) ** 2) ** -0.5
    assert (
        folded_noise_multiplier(plain)
        == folded_noise_multiplier(other)
        == pytest.approx(expected, rel=1e-15)
    )
    (cost,) = costs_of_step(Step(Poisson(0.1), plain), ADD)
    assert cost == PoissonGaussian(0.1, folded_noise_multiplier(plain))


def test_fold_is_rounded_down_and_exact_where_it_can_be() -> None:
    from fractions import Fraction

    assert folded_noise_multiplier([GaussianSum("a", 1.0, 1.1)]) == 1.1
    many = [GaussianSum(str(i), 0.1 + i, 0.7 * i + 1.3) for i in range(50)]
    z = folded_noise_multiplier(many)
    total = sum((Fraction(query.sensitivity) / Fraction(query.noise_std)) ** 2 for query in many)
    assert Fraction(z) ** 2 * total <= 1 < Fraction(float(np.nextafter(z, np.inf))) ** 2 * total


def test_fold_refuses_what_would_overflow_instead_of_failing_open() -> None:
    with pytest.raises(NumericsError):
        folded_noise_multiplier([GaussianSum("a", 1e-200, 1e200)])
    with pytest.raises(NumericsError):
        folded_noise_multiplier([GaussianSum("a", 1e200, 1e-200)])
    tiny = [
        GaussianSum("a", 1e-200, 1.0),
        GaussianSum("b", 1.0, 1.0),
    ]  # the square underflows; the sum must not
    assert folded_noise_multiplier(tiny) <= 1.0


def test_p33_counts_of_equal_costs_add_up() -> None:
    choice = Step(Everything(), [ExponentialChoice("pick", 1.0, 4.0)])
    assert normalise([(choice, 60), (choice, 40)], ADD) == ((BoundedRange(0.5), 100),)
    assert normalise([(choice, 0)], ADD) == ()


@pytest.mark.parametrize(
    ("sampling", "adjacency", "cost"),
    [
        (Everything(), ADD, Gaussian(1.5)),
        (Everything(), REPLACE, Gaussian(0.75)),
        (Poisson(1.0), ZERO, Gaussian(1.5)),
        (Poisson(0.2), ADD, PoissonGaussian(0.2, 1.5)),
        (Poisson(0.2), ZERO, PoissonGaussian(0.2, 1.5)),
        (Poisson(0.2), REPLACE, PoissonGaussian(0.2, 1.5, replace=True)),
        (TruncatedPoisson(0.2, 101, 100), ADD, PoissonGaussian(0.2, 1.5)),
        (
            TruncatedPoisson(0.2, 100, 100),
            ADD,
            TruncatedPoissonGaussian(0.2, 100, 100, 1.5),
        ),  # one record more is cut
        (TruncatedPoisson(0.2, 100, 100), ZERO, PoissonGaussian(0.2, 1.5)),
        (TruncatedPoisson(1.0, 101, 100), ADD, Gaussian(1.5)),
        (FixedSize(10, 100), REPLACE, FixedSizeGaussian(10, 100, 1.5)),
        (FixedSize(10, 100), ZERO, FixedSizeGaussian(10, 100, 1.5)),
        (FixedSize(100, 100), REPLACE, Gaussian(0.75)),
        (Shuffled(10), ZERO, Gaussian(1.5, attained=False)),
        (Shuffled(10), REPLACE, Gaussian(0.75, attained=False)),
        (BallsInBins(10), ADD, BallsInBinsGaussian(10, 1.5)),
        (BallsInBins(10), REPLACE, Gaussian(0.75, attained=False)),
        (BallsInBins(1), ADD, Gaussian(1.5)),
    ],
)
def test_p35_one_convention_for_every_sampling_and_adjacency(
    sampling: object, adjacency: Adjacency, cost: object
) -> None:
    assert costs_of_step(Step(sampling, [SUM]), adjacency) == (cost,)  # type: ignore[arg-type]


@pytest.mark.parametrize("sampling", [Shuffled(10), FixedSize(10, 100)])
def test_p26_add_or_remove_is_refused_where_the_number_of_records_is_part_of_the_sampling(
    sampling: object,
) -> None:
    with pytest.raises(AccountingError, match="zero-out or replace-one"):
        costs_of_step(Step(sampling, [SUM]), ADD)  # type: ignore[arg-type]


def test_full_batch_queries_compose_one_by_one() -> None:
    step = Step(
        Everything(),
        [
            SUM,
            CorrelatedGaussianSum(
                "series", 1.0, 4.0, 2.0, rounds=10, participations=1, separation=1
            ),
            LaplaceSum("count", 1.0, 5.0),
            ExponentialChoice("pick", 1.0, 8.0),
            RandomizedResponse("vote", 2, 0.75),
        ],
    )
    found = set(costs_of_step(step, REPLACE))
    folded = folded_noise_multiplier([SUM, GaussianSum("series", 2.0, 4.0)])
    assert found == {Gaussian(folded / 2), Laplace(2.5), BoundedRange(0.5), Response(2, 0.75)}
    with pytest.raises(AccountingError, match="replace-one"):
        costs_of_step(step, ADD)


@pytest.mark.parametrize(
    "query",
    [
        LaplaceSum("count", 1.0, 5.0),
        ExponentialChoice("pick", 1.0, 8.0),
        CorrelatedGaussianSum("series", 1.0, 4.0, 2.0, rounds=10, participations=1, separation=1),
    ],
)
def test_a_mixture_of_queries_on_one_sample_is_refused(query: LaplaceSum) -> None:
    for sampling in (Poisson(0.1), Shuffled(5)):
        with pytest.raises(AccountingError, match="share a sample"):
            costs_of_step(Step(sampling, [SUM, query]), ZERO)
