"""What each query says about itself, and how its noise scales."""

from fractions import Fraction

import pytest

from discreet.errors import ParameterError
from discreet.ledger.events import (
    QUERIES,
    CorrelatedGaussianSum,
    ExponentialChoice,
    GaussianSum,
    LaplaceSum,
    Poisson,
    Query,
    RandomizedResponse,
    Step,
)

GAUSSIAN = GaussianSum("a", 3.0, 12.0)
SERIES = CorrelatedGaussianSum("b", 3.0, 12.0, 2.0, rounds=10, participations=2, separation=5)
OTHERS: list[Query] = [LaplaceSum("c", 2.0, 8.0), ExponentialChoice("d", 2.0, 8.0)]
RESPONSE = RandomizedResponse("e", 4, 0.7)
ALL: list[Query] = [GAUSSIAN, SERIES, *OTHERS, RESPONSE]


def test_gaussian_queries_alone_fold() -> None:
    assert GAUSSIAN.gaussian_cost == Fraction(1, 16)
    assert SERIES.gaussian_cost == Fraction(1, 4)  # twice the sensitivity: four times the cost
    assert [query.gaussian_cost for query in (*OTHERS, RESPONSE)] == [None, None, None]
    assert Step(Poisson(0.5), ALL).gaussians == (GAUSSIAN, SERIES)


def test_sensitivity_and_noise_are_in_the_unit_of_the_group() -> None:
    assert GAUSSIAN.sensitivity_and_noise == SERIES.sensitivity_and_noise == (3.0, 12.0)
    assert [query.sensitivity_and_noise for query in OTHERS] == [(2.0, 8.0), (2.0, 8.0)]
    assert RESPONSE.sensitivity_and_noise is None


@pytest.mark.parametrize("query", [GAUSSIAN, SERIES, *OTHERS], ids=str)
def test_noise_is_multiplied_and_nothing_else_changes(query: Query) -> None:
    louder = query.with_noise_times(1.5)
    (sensitivity, noise), before = (
        louder.sensitivity_and_noise or (0, 0),
        query.sensitivity_and_noise,
    )
    assert before is not None
    assert (sensitivity, noise) == (before[0], 1.5 * before[1])
    assert louder.with_noise_times(1.0) == louder
    changed = {name for name, value in louder.values().items() if query.values()[name] != value}
    assert len(changed) == 1


def test_an_answer_has_no_noise_to_multiply() -> None:
    with pytest.raises(ParameterError, match="no noise to multiply"):
        RESPONSE.with_noise_times(2.0)


def test_phrases_say_what_is_asked() -> None:
    assert [query.phrase for query in ALL] == [
        "sum with Gaussian noise",
        (
            "10 sums with correlated Gaussian noise (strategy sensitivity 2; each unit in at most "
            "2 "
            "rounds, at least 5 apart)"
        ),
        "sum with Laplace noise",
        "choice of one candidate by the exponential mechanism",
        "randomised response: one of 4 answers, the true one with probability 0.7",
    ]
    once = CorrelatedGaussianSum("b", 1.0, 1.0, 0.1, rounds=3, participations=1, separation=1)
    assert "sensitivity 0.1; each unit in at most 1 round," in once.phrase


def test_the_list_is_closed() -> None:
    assert {type(query) for query in ALL} == set(QUERIES)

    class Mine(GaussianSum):
        """Subclasses could mean anything."""

    with pytest.raises(ParameterError, match="queries"):
        Step(Poisson(0.5), Mine("g", 1.0, 1.0))
