"""Numbers and events in words: no bound is rounded to its flattering side."""

from fractions import Fraction

import pytest

import discreet as dp
from discreet.report.formats.words import (
    adjacency_words,
    exact,
    label_words,
    mark_words,
    measured,
    moment,
    multiplier,
    people,
    percent,
)


@pytest.mark.parametrize("number", [1.0, 600.0, 0.1, 1e-06, 1.0 / 3.0, 1e15, 2.0**60])
def test_a_parameter_reads_back_as_the_same_number(number: float) -> None:
    assert float(exact(number)) == number


@pytest.mark.parametrize("share", [0.0, 1e-9, 0.001, 0.03921, 0.29, 0.9991, 1.0])
def test_what_an_attacker_may_reach_is_rounded_up_by_at_most_a_tenth(share: float) -> None:
    shown = Fraction(percent(share).removesuffix(" %"))
    rounding = Fraction(1, 10**9)
    assert 100 * Fraction(share) - rounding <= shown < 100 * Fraction(share) + Fraction(1, 10)
    assert people(share) == percent(share).removesuffix(" %")


@pytest.mark.parametrize("number", [1.2, 1.23456, 0.00099999, 19.99999])
def test_a_measured_lower_bound_is_rounded_down(number: float) -> None:
    assert float(measured(number)) <= number


def test_what_is_no_moment_stays_as_it_is() -> None:
    assert moment("2026-01-31T12:00:05+00:00") == "2026-01-31 12:00:05 UTC"
    assert moment("2026-01-31T12:00:05+02:00") == "2026-01-31T12:00:05+02:00"
    assert moment("yesterday") == "yesterday"


def test_only_noise_has_a_multiplier_and_it_is_not_above_the_truth() -> None:
    gaussian = multiplier(dp.ledger.GaussianSum("grad", 3.0, 1.0))
    assert gaussian is not None
    assert Fraction(gaussian) <= Fraction(1, 3)
    assert gaussian == pytest.approx(1.0 / 3.0)
    assert multiplier(dp.ledger.LaplaceSum("count", 2.0, 5.0)) == 2.5
    assert multiplier(dp.ledger.RandomizedResponse("answer", 2, 0.6)) is None


@pytest.mark.parametrize(
    ("adjacency", "said", "unsaid"),
    [
        (dp.Adjacency.ADD_OR_REMOVE, "one patient more", "counts as public"),
        (dp.Adjacency.ZERO_OUT, "counts as public", "exchanged"),
        (dp.Adjacency.REPLACE_ONE, "one patient is exchanged", "contributes nothing"),
    ],
)
def test_every_adjacency_says_who_is_a_neighbour_and_what_is_public(
    adjacency: dp.Adjacency, said: str, unsaid: str
) -> None:
    words = adjacency_words(adjacency, dp.Unit("patient"))
    assert said in words
    assert unsaid not in words


def test_names_and_marks_without_words_of_their_own() -> None:
    assert label_words("") == "without a name"
    assert mark_words("unsafe_test_key").startswith("unsafe_test_key (")
    assert mark_words("unsafe_example") == "unsafe_example"
