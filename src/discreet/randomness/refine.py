"""The exact path: a pair decided by as many further bits as it takes, in integer intervals.

Round i = 1, 2, ... of pair j appends to u the 64 bits of word 2j and to t those of word 2j+1 of the
stream's child "refine/i". The bits of a pair are addressed by the pair, so it does not matter which
backend asked, in which order, or how often.

The map from bits to integers is that of [BoxMuller1958] as `box_muller` states it. That the
enclosures hold it, and that refinement ends, is proven in docs/proofs/noise.md, section 4; why
reading further bits only where they are needed leaves the law as it is, in section 2.
"""

from __future__ import annotations

from math import isqrt

import numpy as np
from numpy.typing import NDArray

from discreet.errors import NumericsError
from discreet.randomness._enclosures import enclosed_sine_cosine, minus_log
from discreet.randomness.source import Stream

__all__ = ["LARGEST", "refine"]

# A sum below 2^52 and noise below 2^52 add exactly in float64.
LARGEST = 2**52

# Bits of the fixed point before the first round, far finer than the words; bits of a round.
_BITS = 128
_ROUND = 64

# Reached with a probability below 2^-800 (noise.md, section 4).
_MOST_ROUNDS = 1_000


def refine(stream: Stream, pair: int, words: NDArray[np.uint64], scale: float) -> tuple[int, int]:
    """Decide the noise integers of one pair, exactly.

    Guarantee: the integers nearest to (x1, x2) of `box_muller` for the infinite expansions that
    begin with `words` and go on with the pair's refinement bits. It ends with probability 1: the
    enclosures shrink by 2^-64 with every round.

    | words | result |
    |---|---|
    | first word 0 or 1: u = 0 | decided by further bits, as the radius has no bound yet |
    | all bits set: U just below 1 | (0, 0) for scales below 2^30, without further bits |
    | bits 62, 63 of the second word | exchange the integers; negate both |

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
            further = stream.child(f"refine/{i}").words(2, start=2 * pair)
            u, u_bits = u << _ROUND | int(further[0]), u_bits + _ROUND
            t, t_bits = t << _ROUND | int(further[1]), t_bits + _ROUND

        decided = _decide(u, u_bits, t, t_bits, scale)
        if decided is not None:
            x1, x2 = decided
            if second >> 63 & 1:
                x1, x2 = -x1, -x2

            # Neither saturated nor drawn again, either of which would change the law.
            if max(abs(x1), abs(x2)) >= LARGEST:
                break

            return (x2, x1) if second >> 62 & 1 else (x1, x2)

    raise NumericsError(
        expected=f"noise below 2^52, decided within {_MOST_ROUNDS} rounds",
        got="a sequence of bits that no working generator gives",
        do="Do not use this machine: its cipher or its memory is broken.",
    )


def _decide(u: int, u_bits: int, t: int, t_bits: int, scale: float) -> tuple[int, int] | None:
    """Find both nearest integers, if all continuations of the bits have the same.

    These are all U in [u, u+1] * 2^-u_bits and all angles of [t, t+1] * 2^-t_bits. Numbers are
    enclosed as in `_enclosures`: lo <= y * 2^bits <= hi.
    """
    # The radius has no bound yet.
    if u == 0:
        return None

    # -ln U over the interval: its lower end is at u + 1, and ln(u + 1) - ln(u) < 1/u.
    bits = _BITS + u_bits - 63
    log_lo, log_hi = minus_log(u, u_bits, bits)
    log_lo = max(log_lo - (1 << bits) // u - 1, 0)

    # The radius sqrt(-2 ln U): integer roots, rounded down and up.
    r_lo, r_hi = isqrt(log_lo << bits + 1), isqrt(log_hi << bits + 1) + 1

    # The angle is (T - 1/2) pi/2. No prefix holds 0 inside, so its size and sign are separate.
    middle = 1 << t_bits - 1
    negative = t < middle
    sine, cosine = enclosed_sine_cosine(middle - t - 1 if negative else t - middle, t_bits, bits)

    # floor((2 x + 1) / 2) is the nearest integer of x; lower and upper ends must have the same.
    numerator, denominator = scale.as_integer_ratio()
    unit = denominator << 2 * bits
    nearest = []

    for value_lo, value_hi in (cosine, sine):
        below = (2 * numerator * r_lo * value_lo + unit) // (2 * unit)
        above = (2 * numerator * r_hi * value_hi + unit) // (2 * unit)
        if below != above:
            return None

        nearest.append(below)

    x1, x2 = nearest
    return x1, -x2 if negative else x2
