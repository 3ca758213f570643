"""The exact path: a number decided by as many further bits as it takes, in integer intervals.

The map from words to integers is that of `ziggurat`; every comparison of it, and the rounding at
its end, is made here with enclosures that hold the truth for all further bits. Where an enclosure
does not decide, 64 more bits are appended to each word that it depends on, by the addresses of
`addresses`, so it does not matter who asked, in which order, or how often.

Heights are compared by their logarithms: y < exp(-x^2/2) where -ln y > x^2/2. That the enclosures
hold, and that refinement ends, is proven in docs/proofs/noise.md, section 6; why reading further
bits only where they are needed leaves the law as it is, in section 3.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from discreet.errors import NumericsError
from discreet.randomness._enclosures import minus_log
from discreet.randomness.addresses import further_bits, later_word
from discreet.randomness.layers import (
    COUNT,
    HEIGHT_BITS,
    LIMIT_BITS,
    POSITION_BITS,
    R_BITS,
    R,
    layers,
)
from discreet.randomness.source import Stream

__all__ = ["LARGEST", "refine"]

# A sum below 2^52 and noise below 2^52 add exactly in float64.
LARGEST = 2**52

# Bits of a word; bits of the fixed point before the first round, far finer than the words.
_WORD = 64
_BITS = 128

# Attempts, and rounds of one decision; reached with a probability below 2^-800 (noise.md, section
# 6).
_MOST = 1_000

# lo <= y * 2^bits <= hi, as in `_enclosures`; None is infinity.
_Enclosure = tuple[int, int | None]


def refine(
    stream: Stream,
    number: int,
    words: NDArray[np.uint64],
    scale: float,
    limit: int | None = None,
) -> int:
    """Decide the noise integer of one number, exactly.

    Guarantee: the integer nearest to scale * x of the first attempt that is accepted, by the map of
    `ziggurat`, for the infinite expansions that begin with the number's words. It ends with
    probability 1: the enclosures shrink by 2^-64 with every round.

    | words | result |
    |---|---|
    | w_0 inside of its layer | accepted, and no other word is read |
    | layer 0, upper 52 bits all set or all zero | decided by further bits: x has no bound yet |
    | the upper 52 bits of w_0 negated | the same number, negated |

    Args:
        stream: the one that the words come from; its children hold the further bits [secret].
        number: its position in the stream.
        words: w_0, or w_0 ... w_5 where w_0 is outside [secret].
        scale: standard deviation, as the rational that the float is [grid units, public].
        limit: integers from here on are refused; 2^52 if None.

    Raises:
        NumericsError: noise of `limit` or more, or more than 1,000 attempts or rounds. For a limit
            of 2^52 and more, none has a probability above 2^-800.
    """
    expansions = _Expansions(stream, number, words)
    bound = LARGEST if limit is None else limit

    for n in range(_MOST):
        attempt = _Attempt(expansions, 2 * n)
        if attempt.is_accepted():
            nearest = attempt.nearest(scale)

            # Neither saturated nor drawn again, either of which would change the law.
            if nearest >= bound:
                break

            return -nearest if attempt.negative else nearest

    raise _broken()


class _Expansions:
    """The words of one number, as the infinite expansions that they begin."""

    def __init__(self, stream: Stream, number: int, words: NDArray[np.uint64]) -> None:
        self._stream = stream
        self._number = number
        self._words = {n: int(word) for n, word in enumerate(words)}

    def word(self, n: int) -> int:
        if n not in self._words:
            self._words[n] = later_word(self._stream, self._number, n)

        return self._words[n]

    def prefixes(self, n: int, unused: int = 0) -> Iterator[tuple[int, int]]:
        """Give longer and longer prefixes of w_n without its lowest bits: value and length."""
        value, length = self.word(n) >> unused, _WORD - unused
        yield value, length

        for turn in range(1, _MOST):
            value = value << _WORD | further_bits(self._stream, self._number, n, turn)
            length += _WORD
            yield value, length


class _Attempt:
    """A point of a layer: position w_n and height w_(n+1)."""

    def __init__(self, expansions: _Expansions, n: int) -> None:
        self._expansions = expansions
        self._n = n
        first = expansions.word(n)
        position = first >> _WORD - POSITION_BITS
        middle = 1 << POSITION_BITS - 1
        self._layer = first % COUNT
        self.negative = position < middle
        limit = layers().limits[self._layer] << POSITION_BITS - LIMIT_BITS
        self._inside = abs(position - middle) <= limit
        self._tail = self._layer == 0 and not self._inside and self._is_beyond_r()

    def is_accepted(self) -> bool:
        """Tell whether the point is under the bell."""
        if self._inside:
            return True

        heights = self._expansions.prefixes(self._n + 1)
        for (size, length), (height, height_length) in zip(
            self._distances(), heights, strict=False
        ):
            bits = _BITS + height_length - _WORD
            needed = self._half_square(size, length, bits)
            log = self._minus_log_height(height, height_length, bits)
            if needed[1] is not None and log[0] > needed[1]:
                return True

            if log[1] is not None and log[1] < needed[0]:
                return False

        raise _broken()

    def nearest(self, scale: float) -> int:
        """Find the integer nearest to scale * |x|."""
        numerator, denominator = scale.as_integer_ratio()

        for turn, (size, length) in enumerate(self._distances()):
            bits = _BITS + _WORD * turn
            lo, hi = self._x(size, length, bits)
            if hi is None:
                continue

            # floor((2 x + 1) / 2) is the nearest integer of x; both ends must have the same.
            unit = denominator << bits
            below = (2 * numerator * lo + unit) // (2 * unit)
            if below == (2 * numerator * hi + unit) // (2 * unit):
                return below

        raise _broken()

    def _distances(self) -> Iterator[tuple[int, int]]:
        """Enclose |F| by [m, m + 1] / 2^length: no prefix holds F = 0 inside."""
        for value, length in self._expansions.prefixes(self._n, _WORD - POSITION_BITS):
            middle = 1 << length - 1
            yield (middle - 1 - value if self.negative else value - middle), length

    def _is_beyond_r(self) -> bool:
        """Tell whether 2 |F| W_0 > r, which is U < 1."""
        for size, length in self._distances():
            (lo, hi), power = self._tail_uniform(size, length)
            if hi <= 1 << power:
                return True

            if lo >= 1 << power:
                return False

        raise _broken()

    def _tail_uniform(self, size: int, length: int) -> tuple[tuple[int, int], int]:
        """Enclose U = (r^2 + 1)(1 - 2 |F|); both ends are exact, over a power of two."""
        square = R**2 + (1 << 2 * R_BITS)
        rest = (1 << length - 1) - size
        return (square * (rest - 1), square * rest), 2 * R_BITS + length - 1

    def _tail_distance(self, size: int, length: int, bits: int) -> _Enclosure:
        """Enclose d = -ln(U) / r."""
        (lo, hi), power = self._tail_uniform(size, length)
        log_lo = minus_log(min(hi, 1 << power), power, bits)[0]
        if lo == 0:
            return (log_lo << R_BITS) // R, None

        log_hi = minus_log(lo, power, bits)[1]
        return (log_lo << R_BITS) // R, (log_hi << R_BITS) // R + 1

    def _x(self, size: int, length: int, bits: int) -> _Enclosure:
        """Enclose |x|."""
        if self._tail:
            r = R << bits - R_BITS
            lo, hi = self._tail_distance(size, length, bits)
            return r + lo, None if hi is None else r + hi

        # 2 |F| W.
        numerator, denominator = layers().widths[self._layer]
        unit = denominator << length
        lo, hi = ((end * numerator << bits + 1) // unit for end in (size, size + 1))
        return lo, hi + 1

    def _half_square(self, size: int, length: int, bits: int) -> _Enclosure:
        """Enclose x^2/2, and (r^2 + d^2)/2 in the tail."""
        lo, hi = (self._tail_distance if self._tail else self._x)(size, length, bits)
        start = (R**2 << bits) >> 2 * R_BITS + 1 if self._tail else 0

        # One more for each shift that rounded down.
        return start + (lo * lo >> bits + 1), (
            None if hi is None else start + (hi * hi >> bits + 1) + 2
        )

    def _minus_log_height(self, height: int, length: int, bits: int) -> _Enclosure:
        """Enclose -ln y, and -ln(V Y_1) in the tail. A y above 1 counts as 1: it is above the bell
        either way.
        """
        exact = layers()
        power = HEIGHT_BITS + length
        start = 0 if self._tail else exact.edges[self._layer] << length
        lo, hi = (start + end * exact.heights[self._layer] for end in (height, height + 1))
        least = minus_log(min(hi, 1 << power), power, bits)[0]
        return least, minus_log(min(lo, 1 << power), power, bits)[1] if lo else None


def _broken() -> NumericsError:
    return NumericsError(
        expected=f"noise below 2^52, decided within {_MOST} attempts and rounds",
        got="a sequence of bits that no working generator gives",
        do="Do not use this machine: its cipher or its memory is broken.",
    )
