"""A stream whose words a test writes itself, so that every case can be enumerated; and streams from
fixed test keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray

from discreet.randomness import Purpose, Source, Stream

KEY = bytes(range(32))


def source(number: int = 0) -> Source:
    """The same bits in every run of a test, other bits for another number."""
    return Source.unsafe_test_key(number.to_bytes(4, "big") + KEY[4:])


def stream(number: int = 0) -> Stream:
    return source(number).stream(Purpose.SAMPLE, step=0)


class _Written:
    def __init__(self, words: Sequence[int], children: dict[str, Sequence[int]]) -> None:
        self._words = np.array(words, np.uint64)
        self._children = children

    def fill(self, out: NDArray[np.uint64], start: int = 0) -> None:
        if start + out.size > self._words.size:
            message = f"word {start + out.size - 1} was not written"
            raise LookupError(message)
        out[:] = self._words[start : start + out.size]

    def words(self, count: int, start: int = 0) -> NDArray[np.uint64]:
        out = np.empty(count, np.uint64)
        self.fill(out, start)
        return out

    def child(self, label: str) -> _Written:
        return _Written(self._children.get(label, ()), {})


def written(words: Sequence[int], **children: Sequence[int]) -> Stream:
    """A stream with these words; a child is named with `_` in place of `/`."""
    named = {label.replace("_", "/"): part for label, part in children.items()}
    return cast("Stream", _Written(words, named))


def coins(first_digits: Sequence[int]) -> list[int]:
    """The words that hold these 16-bit digits in order, filled up with zeros."""
    padded = [*first_digits, *[0] * (-len(first_digits) % 4)]
    return [int(word) for word in np.array(padded, np.uint16).view(np.uint64)]
