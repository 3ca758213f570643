"""Which records are canaries, and which of them are in."""

import copy
import pickle

import numpy as np
import pytest

from discreet.canaries import Canaries
from discreet.errors import ParameterError, RandomnessMisuse
from discreet.randomness import Source

KEY = bytes(range(32))


def test_records_of_a_sample_are_told_from_canaries() -> None:
    canaries = Canaries([3, 9, 5], source=Source.unsafe_test_key(KEY))
    assert canaries.places.tolist() == [3, 5, 9]
    assert canaries.numbers(np.array([9, 0, 4, 3, 100, 5])).tolist() == [2, -1, -1, 0, -1, 1]
    assert canaries.numbers(np.array([], np.int64)).size == 0


def test_absent_are_the_canaries_that_are_out_and_nobody_else() -> None:
    canaries = Canaries(range(10, 40), source=Source.unsafe_test_key(KEY))
    assert 0 < canaries.inside.sum() < 30
    absent = canaries.absent(np.arange(50))
    assert not np.delete(absent, np.arange(10, 40)).any()
    assert (absent[10:40] == ~canaries.inside).all()


def test_coins_are_fair_and_independent_of_each_other() -> None:
    """Of 2^16 coins, heads and equal neighbours are Binomial(2^16, 1/2): beyond 5 standard
    deviations with probability 6e-7.

    Caught: coins of probability 0.49 (5.1 standard deviations off), and coins that are each tossed
        for two canaries.
    """
    inside = Canaries(range(2**16), source=Source.unsafe_test_key(KEY)).inside
    assert abs(int(inside.sum()) - 2**15) <= 5 * 2**7
    assert abs(int((inside[1:] == inside[:-1]).sum()) - 2**15) <= 5 * 2**7
    twice = np.repeat(inside[: 2**15], 2)
    assert abs(int((twice[1:] == twice[:-1]).sum()) - 2**15) > 5 * 2**7


def test_every_source_tosses_its_own_coins_and_no_source_twice() -> None:
    one, other = (Canaries(range(64)) for _ in range(2))
    assert (one.inside != other.inside).any()
    source = Source.unsafe_test_key(KEY)
    Canaries([1], source=source)
    with pytest.raises(RandomnessMisuse):
        Canaries([1], source=source)


@pytest.mark.parametrize("places", [[], [[1]], [1, 1], [-1], [0.5], [True]])
def test_wrong_places_are_refused(places: list[object]) -> None:
    with pytest.raises(ParameterError, match="places"):
        Canaries(places)  # type: ignore[arg-type]


def test_p46_coins_are_neither_shown_nor_copied_nor_changed() -> None:
    canaries = Canaries([1, 2])
    assert "not shown" in repr(canaries)
    for take in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(RandomnessMisuse):
            take(canaries)
    with pytest.raises(ValueError, match="read-only"):
        canaries.inside[0] = True
