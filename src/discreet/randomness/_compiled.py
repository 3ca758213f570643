"""The fast path of the Gaussian noise, compiled by numba: the operations of `box_muller`.

The same operations in the same order on the same coefficients, so the error budget of `box_muller`
(docs/proofs/noise.md, section 3) is that of this file too; a test compares the bits of x1 and x2
before rounding. There is no branch per pair, so that the compiler uses the widest vectors there
are. Compiled without fast-math: nothing is reordered and nothing fused (a test reads the machine
code).

Nothing is cached on disk: numba's cache is a pickle, and its age is told from the date of one file,
so that an old kernel could run with new coefficients. Compiling takes about a second, once in a
process. The first use is checked against `box_muller`.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from discreet.errors import NumericsError
from discreet.randomness import box_muller

__all__ = ["add", "compile_noise", "compiled_candidates"]

# Words at a time: they and the scratch stay in the first cache.
_BLOCK = 1024

# w1 >> 33 is the upper part of u = w1 >> 1, the lower part has 32 bits.
_ONE_BIT = np.uint64(1)
_HIGH = np.uint64(33)
_LOW = np.uint64(2**32 - 1)

# Parts of a float64.
_EXPONENT = np.uint64(52)
_FRACTION = np.uint64(2**52 - 1)
_SIGN = np.uint64(2**63)
_BITS_OF_1 = np.uint64(0x3FF << 52)

# A fraction below the exponent of 2^52 counts ones, below that of 2^84 it counts 2^32: so integers
# become floats by their bits, and the offsets are subtracted.
_BITS_OF_2_52 = np.uint64(0x433 << 52)
_BITS_OF_2_84 = np.uint64(0x453 << 52)
_OFFSETS = 2.0**84 + 2.0**52
_BIAS = 2.0**52 + 1023.0 + 63.0

# The bits of sqrt(1/2): a mantissa is in sqrt(1/2) * [1, 2).
_BITS_OF_ROOT = np.uint64(0x3FE6A09E667F3BCD)
_ROOT_TO_1 = np.uint64((0x3FF << 52) - 0x3FE6A09E667F3BCD)

# Added and subtracted, it rounds to the nearest integer, ties to even, and never to -0.0.
_ROUNDER = 1.5 * 2.0**52

_LOWEST, _HIGHEST = box_muller.LOWEST, box_muller.HIGHEST
_MINUS_TWO_LN_2 = box_muller.MINUS_TWO_LN_2 * 2.0**52
_L0, _L1, _L2, _L3, _L4, _L5 = box_muller.LOG
_S0, _S1, _S2, _S3, _S4, _S5 = box_muller.SINE


def _radius(w1: Any, w2: Any, scale: Any) -> tuple[Any, Any]:
    """Compute r with the sign of the pair, and u.

    This and the next two functions run on numbers, compiled, and on arrays, in tests.
    """
    # The sum is rounded once, as in a conversion of u.
    high = np.uint64(w1 >> _HIGH | _BITS_OF_2_84).view(np.float64)
    low = np.uint64(w1 >> _ONE_BIT & _LOW | _BITS_OF_2_52).view(np.float64)
    u = (high - _OFFSETS) + low

    # u = mantissa * 2^(exponent + 63), exactly.
    bits = np.float64(u).view(np.uint64) + _ROOT_TO_1
    mantissa = np.uint64((bits & _FRACTION) + _BITS_OF_ROOT).view(np.float64)
    exponent = np.uint64(bits >> _EXPONENT | _BITS_OF_2_52).view(np.float64) - _BIAS

    # The operations of `box_muller.radius`, in its order.
    z = (1.0 - mantissa) / (mantissa + 1.0)
    t = z * z
    minus_two_ln_m = (((((t * _L5 + _L4) * t + _L3) * t + _L2) * t + _L1) * t + _L0) * z
    radius = np.sqrt(minus_two_ln_m + exponent * _MINUS_TWO_LN_2) * scale
    return np.uint64(np.float64(radius).view(np.uint64) | (w2 & _SIGN)).view(np.float64), u


def _sine(w2: Any) -> Any:
    f = np.uint64(w2 & _FRACTION | _BITS_OF_1).view(np.float64) - 1.5
    t = f * f
    return (((((t * _S5 + _S4) * t + _S3) * t + _S2) * t + _S1) * t + _S0) * f


def _cartesian(radius: Any, sine: Any) -> tuple[Any, Any]:
    return radius * np.sqrt(1.0 - sine * sine), radius * sine


_inlined_radius, _inlined_sine, _inlined_cartesian = (
    njit(inline="always")(f) for f in (_radius, _sine, _cartesian)
)


def _block(
    words: Any, scale: float, limit: float, integers: Any, sine: Any, radius: Any, margin: Any
) -> int:
    """Add the integers of the decided pairs of a block; count and mark the undecided ones.

    A pair that is not decided has NaN as its margin. There are three loops, as a processor has more
    pairs of a short loop in flight.
    """
    pairs = integers.size >> 1
    for j in range(pairs):
        sine[j] = _inlined_sine(words[2 * j + 1])

    for j in range(pairs):
        radius[j], u = _inlined_radius(words[2 * j], words[2 * j + 1], scale)
        margin[j] = limit if (u >= _LOWEST) & (u <= _HIGHEST) else np.nan

    undecided = 0

    for j in range(pairs):
        x, y = _inlined_cartesian(radius[j], sine[j])
        exchange = np.int64(words[2 * j + 1] << _ONE_BIT) < 0
        x1, x2 = (y if exchange else x), (x if exchange else y)
        k1 = (x1 + _ROUNDER) - _ROUNDER
        k2 = (x2 + _ROUNDER) - _ROUNDER

        # False where the margin is NaN, that is outside of the window.
        decided = (abs(x1 - k1) <= margin[j]) & (abs(x2 - k2) <= margin[j])
        integers[2 * j] += k1 if decided else 0.0
        integers[2 * j + 1] += k2 if decided else 0.0
        margin[j] = limit if decided else np.nan
        undecided += 1 - decided

    return undecided


_compiled_block = njit(nogil=True, error_model="numpy")(_block)


def _walk(words: Any, scale: float, limit: float, integers: Any) -> Any:
    """Add the integers of all decided pairs, block by block; list the undecided ones."""
    undecided = np.empty(words.size >> 1, np.intp)
    count = 0
    sine, radius, margin = np.empty(_BLOCK >> 1), np.empty(_BLOCK >> 1), np.empty(_BLOCK >> 1)

    for start in range(0, words.size, _BLOCK):
        piece = slice(start, start + _BLOCK)
        if _compiled_block(words[piece], scale, limit, integers[piece], sine, radius, margin) > 0:
            for j in range(integers[piece].size >> 1):
                if np.isnan(margin[j]):
                    undecided[count] = (start >> 1) + j
                    count += 1

    return undecided[:count]


_compiled_walk = njit(nogil=True, error_model="numpy")(_walk)


def add(words: NDArray[np.uint64], scale: float, integers: NDArray[np.float64]) -> NDArray[np.intp]:
    """Add the noise integers of all decided pairs; return the indices of those left out.

    Args:
        words: 2m random words, contiguous [secret].
        scale: standard deviation, in 2^-32 ... 2^32 [grid units, public].
        integers: 2m float64, contiguous [sensitive].

    Raises:
        NumericsError: this thread does not round to nearest, or the compiled code does not agree
            with `box_muller`.
    """
    compile_noise()
    box_muller.check_rounding()
    return _add(words, scale, integers)


def compiled_candidates(
    words: NDArray[np.uint64], scale: float, out: NDArray[np.float64]
) -> NDArray[np.intp]:
    """Write noise integers as `box_muller.candidates` does; an undecided pair gets zeros."""
    out[:] = 0.0
    return add(words, scale, out)


def _add(
    words: NDArray[np.uint64], scale: float, integers: NDArray[np.float64]
) -> NDArray[np.intp]:
    undecided: NDArray[np.intp] = _compiled_walk(
        words, scale, box_muller.decision_threshold(scale), integers
    )
    return undecided


@cache
def compile_noise() -> None:
    """Compile, and compare with `box_muller` on a few thousand words.

    Not left to a background thread: a fork in the middle could never compile.
    """
    # Multiples of an odd number near 2^64 over the golden ratio are well spread.
    words = np.arange(1, 4 * _BLOCK + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    scale = 1.1 * 2.0**23
    ours, theirs = np.zeros(words.size), np.empty(words.size)
    undecided = np.union1d(_add(words, scale, ours), box_muller.candidates(words, scale, theirs))
    wrong = ours.reshape(-1, 2) != theirs.reshape(-1, 2)
    wrong[undecided] = False
    if wrong.any() or undecided.size > 4:
        raise NumericsError(
            expected="a compiled kernel that agrees with the NumPy path",
            got=(
                f"{int(wrong.sum())} other numbers of {words.size}, {undecided.size} pairs "
                "undecided"
            ),
            do="Repair or remove numba: without it the NumPy path is used.",
        )
