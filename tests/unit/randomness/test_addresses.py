"""Which words a number reads: those of the stated addresses, and no two numbers the same."""

import numpy as np
import pytest

from discreet.errors import RandomnessMisuse
from discreet.randomness import Purpose, Source, Stream
from discreet.randomness.addresses import (
    FURTHER,
    MOST_NUMBERS,
    PIECE_SIZE,
    Reader,
    further_bits,
    later_word,
)


def stream() -> Stream:
    return Source.unsafe_test_key(bytes(range(32))).stream(Purpose.NOISE, step=0)


def test_first_words_are_those_of_the_stream() -> None:
    reader, words = Reader(stream()), stream().words(1_000)
    assert np.array_equal(reader.first(0, 700), words[:700])
    assert np.array_equal(reader.first(700, 300), words[700:])
    assert np.array_equal(reader.first(3, 5), words[3:8])
    assert reader.first(0, 0).size == 0


def test_further_words_lie_side_by_side_from_the_block_on() -> None:
    child = stream().child("further")
    for block, rank, count in ((0, 0, 3), (2**20, 7, 2), (2**20, 8, 400), (0, 0, 0)):
        rows = Reader(stream()).further(block, rank, count)
        assert rows.shape == (count, FURTHER)
        expected = child.words(FURTHER * count, FURTHER * (block + rank))
        assert np.array_equal(rows.reshape(-1), expected)


def test_later_words_and_bits_belong_to_the_number() -> None:
    own = stream().child("number/12")
    assert [later_word(stream(), 12, n) for n in (6, 7, 9)] == [*own.words(2), own.words(1, 3)[0]]
    assert further_bits(stream(), 12, 3, 2) == stream().child("number/12/round/2").words(1, 3)[0]
    many = {further_bits(stream(), j, n, m) for j in (1, 12) for n in range(6) for m in (1, 2, 3)}
    assert len(many) == 36


def test_fewer_words_than_numbers_are_refused() -> None:
    with pytest.raises(RandomnessMisuse, match="in pieces"):
        Reader(stream()).first(0, PIECE_SIZE + 1)


def test_the_last_number_has_further_words() -> None:
    assert Reader(stream()).further(MOST_NUMBERS - 1, 0, 1).shape == (1, FURTHER)
