"""The primitives by themselves: published answers, labels, words at every position."""

import itertools

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import ECB

from discreet.randomness._cipher import Cursor, blocks, derive, keystream

KEY = bytes(range(32))


def words(start: int, count: int, cursor: Cursor | None = None) -> list[int]:
    out = np.empty(count, np.uint64)
    keystream(lambda: KEY, start, out, cursor)
    return out.tolist()


def test_words_are_blocks_of_counters_from_zero() -> None:
    """A counter that began at 1, or words of the other byte order, would draw other noise."""
    encryptor = Cipher(AES256(KEY), ECB()).encryptor()
    blocks = b"".join(encryptor.update(i.to_bytes(16, "big")) for i in range(3))
    assert words(0, 6) == np.frombuffer(blocks, "<u8").tolist()


@pytest.mark.parametrize("start", [0, 1, 2, 7])
@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_any_piece_is_that_of_the_whole(start: int, count: int) -> None:
    """Beginning with the whole block would give an odd start the word before it."""
    assert words(start, count) == words(0, 20)[start : start + count]


def test_a_cursor_of_another_key_is_not_used() -> None:
    cursor, out = Cursor(), np.empty(4, np.uint64)
    keystream(lambda: bytes(32), 0, out, cursor)
    assert words(4, 4, cursor) == words(4, 4)


def test_labels_that_run_into_one_another_give_other_keys() -> None:
    """Labels that are joined without their lengths would be the same input."""
    lists = [("ab", "c"), ("a", "bc"), ("abc",), ("a", "b", "c"), ("abc", ""), ()]
    keys = [derive(lambda: KEY, *labels) for labels in lists]
    assert all(first != second for first, second in itertools.combinations(keys, 2))
    assert {len(key) for key in keys} == {32}


def test_blocks_in_any_order_hold_the_words_of_the_stream() -> None:
    numbers = np.array([3, 0, 3, 2**33 - 1])
    words_of = blocks(lambda: KEY, numbers).tolist()
    assert words_of == [words(2 * number, 2) for number in numbers.tolist()]
    assert blocks(lambda: KEY, numbers[:0]).shape == (0, 2)
