"""Exact draws: every case of a decision, fed by hand where that shows more than chance."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest

from discreet.errors import ParameterError, RandomnessMisuse
from discreet.randomness import draws
from discreet.randomness.draws import below, bernoulli, permutation, smallest_keys, subset
from support.written_streams import coins, stream, written

PROBABILITIES = (0.5, 0.01, 1 / 3, 6.5e-8, 1e-12, 5e-324, 2.0**-16, 1.0 - 2.0**-53, 1.5 * 2.0**-16)
EVERY_DIGIT = range(2**16)


# --- coins ---


@pytest.mark.parametrize("probability", PROBABILITIES)
def test_p27_the_digits_are_the_probability_exactly(probability: float) -> None:
    value, unit = Fraction(0), Fraction(1)
    for level, digit in enumerate(draws._digits(probability)):
        width = 16 if level == 0 else 64
        assert 0 <= digit < 2**width
        unit /= 2**width
        value += digit * unit
    assert value == Fraction(probability)


def check_all_first_digits(probability: float) -> None:
    """Feed each of the 65536 first digits once: the heads are those below, and the one tie is
    decided by the next digit.
    """
    first, *rest = draws._digits(probability)
    words = coins(EVERY_DIGIT)
    if not rest:
        assert bernoulli(written(words), probability, 0, 2**16).tolist() == list(range(first))
        return
    below_it = (
        bernoulli(written(words, digit_1=[rest[0] - 1]), probability, 0, 2**16) if rest[0] else None
    )
    above_it = (
        bernoulli(written(words, digit_1=[rest[0] + 1]), probability, 0, 2**16)
        if rest[0] < 2**64 - 1
        else None
    )
    assert below_it is None or below_it.tolist() == list(range(first + 1))
    assert above_it is None or above_it.tolist() == list(range(first))


@pytest.mark.parametrize("probability", PROBABILITIES)
def test_p27_every_first_digit_is_decided_rightly(probability: float) -> None:
    check_all_first_digits(probability)


def test_p27_a_tie_at_every_digit_is_tails() -> None:
    """U = p exactly, to all digits, is not below p."""
    digits = draws._digits(0.3)
    assert len(digits) == 2
    assert bernoulli(written(coins([digits[0]]), digit_1=[digits[1]]), 0.3, 0, 1).size == 0


def test_p27_the_smallest_float_is_decided_at_its_last_digit() -> None:
    digits = draws._digits(5e-324)
    assert digits[:-1] == [0] * 17
    ties = {f"digit_{level}": [0] for level in range(1, 17)}
    assert bernoulli(written([0], **ties, digit_17=[digits[-1] - 1]), 5e-324, 0, 1).tolist() == [0]
    assert bernoulli(written([0], **ties, digit_17=[digits[-1]]), 5e-324, 0, 1).size == 0


def check_ranges_join() -> None:
    """Ties come first in a block and last, and ranges begin and end in the middle of blocks."""
    whole = bernoulli(stream(), 1.5 * 2.0**-10 + 2.0**-17, 0, 3 * draws._BLOCK + 7)
    edges = [
        0,
        1,
        draws._BLOCK - 1,
        draws._BLOCK + 5,
        2 * draws._BLOCK,
        3 * draws._BLOCK + 6,
        3 * draws._BLOCK + 7,
    ]
    parts = [
        bernoulli(stream(), 1.5 * 2.0**-10 + 2.0**-17, start, stop)
        for start, stop in itertools.pairwise(edges)
    ]
    np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_p22_coins_do_not_depend_on_the_range_asked_for() -> None:
    check_ranges_join()


def test_ties_of_one_block_read_different_words() -> None:
    first, second = draws._digits(0.3)
    heads = bernoulli(
        written(coins([first] * 3), digit_1=[second - 1, second + 1, second - 1]), 0.3, 0, 3
    )
    assert heads.tolist() == [0, 2]
    later = bernoulli(
        written(coins([first] * 3), digit_1=[second - 1, second + 1, second - 1]), 0.3, 2, 3
    )
    assert later.tolist() == [2]


def check_tie_words_belong_to_blocks() -> None:
    """The first position of the second block ties: it reads that block's first tie word, however
    the range begins.
    """
    first, second = draws._digits(0.3)
    words = coins([2**16 - 1] * draws._BLOCK + [first])
    ties = [second + 1] + [0] * (draws._BLOCK - 1) + [second - 1]
    assert bernoulli(written(words, digit_1=ties), 0.3, 0, draws._BLOCK + 1).tolist() == [
        draws._BLOCK
    ]
    assert bernoulli(
        written(words, digit_1=ties), 0.3, draws._BLOCK, draws._BLOCK + 1
    ).tolist() == [draws._BLOCK]


def test_p22_tie_words_belong_to_blocks() -> None:
    check_tie_words_belong_to_blocks()


def test_certain_and_impossible_coins() -> None:
    assert bernoulli(stream(), 1.0, 3, 6).tolist() == [3, 4, 5]
    assert bernoulli(stream(), 0.0, 0, 10**5).size == 0
    assert bernoulli(stream(), 0.5, 4, 4).size == 0


@pytest.mark.parametrize("probability", [-0.1, 1.1, float("nan"), "0.1", True])
def test_p45_a_wrong_probability_is_refused(probability: float) -> None:
    with pytest.raises(ParameterError):
        bernoulli(stream(), probability, 0, 1)


def test_a_range_beyond_the_stream_is_refused() -> None:
    with pytest.raises(RandomnessMisuse):
        bernoulli(stream(), 0.5, 2**36, 2**36 + 1)


# --- integers ---


def check_no_value_is_preferred(bound: int) -> None:
    """The accepted words are a whole number of runs of `bound`; the next word is passed over."""
    accepted = 2**64 - 2**64 % bound
    edge = [accepted - 1, 2**64 - 1, 7] if accepted < 2**64 else [accepted - 1, 7]
    assert below(written([*edge, 7]), bound, 2).tolist() == [bound - 1, 7 % bound]


@pytest.mark.parametrize("bound", [1, 2, 3, 10, 2**32 + 1, 2**62 + 1, 2**63 - 1])
def test_integers_pass_over_the_words_that_would_bias_them(bound: int) -> None:
    check_no_value_is_preferred(bound)


def test_integers_beyond_one_block_are_those_of_one_sequence() -> None:
    count = draws._BLOCK + 3
    np.testing.assert_array_equal(
        below(stream(), 2**62 + 1, count)[:1000], below(stream(), 2**62 + 1, 1000)
    )


def test_a_bound_below_one_is_refused() -> None:
    with pytest.raises(ParameterError):
        below(stream(), 0, 1)


# --- subsets ---


@pytest.mark.parametrize(
    ("size", "population"),
    [(0, 0), (0, 5), (5, 5), (1, 1), (3, 10**12), (6, 100), (7, 100), (99, 100)],
)
def test_a_subset_has_its_size(size: int, population: int) -> None:
    drawn = subset(stream(), size, population)
    assert drawn.dtype == np.int64
    assert drawn.size == size == np.unique(drawn).size
    assert np.all((drawn >= 0) & (drawn < population))
    assert np.all(np.diff(drawn) > 0)


def test_a_subset_is_the_first_different_values() -> None:
    assert subset(written([40, 7, 40, 140, 7, 99]), 3, 100).tolist() == [7, 40, 99]


def test_a_subset_larger_than_the_population_is_refused() -> None:
    with pytest.raises(ParameterError):
        subset(stream(), 6, 5)


# --- permutations ---


def check_ties_are_put_in_random_order() -> None:
    """All keys equal: the order is that of the tie words, so the 24 orders of these give the 24
    permutations.
    """
    seen = {
        tuple(permutation(written([5] * 4, tie_0=list(words)), 4).tolist())
        for words in itertools.permutations(range(4))
    }
    assert len(seen) == 24


def test_equal_keys_of_a_permutation_are_decided_by_more_bits() -> None:
    check_ties_are_put_in_random_order()


def test_a_tie_stays_in_its_run() -> None:
    words = [2**63, 1, 2**63, 2]  # elements 1 and 3 tie in front, 0 and 2 behind
    assert permutation(written(words, tie_0=[9, 1, 1, 9]), 4).tolist() == [3, 1, 0, 2]
    assert permutation(written(words, tie_0=[9, 9, 1, 9], tie_1=[1, 9, 9, 1]), 4).tolist() == [
        1,
        3,
        2,
        0,
    ]  # drawn again


@pytest.mark.parametrize("count", [0, 1, 2, 3, 64, 65, 1000])
def test_a_permutation_has_every_element(count: int) -> None:
    order = permutation(stream(), count)
    assert order.dtype == np.int64
    assert sorted(order.tolist()) == list(range(count))


# --- rows of units ---


def test_ranges_give_their_smallest_keys() -> None:
    starts, stops = np.array([0, 4, 6]), np.array([4, 6, 6])
    keys = [3, 9, 1, 2, 0, 0]
    assert smallest_keys(written([], keys_0=keys), starts, stops, 2).tolist() == [2, 3, 4, 5]
    assert smallest_keys(written([], keys_0=keys), starts, stops, 9).tolist() == [0, 1, 2, 3, 4, 5]


def test_equal_keys_of_a_range_are_all_drawn_again() -> None:
    starts, stops = np.array([0, 3]), np.array([3, 6])
    chosen = smallest_keys(
        written([], keys_0=[1, 1, 0, 5, 6, 7], keys_1=[0, 8, 9, 0, 0, 0]), starts, stops, 1
    )
    assert chosen.tolist() == [0, 3]


def test_the_choice_from_a_range_does_not_depend_on_other_ranges() -> None:
    starts, stops = np.array([0, 50, 80]), np.array([50, 80, 1000])
    together = smallest_keys(stream(), starts, stops, 5)
    apart = [smallest_keys(stream(), starts[[one]], stops[[one]], 5) for one in range(3)]
    np.testing.assert_array_equal(together, np.concatenate(apart))
    assert together.size == 15


def test_no_range_gives_no_position() -> None:
    none = np.empty(0, np.int64)
    assert smallest_keys(stream(), none, none, 3).size == 0
