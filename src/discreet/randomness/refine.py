"""The exact path: a pair decided by as many further bits as it takes, in integer interval
arithmetic.

Round i = 1, 2, ... of pair j appends to u the 64 bits of word 2j and to t those of word 2j+1 of the
stream's child "refine/i". The bits of a pair are addressed by the pair, so it does not matter which
backend asked, in which order, or how often.
"""

from __future__ import annotations

from math import isqrt

import numpy as np
from numpy.typing import NDArray

from discreet.errors import NumericsError
from discreet.randomness._enclosures import minus_log, sine_cosine
from discreet.randomness.source import Stream

__all__ = ["LARGEST", "refine"]

LARGEST = 2**52  # a sum below 2^52 and noise below 2^52 add exactly

_BITS = 128  # of the fixed point before the first round: far finer than the words
_ROUND = 64
_MOST_ROUNDS = 1_000


def refine(stream: Stream, pair: int, words: NDArray[np.uint64], scale: float) -> tuple[int, int]:
    """The noise integers of one pair, exactly.

    Guarantee: the integers nearest to (x1, x2) of `box_muller` for the infinite expansions that
    begin with `words` and go on with the pair's refinement bits. It ends with probability 1: the
    enclosures shrink by 2^-64 with every round.

    Args:
        stream: the one that the words come from; its children hold the further bits [secret].
        pair: number of the pair in the stream.
        words: its two words [secret].
        scale: standard deviation, as the rational that the float is [grid units, public].

    Raises:
        NumericsError: noise of 2^52 or more, or more than 1,000 rounds. Neither has a probability
            above 2^-800.
    """
    first, second = (int(word) for word in words)
    u, u_bits = first >> 1, 63
    t, t_bits = second & (2**52 - 1), 52
    for i in range(_MOST_ROUNDS):
        if i:
            more, further = (
                int(word) for word in stream.child(f"refine/{i}").words(2, start=2 * pair)
            )
            u, u_bits = u << _ROUND | more, u_bits + _ROUND
            t, t_bits = t << _ROUND | further, t_bits + _ROUND
        decided = _decide(u, u_bits, t, t_bits, scale)
        if decided is not None:
            x1, x2 = decided
            if second >> 63 & 1:
                x1, x2 = -x1, -x2
            if max(abs(x1), abs(x2)) >= LARGEST:
                break
            return (x2, x1) if second >> 62 & 1 else (x1, x2)
    raise NumericsError(
        expected=f"noise below 2^52, decided within {_MOST_ROUNDS} rounds",
        got="a sequence of bits that no working generator gives",
        do="Do not use this machine: its cipher or its memory is broken.",
    )


def _decide(u: int, u_bits: int, t: int, t_bits: int, scale: float) -> tuple[int, int] | None:
    """Both nearest integers, if they are the same for all U in [u, u+1] * 2^-u_bits and all angles
    of [t, t+1] * 2^-t_bits.
    """
    if u == 0:  # the radius has no bound yet
        return None
    bits = _BITS + u_bits - 63
    lo, hi = minus_log(u, u_bits, bits)
    lo = max(lo - (1 << bits) // u - 1, 0)  # ln(u + 1) - ln(u) < 1/u
    r_lo, r_hi = isqrt(lo << bits + 1), isqrt(hi << bits + 1) + 1
    middle = 1 << t_bits - 1
    negative = t < middle
    sine, cosine = sine_cosine(middle - t - 1 if negative else t - middle, t_bits, bits)
    numerator, denominator = scale.as_integer_ratio()
    nearest = []
    for value_lo, value_hi in (cosine, sine):
        unit = denominator << 2 * bits
        below = (2 * numerator * r_lo * value_lo + unit) // (2 * unit)
        above = (2 * numerator * r_hi * value_hi + unit) // (2 * unit)
        if below != above:
            return None
        nearest.append(below)
    x1, x2 = nearest
    return x1, -x2 if negative else x2
