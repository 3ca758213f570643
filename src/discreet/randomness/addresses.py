"""Which words a number of the noise reads.

Number j of a release belongs to a number of words w_0, w_1, ..., and each word goes on with further
bits where its first 64 do not decide:

    w_0                     word j of the release's stream
    w_1 ... w_5             if w_0 is not inside of its layer: words 5 (B + q), ... of the child
                            "further"; B is the first number of j's block of 2^20 numbers, and q
                            counts the numbers before j in the block that are outside, too
    w_6, w_7, ...           the words of the child "number/j"
    round m of word n       word n of the child "number/j/round/m"

Whether w_0 is outside is a comparison of integers with a fixed table. So the words of a number
depend on the stream and on j alone: not on who asks, in which pieces, in which order or how often.
Different numbers read different words (docs/proofs/noise.md, section 3).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from discreet.errors import RandomnessMisuse
from discreet.randomness._cipher import Cursor
from discreet.randomness.source import Stream

__all__ = [
    "BLOCK_SIZE",
    "FURTHER",
    "MOST_NUMBERS",
    "PIECE_SIZE",
    "Reader",
    "further_bits",
    "later_word",
]

# Numbers of a block: what a block costs, such as a cipher for its further words, does not count.
BLOCK_SIZE = 2**20

# Numbers that are worked on at a time: their words stay in the cache.
PIECE_SIZE = 2**16

# Further words of a number that lie side by side: with w_0, three attempts of two words each.
FURTHER = 5

# Numbers of one stream; their further words stay below the 2^34 that a stream has.
MOST_NUMBERS = 2**31


class Reader:
    """Reads the words of a release for one thread, with one buffer and as few ciphers as can be."""

    __slots__ = ("_buffer", "_cursor", "_further", "_rows", "_stream")

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._further = stream.child("further")
        self._buffer = np.empty(PIECE_SIZE, np.uint64)
        self._rows = np.empty(0, np.uint64)
        self._cursor = Cursor()

    def first(self, start: int, count: int) -> NDArray[np.uint64]:
        """Read w_0 of the numbers start, start + 1, ...; valid until the next call."""
        words = self._buffer[:count]

        # Fewer words would leave sums without noise.
        if words.size != count:
            raise RandomnessMisuse(
                expected=f"at most {words.size} words at once",
                got=f"{count}",
                do="Read them in pieces.",
            )

        self._stream.fill(words, start, self._cursor)
        return words

    def further(self, block: int, rank: int, count: int) -> NDArray[np.uint64]:
        """Read w_1 ... w_5 of the numbers of a block that are outside, from this rank on.

        Valid until the next call.

        Args:
            block: the first number of the block.
            rank: how many numbers before them in the block are outside.
            count: how many numbers; a row each.
        """
        if self._rows.size < FURTHER * count:
            self._rows = np.empty(2 * FURTHER * count, np.uint64)

        words = self._rows[: FURTHER * count]
        self._further.fill(words, FURTHER * (block + rank))
        return words.reshape(count, FURTHER)


def later_word(stream: Stream, number: int, n: int) -> int:
    """Read w_n of a number, for n > 5."""
    return int(stream.child(f"number/{number}").words(1, n - FURTHER - 1)[0])


def further_bits(stream: Stream, number: int, n: int, turn: int) -> int:
    """Read the 64 bits that w_n of a number goes on with in round `turn` of refinement."""
    return int(stream.child(f"number/{number}/round/{turn}").words(1, n)[0])
