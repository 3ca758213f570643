"""Box-Muller in float64: from random words to noise integers, where float64 can decide them.

Pair j reads w1 = words[2j] and w2 = words[2j+1]. The words are the first bits of two infinite
binary expansions:

    U in [u, u+1] * 2^-63                    u = w1 >> 1
    b in [t, t+1] * 2^-52 * pi/2 - pi/4      t = low 52 bits of w2
    r = scale * sqrt(-2 ln U),  (x1, x2) = (r cos b, r sin b)
    exchanged if bit 62 of w2 is set, both negated if bit 63 is set

and the noise of positions 2j and 2j+1 is the integer nearest to x1 and x2: exactly a rounded
Gaussian [BoxMuller1958] (docs/proofs/noise.md, section 2). Every backend implements this map. This
one computes x1 and x2 in float64, with an error below scale * ERROR, and calls a pair *decided* if
no expansion with these first bits rounds to another integer (section 3). `refine` decides the rest
with further bits, so a backend may leave any pair undecided and the noise is the same.

Error budget, in units of scale, with U in [2^-20, 1 - 2^-18]. Each entry is the largest value on
its own; all together stay below 2^-44.3, since they are large at different places:

    U to float64, then 1/r at U near 1   2^-44.4     further bits of U, at U near 2^-20   2^-45.3
    polynomial of ln, degree 5           2^-46.1     further bits of b                    2^-48.7
    polynomial of sin, degree 5          2^-45.5     rounding of all operations           2^-47.9

Only + - * / sqrt of IEEE 754 and integer operations are used, so nothing is assumed about a
mathematical library. A program walks the same functions with a number type that carries its error
bound and confirms ERROR (tests/support/error_budget.py). Contraction to fused multiply-add leaves
out roundings, so the bound covers it.
"""

from __future__ import annotations

import threading

import numpy as np
from numpy.typing import NDArray

from discreet.errors import NumericsError

__all__ = [
    "CHUNK",
    "ERROR",
    "HIGHEST",
    "LOG",
    "LOWEST",
    "MINUS_TWO_LN_2",
    "SINE",
    "candidates",
    "cartesian",
    "check_rounding",
    "decision_threshold",
    "radius",
    "sine_cosine",
]

# Pairs at a time: the scratch stays in the cache, and the cost of a call does not count.
CHUNK = 16_384

# |x computed - x| < scale * ERROR, for every pair in the window and all further bits (noise.md,
# section 3). The budget above is less than half of it.
ERROR = 2.0**-43

# The window of u, as float64: U from 2^-20 to 1 - 2^-18. Nearer to 0 the further bits of U count
# for too much, nearer to 1 its rounding to float64 does.
LOWEST = 2.0**43
HIGHEST = 2.0**63 - 2.0**45

# Coefficients of t^0, t^1, ..., near minimax: LOG is 4 atanh(z)/z for t = z^2, |z| <= 3 - sqrt(8);
# SINE is sin(pi f/2)/f for t = f^2 <= 1/4.
LOG = (
    float.fromhex("0x1.fffffffffff12p+1"),
    float.fromhex("0x1.555555567148cp+0"),
    float.fromhex("0x1.9999962c06032p-1"),
    float.fromhex("0x1.2494381ee5869p-1"),
    float.fromhex("0x1.c620ee6e2b4a3p-2"),
    float.fromhex("0x1.9192e478c4308p-2"),
)
SINE = (
    float.fromhex("0x1.921fb54442cfap+0"),
    float.fromhex("-0x1.4abbce6257a2ap-1"),
    float.fromhex("0x1.466bc67123fa1p-4"),
    float.fromhex("-0x1.32d2c644adc0bp-8"),
    float.fromhex("0x1.5071ce4b47930p-13"),
    float.fromhex("-0x1.dd54805f3f706p-19"),
)
# Multiplied by the exponent, which comes times 2^52.
MINUS_TWO_LN_2 = float.fromhex("-0x1.62e42fefa39efp+0") * 2.0**-52

# The same as arrays without an axis: NumPy takes a microsecond to convert a Python number.
_LOG = tuple(np.array(c) for c in LOG)
_SINE = tuple(np.array(c) for c in SINE)
_MINUS_TWO_LN_2 = np.array(MINUS_TWO_LN_2)
_ONE = np.array(1.0)
_THREE_HALVES = np.array(1.5)
_TOP = np.array(2.0**63)
_LEFT = np.array(1, np.int64)
_RIGHT = np.array(63, np.int64)
_HALF = np.array(1, np.uint64)

# The bits of 2^63 sqrt(1/2): a mantissa is in sqrt(1/2) * [1, 2), where |z| <= 3 - sqrt(8).
_ROOT_HALF = np.array(2.0**63 * float.fromhex("0x1.6a09e667f3bcdp-1")).view(np.int64)

# Masks of a float64: sign and exponent; fraction; sign.
_EXPONENT = np.array(-(2**52), np.int64)
_FRACTION = np.array(2**52 - 1, np.uint64)
_SIGN = np.array(1 << 63, np.uint64)
_BITS_OF_ONE = np.array(0x3FF << 52, np.uint64)

_Floats = NDArray[np.float64]


def candidates(words: NDArray[np.uint64], scale: float, out: _Floats) -> NDArray[np.intp]:
    """Write the noise integers of all pairs; return the indices of those that are not decided.

    Args:
        words: 2m random words [secret].
        scale: standard deviation, in 2^-32 ... 2^32 [grid units, public].
        out: 2m float64, contiguous; gets the integers. Those of an undecided pair are meaningless.
    """
    check_rounding()
    undecided = [np.empty(0, np.intp)]
    factor = np.array(scale)

    for start in range(0, out.size, 2 * CHUNK):
        piece = slice(start, start + 2 * CHUNK)
        pairs = _chunk(words[piece], factor, out[piece])
        undecided.append(pairs + start // 2)

    return undecided[-1] if len(undecided) <= 2 else np.concatenate(undecided)


def decision_threshold(scale: float) -> float:
    """Largest distance from an integer at which the error bound still decides the rounding.

    Rounded down: a larger one could call a pair decided that is not.
    """
    # The product is exact, ERROR being a power of two; the difference may round up by one bit.
    return float(np.nextafter(0.5 - scale * ERROR, 0.0))


def radius(mantissa: _Floats, exponent: _Floats, scale: _Floats, a: _Floats, r: _Floats) -> None:
    """Compute r = scale * sqrt(-2 ln U) with U = mantissa * 2^(exponent - 63).

    ln m = -2 atanh(z), z = (1 - m)/(1 + m). Overwrites mantissa, exponent (* 2^52) and a. The order
    of operations is that of the error budget, and of the compiled twin.
    """
    # z, in a; z^2, in mantissa.
    np.subtract(_TOP, mantissa, a)
    np.add(mantissa, _TOP, mantissa)
    np.divide(a, mantissa, a)
    np.multiply(a, a, mantissa)

    # -2 ln m = 4 atanh(z), then -2 ln U.
    _polynomial(_LOG, mantissa, r)
    np.multiply(r, a, r)
    np.multiply(exponent, _MINUS_TWO_LN_2, exponent)
    np.add(r, exponent, r)
    np.sqrt(r, r)
    np.multiply(r, scale, r)


def sine_cosine(f: _Floats, sine: _Floats, cosine: _Floats) -> None:
    """Compute sine and cosine of f*pi/2, for f in [-1/2, 1/2].

    There 1 - sine^2 >= 1/2: the difference loses nothing.
    """
    np.multiply(f, f, cosine)
    _polynomial(_SINE, cosine, sine)
    np.multiply(sine, f, sine)
    np.multiply(sine, sine, cosine)
    np.subtract(_ONE, cosine, cosine)
    np.sqrt(cosine, cosine)


def cartesian(r: _Floats, sine: _Floats, cosine: _Floats) -> None:
    """Multiply sine and cosine by r, in their place."""
    np.multiply(r, sine, sine)
    np.multiply(r, cosine, cosine)


def _polynomial(coefficients: tuple[_Floats, ...], t: _Floats, out: _Floats) -> None:
    c0, c1, c2, c3, c4, c5 = coefficients
    np.multiply(t, c5, out)

    for c in (c4, c3, c2, c1):
        np.add(out, c, out)
        np.multiply(out, t, out)

    np.add(out, c0, out)


class _Scratch:
    """Buffers for one chunk, as numbers and as bits.

    All views are made once: one takes NumPy as long as a thousand sums.
    """

    __slots__ = ("bits", "numbers", "signed", "x")

    def __init__(self, pairs: int) -> None:
        self.numbers = [np.empty(pairs) for _ in range(5)]
        self.bits = [buffer.view(np.uint64) for buffer in self.numbers]
        self.signed = [buffer.view(np.int64) for buffer in self.numbers]
        self.x = np.empty(2 * pairs)


_per_thread = threading.local()


def _scratch(pairs: int) -> _Scratch:
    if pairs != CHUNK:
        return _Scratch(pairs)

    try:
        scratch: _Scratch = _per_thread.scratch
    except AttributeError:
        scratch = _per_thread.scratch = _Scratch(pairs)

    return scratch


def _chunk(words: NDArray[np.uint64], scale: _Floats, out: _Floats) -> NDArray[np.intp]:
    """Write the integers of one chunk of pairs; return the indices of the undecided pairs.

    Names of buffers: a, b, c, r, s hold numbers of one pair each; `_bits` and `_int` are the same
    memory as uint64 and int64.
    """
    scratch = _scratch(out.size // 2)
    a, b, c, r, s = scratch.numbers
    a_bits, _, c_bits, r_bits, _ = scratch.bits
    a_int, b_int, c_int, _, s_int = scratch.signed
    x = scratch.x
    first, second = words[0::2], words[1::2]

    # b = u, rounded to 53 bits. Rounding is monotone, so the window of b is one of u.
    np.right_shift(first, _HALF, a_bits)
    np.copyto(b, a_int)
    outside = np.minimum.reduce(b) < LOWEST or np.maximum.reduce(b) > HIGHEST

    # r, from mantissa b and exponent c of u.
    _split(b_int, a_int)
    np.copyto(c, a_int)
    radius(b, c, scale, a, r)

    # a = t * 2^-52 - 1/2, exactly: the bits of t under the exponent of 1 are 1 + t * 2^-52.
    np.copyto(c_bits, second)
    np.bitwise_and(c_bits, _FRACTION, a_bits)
    np.bitwise_or(a_bits, _BITS_OF_ONE, a_bits)
    np.subtract(a, _THREE_HALVES, a)
    sine_cosine(a, s, b)

    # Bit 63 of w2 becomes the sign of r, so that both coordinates are negated.
    np.bitwise_and(c_bits, _SIGN, a_bits)
    np.bitwise_or(r_bits, a_bits, r_bits)
    cartesian(r, s, b)
    _exchange(b_int, s_int, c_int, a_int, x.view(np.int64))

    # The distance to the nearest integer is exact: a multiple of the last bit of x, not larger
    # than x.
    np.rint(x, out)
    np.subtract(x, out, x)
    np.absolute(x, x)
    limit = decision_threshold(float(scale))
    if not outside and np.maximum.reduce(x) <= limit:
        return np.empty(0, np.intp)

    # Written as "not at most", which is true for NaN too.
    doubts = np.flatnonzero(~(x <= limit)) // 2
    if outside:
        np.right_shift(first, _HALF, a_bits)
        np.copyto(b, a_int)
        doubts = np.concatenate([doubts, np.flatnonzero((b < LOWEST) | (b > HIGHEST))])

    return np.unique(doubts)


def _split(bits: NDArray[np.int64], power: NDArray[np.int64]) -> None:
    """Split numbers into mantissa * 2^exponent, exactly.

    The mantissa takes the place of the number, the exponent comes as an integer times 2^52.
    """
    np.subtract(bits, _ROOT_HALF, power)
    np.bitwise_and(power, _EXPONENT, power)
    np.subtract(bits, power, bits)


def _exchange(
    x1: NDArray[np.int64],
    x2: NDArray[np.int64],
    w2: NDArray[np.int64],
    a: NDArray[np.int64],
    out: NDArray[np.int64],
) -> None:
    """Interleave the bits of x1 and x2, exchanged by bit 62 of w2. Overwrites w2 and a."""
    # w2 becomes all ones where bit 62 was set, all zeros elsewhere: a mask for the exchange.
    np.left_shift(w2, _LEFT, w2)
    np.right_shift(w2, _RIGHT, w2)
    np.bitwise_xor(x1, x2, a)
    np.bitwise_and(a, w2, a)
    np.bitwise_xor(x1, a, out[0::2])
    np.bitwise_xor(x2, a, out[1::2])


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
