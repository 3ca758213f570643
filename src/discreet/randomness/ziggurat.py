"""The Ziggurat in float64: from random words to noise integers, where float64 can decide them.

A number reads words w_0, w_1, ... (`addresses`), two for each attempt n = 0, 1, ...: a position
p = w_2n and a height h = w_(2n+1), the first bits of two infinite binary expansions. With the
layers of `layers`:

    i = low 12 bits of p                      F in [t, t+1] * 2^-52 - 1/2, t = upper 52 bits of p
    |x| = 2 |F| W_i, x has the sign of F      V in [h, h+1] * 2^-64

    i > 0 or |x| <= r    accepted if y < exp(-x^2/2), for y = Y_i + V H_i
    i = 0 and |x| > r    U = (r^2 + 1)(1 - 2 |F|), uniform in [0, 1]; d = -ln(U)/r; |x| becomes
                         r + d; accepted if V Y_1 exp(-r d) < exp(-x^2/2)

The noise is the integer nearest to scale * x of the first attempt that is accepted: exactly a
rounded Gaussian (docs/proofs/noise.md, section 3). Every backend implements this map, in two tiers:

*   `release_inside` takes the numbers whose position is *inside*, |f| <= limit_i: under the bell
    whatever their height is. It writes sum and noise where no expansion with these first bits
    rounds to another integer, and NaN elsewhere: one number in a thousand.
*   `decide_outside` makes the attempts of numbers that are outside, with -ln of an own polynomial,
    and says NaN where an acceptance or a rounding is too close to tell.

`refine` decides the rest in integers, about one in ten million. Only + - * / of IEEE 754 and
integer operations are used, so nothing is assumed about a mathematical library. The three bounds
below are confirmed by a program that walks the functions of this file with a number type that
carries its error (tests/support/error_budget.py). Contraction to fused multiply-add leaves out
roundings, so the bounds cover it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from discreet.errors import NumericsError
from discreet.randomness.addresses import FURTHER, PIECE_SIZE
from discreet.randomness.layers import COUNT, R_BITS, R, tables

__all__ = [
    "ATTEMPTS",
    "BIAS",
    "BITS_OF_1",
    "BITS_OF_2_52",
    "BITS_OF_ROOT",
    "DOUBT",
    "ERROR",
    "FRACTION",
    "HEIGHT_UNIT",
    "INVERSE_R",
    "IN_NUMPY",
    "LEAST_HEIGHT",
    "LEAST_TAIL",
    "LOG",
    "MINUS_LN_2",
    "ROOT_TO_1",
    "ROUNDER",
    "R_FLOAT",
    "TAIL_AREA",
    "TAIL_ERROR",
    "Backend",
    "check_rounding",
    "decide_outside",
    "decision_threshold",
    "is_outside",
    "is_within_bound",
    "layer_index",
    "minus_logarithm",
    "ordinate",
    "position_of",
    "prepare_tables",
    "release_inside",
    "slopes",
    "split",
    "surplus",
    "tail_threshold",
]

# |x computed - x| < scale * ERROR for a number inside, and scale * TAIL_ERROR in the tail, for all
# further bits. Both are at least twice what the program finds (noise.md, sections 4 and 5).
ERROR = 2.0**-46
TAIL_ERROR = 2.0**-36

# |-ln y - x^2/2| above this is decided. It is seven times the error, and leaves out one number in
# 10^8.
DOUBT = 2.0**-34

# The windows of U and h. Below, the further bits count for too much.
LEAST_TAIL = 2.0**-10
LEAST_HEIGHT = 2.0**44

# Attempts that `decide_outside` has the words for.
ATTEMPTS = (FURTHER + 1) // 2

# V = h * HEIGHT_UNIT; U = TAIL_AREA (1 - 2 |F|); r, and 1/r. Each is rounded once.
HEIGHT_UNIT = 2.0**-64
TAIL_AREA = (R**2 + (1 << 2 * R_BITS)) / (1 << 2 * R_BITS)
R_FLOAT = R / (1 << R_BITS)
INVERSE_R = (1 << R_BITS) / R

# Coefficients of t^0, t^1, ..., near minimax: 2 atanh(z)/z for t = z^2, |z| <= 3 - sqrt(8).
LOG = (
    float.fromhex("0x1.fffffffffff12p+0"),
    float.fromhex("0x1.555555567148cp-1"),
    float.fromhex("0x1.9999962c06032p-2"),
    float.fromhex("0x1.2494381ee5869p-2"),
    float.fromhex("0x1.c620ee6e2b4a3p-3"),
    float.fromhex("0x1.9192e478c4308p-3"),
)
MINUS_LN_2 = float.fromhex("-0x1.62e42fefa39efp-1")
_L0, _L1, _L2, _L3, _L4, _L5 = LOG

# Added and subtracted, it rounds to the nearest integer, ties to even, and never to -0.0: integers
# have no signed zero, and a release must not have one.
ROUNDER = 1.5 * 2.0**52

_LAYER = np.uint64(COUNT - 1)
_LAYER_BITS = np.uint64(12)

# Parts of a float64. A fraction below the exponent of 2^52 counts ones.
_EXPONENT = np.uint64(52)
FRACTION = np.uint64(2**52 - 1)
BITS_OF_1 = np.uint64(0x3FF << 52)
BITS_OF_2_52 = np.uint64(0x433 << 52)
BIAS = 2.0**52 + 1023.0

# The bits of sqrt(1/2): a mantissa is in sqrt(1/2) * [1, 2), where |z| <= 3 - sqrt(8).
BITS_OF_ROOT = np.uint64(0x3FE6A09E667F3BCD)
ROOT_TO_1 = np.uint64((0x3FF << 52) - 0x3FE6A09E667F3BCD)

_Words = NDArray[np.uint64]
_Floats = NDArray[np.float64]
_Numbers = NDArray[np.floating]


class Backend(NamedTuple):
    """What computes the fast paths.

    is_within: as `is_within_bound`.
    prepare: builds or compiles what a release from one type into another needs.
    release: as `release_inside`.
    decide: as `decide_outside`.
    """

    is_within: Callable[[_Numbers, float], bool]
    prepare: Callable[[np.dtype[Any], np.dtype[Any]], None]
    release: Callable[[_Words, float, _Numbers, float, _Numbers], tuple[NDArray[np.intp], _Floats]]
    decide: Callable[[_Words, _Words, float], tuple[_Floats, int]]


# --- the parts of the map, which run on numbers and arrays, compiled, and in the proof ---


def layer_index(position: Any) -> Any:
    """Find the layer i of a position word."""
    return position & _LAYER


def position_of(position: Any) -> Any:
    """Find f = t * 2^-52 - 1/2, exactly: t under the exponent of 1 is 1 + t * 2^-52."""
    return np.uint64(position >> _LAYER_BITS | BITS_OF_1).view(np.float64) - 1.5


def ordinate(edge: Any, height: Any, v: Any) -> Any:
    """Compute y = Y_i + V H_i."""
    return edge + v * height


def split(number: Any) -> tuple[Any, Any]:
    """Split a number above 0 into mantissa * 2^exponent, exactly; both come as float64."""
    bits = np.float64(number).view(np.uint64) + ROOT_TO_1
    mantissa = np.uint64((bits & FRACTION) + BITS_OF_ROOT).view(np.float64)
    exponent = np.uint64(bits >> _EXPONENT | BITS_OF_2_52).view(np.float64) - BIAS
    return mantissa, exponent


def minus_logarithm(mantissa: Any, exponent: Any) -> Any:
    """Compute -ln(mantissa * 2^exponent), with -ln m = 2 atanh(z) for z = (1 - m)/(1 + m)."""
    z = (1.0 - mantissa) / (mantissa + 1.0)
    t = z * z
    return (((((t * _L5 + _L4) * t + _L3) * t + _L2) * t + _L1) * t + _L0) * z + (
        exponent * MINUS_LN_2
    )


def surplus(log: Any, x: Any) -> Any:
    """Compute -ln y - x^2/2: an attempt is accepted if it is above 0."""
    return log - 0.5 * x * x


# --- tier 1 ---


def is_within_bound(values: _Numbers, bound: float) -> bool:
    """Tell whether all numbers are at most this in size; False if one is NaN."""
    if values.size == 0:
        return True

    return bool(np.minimum.reduce(values) >= -bound and np.maximum.reduce(values) <= bound)


def prepare_tables(sums: np.dtype[Any], out: np.dtype[Any]) -> None:  # noqa: ARG001  (any)
    """Build what a release needs, so that its threads do not."""
    tables()


@lru_cache(maxsize=16)
def slopes(scale: float) -> _Floats:
    """Compute 2 scale W_i for all layers: scale * x is f times it."""
    slopes = np.multiply(tables().twice_widths, scale)
    slopes.flags.writeable = False
    return slopes


def decision_threshold(scale: float) -> float:
    """Largest distance from an integer at which the error bound still decides the rounding.

    Rounded down: a larger one could call a number decided that is not.
    """
    # The product is exact, ERROR being a power of two; the difference may round up by one bit.
    return float(np.nextafter(0.5 - scale * ERROR, 0.0))


def tail_threshold(scale: float) -> float:
    """Do the same for numbers of the tail; negative where none can be decided."""
    return float(np.nextafter(0.5 - scale * TAIL_ERROR, -1.0))


def is_outside(words: _Words) -> NDArray[np.bool_]:
    """Tell which numbers are not inside: those that read further words."""
    return np.asarray(np.abs(position_of(words)) > tables().limits[layer_index(words)])


def release_inside(
    words: _Words,
    scale: float,
    sums: _Numbers,
    spacing: float,
    out: _Numbers,
) -> tuple[NDArray[np.intp], _Floats]:
    """Write spacing * (integers of the sums + noise) for the numbers that this tier decides.

    Each other number becomes NaN, and never stays a sum without noise: `out` may be `sums`.

    Args:
        words: w_0 of m numbers [secret].
        scale: standard deviation, in 2^-32 ... 2^32 [grid units, public].
        sums: m numbers of float32 or float64, below 2^52 spacings; rounded to the grid [sensitive].
        spacing: of the grid, a power of two [public].
        out: m numbers of float32 or float64, contiguous.

    Returns:
        The indices of the other numbers, rising, and the integers of their sums [sensitive].
    """
    check_rounding()
    if out.size == 0:
        return np.empty(0, np.intp), np.empty(0)

    f, x, units = _scratch(out.size)
    bits = f.view(np.uint64)
    layer = (words & _LAYER).view(np.int64)
    np.right_shift(words, _LAYER_BITS, bits)
    np.bitwise_or(bits, BITS_OF_1, bits)
    np.subtract(f, 1.5, f)

    # x, in x; then whether it is outside.
    np.take(slopes(scale), layer, out=x, mode="clip")
    np.multiply(f, x, x)
    np.take(tables().limits, layer, out=units, mode="clip")
    np.absolute(f, f)
    left = f > units

    # The nearest integer, in f; the distance to it is exact: a multiple of the last bit of x, not
    # larger than x.
    np.add(x, ROUNDER, f)
    np.subtract(f, ROUNDER, f)
    np.subtract(x, f, x)
    np.absolute(x, x)
    left |= ~(x <= decision_threshold(scale))
    places = np.flatnonzero(left)

    # The inverse of a power of two: the product is the quotient, to the last bit.
    np.copyto(units, sums)
    np.multiply(units, 1.0 / spacing, units)
    np.rint(units, units)
    kept = units[places]
    np.add(f, units, f)
    f[places] = np.nan
    with np.errstate(over="ignore", under="ignore"):
        np.multiply(f, spacing, f)
        np.copyto(out, f, casting="same_kind")

    return places, kept


_per_thread = threading.local()


def _scratch(size: int) -> tuple[_Floats, _Floats, _Floats]:
    """Give three buffers that stay with the thread: fresh memory costs a tenth of the time."""
    buffers: _Floats | None = getattr(_per_thread, "buffers", None)
    if buffers is None or buffers.shape[1] < size:
        buffers = _per_thread.buffers = np.empty((3, max(size, PIECE_SIZE)))

    f, x, units = buffers[:, :size]
    return f, x, units


# --- tier 2 ---


def decide_outside(first: _Words, further: _Words, scale: float) -> tuple[_Floats, int]:
    """Find the noise integers of numbers that are left; NaN where float64 cannot decide.

    Args:
        first: w_0 of m numbers [secret].
        further: w_1 ... w_5 of those that are outside, a row each, and perhaps more rows [secret].
        scale: standard deviation, in 2^-32 ... 2^32 [grid units, public].

    Returns:
        The integers, and how many of the numbers are outside. The others are NaN.
    """
    check_rounding()
    integers = np.full(first.size, np.nan)
    waiting = np.flatnonzero(is_outside(first))
    count = waiting.size
    words = np.column_stack([first[waiting], further[:count]])

    for attempt in range(ATTEMPTS):
        nearest, rejected = _attempt(words[:, 2 * attempt], words[:, 2 * attempt + 1], scale)

        # Those that are rejected in every attempt stay NaN.
        integers[waiting] = nearest
        waiting, words = waiting[rejected], words[rejected]
        if waiting.size == 0:
            break

    return integers, count


def _attempt(position: _Words, height: _Words, scale: float) -> tuple[_Floats, NDArray[np.intp]]:
    """Make one attempt: the nearest integers, NaN where it is not accepted, and who is rejected."""
    layer = layer_index(position).astype(np.intp)
    f = position_of(position)
    x = f * slopes(scale)[layer]
    threshold = np.full(x.size, decision_threshold(scale))

    # Those that are inside are accepted.
    over = np.full(x.size, np.inf)
    outside = np.flatnonzero(np.abs(f) > tables().limits[layer])
    tail = outside[layer[outside] == 0]
    if outside.size:
        over[outside] = _wedges(layer[outside], f[outside], height[outside])

    if tail.size:
        distance, over[tail] = _tails(f[tail], height[tail])
        x[tail] = np.copysign((R_FLOAT + distance) * scale, f[tail])
        threshold[tail] = tail_threshold(scale)

    # All comparisons are false for NaN.
    nearest = (x + ROUNDER) - ROUNDER
    decided = (over > DOUBT) & (np.abs(x - nearest) <= threshold)
    return np.where(decided, nearest, np.nan), np.flatnonzero(over < -DOUBT)


def _wedges(layer: NDArray[np.intp], f: _Floats, height: _Words) -> _Floats:
    """Compute how far below the bell points of layers are: the surplus of their logarithms.

    NaN where the height is below its window.
    """
    table = tables()
    h = height.astype(np.float64)
    y = ordinate(table.edges[layer], table.heights[layer], h * HEIGHT_UNIT)
    over = surplus(minus_logarithm(*split(y)), np.abs(f) * table.twice_widths[layer])
    return np.where(h >= LEAST_HEIGHT, over, np.nan)


def _tails(f: _Floats, height: _Words) -> tuple[_Floats, _Floats]:
    """Compute d, and the surplus of points of the tail.

    NaN where U is close to 0 or to 1, or the height below its window.
    """
    h = height.astype(np.float64)
    u = TAIL_AREA * (1.0 - 2.0 * np.abs(f))
    known = (u >= LEAST_TAIL) & (u <= 1.0 - DOUBT) & (h >= LEAST_HEIGHT)
    distance = minus_logarithm(*split(np.where(known, u, 1.0))) * INVERSE_R
    log = minus_logarithm(*split(np.where(known, h * HEIGHT_UNIT, 1.0)))
    return distance, np.where(known, surplus(log, distance), np.nan)


IN_NUMPY = Backend(is_within_bound, prepare_tables, release_inside, decide_outside)


# Numbers for the check of the rounding mode; the last bit of _BIG is 2.
_TINY = 2.0**-53
_BIG = 1e16
_BELOW_THREE = 2.9999


def check_rounding() -> None:
    """Refuse a thread whose float64 arithmetic does not round to nearest, ties to even.

    Flushing of subnormal numbers to zero does not matter: no intermediate result is that small and
    not zero.

    Raises:
        NumericsError: another rounding mode is set.
    """
    right = (
        1.0 + _TINY == 1.0  # not upward
        and (1.0 + 2.0 * _TINY) + _TINY == 1.0 + 4.0 * _TINY  # not downward, not to zero
        and -1.0 - _TINY == -1.0
        and _BIG + _BELOW_THREE == _BIG + 2.0  # not twice, through a longer register
    )
    if not right:
        raise NumericsError(
            expected="IEEE 754 arithmetic that rounds to nearest",
            got="another rounding mode in this thread",
            do=(
                "Find what changed it (fesetround, a compiler flag); exactness is proven for "
                "rounding to nearest only."
            ),
        )
