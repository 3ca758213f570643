"""A proof by program of the error bounds of `randomness.ziggurat`.

`Bounded` is a number that carries a proof: for every point of a cell, the *true* value is in [lo,
hi], and what float64 computes differs from it by at most err. It answers operators and NumPy's
ufuncs, so the library's own functions `ordinate`, `minus_log` and `surplus` run on it unchanged,
over cells that cover what they are used for. "True" means the real-valued map for *all* further
bits:

*   Positions and heights enter with the width of their prefix, and with the error of a conversion
    to float64; table entries with their rounding.
*   The true logarithm is a polynomial plus a rest. The rest is bounded here in integer arithmetic,
    and its bound is the error of the constant coefficient, so that it is carried along as the rest
    itself would be.
*   Every operation adds half a unit in the last place of its result, and 2^-1022 for what a
    processor may flush to zero.

Ends of intervals are widened after every operation by far more than their own rounding.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import NDArray

from discreet.randomness import ziggurat
from discreet.randomness._enclosures import minus_log
from discreet.randomness.layers import HEIGHT_BITS, R_BITS, R, layers, tables

_HALF_ULP = 2.0**-53
_PREFIX = 2.0**-52  # of a position
_FLUSHED = 2.0**-1022
_WIDER = 2.0**-48  # relative; each end is the result of at most a few roundings
_BITS = 200
_ONE = 1 << _BITS


class Bounded(NDArrayOperatorsMixin):
    """Cells with an enclosure of the true value and a bound on |computed - true|."""

    def __init__(self, lo: Any, hi: Any, err: Any = 0.0) -> None:
        self.lo, self.hi, self.err = np.broadcast_arrays(
            *(np.asarray(x, float) for x in (lo, hi, err))
        )

    @property
    def size(self) -> NDArray[np.float64]:
        return np.asarray(np.maximum(np.abs(self.lo), np.abs(self.hi)))

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any) -> Bounded:
        if method != "__call__":
            raise TypeError(method)
        arguments = [x if isinstance(x, Bounded) else Bounded(x, x) for x in inputs]
        with np.errstate(all="raise", under="ignore"):
            lo, hi, err = _RULES[ufunc](*arguments)
            slack = _WIDER * np.maximum(np.abs(lo), np.abs(hi))
            lo, hi = lo - slack, hi + slack
            err = err * (1 + _WIDER)
            err = err + (np.maximum(np.abs(lo), np.abs(hi)) + err) * _HALF_ULP + _FLUSHED
        return Bounded(lo, hi, err * (1 + _WIDER))


def _add(a: Bounded, b: Bounded) -> tuple[Any, Any, Any]:
    return a.lo + b.lo, a.hi + b.hi, a.err + b.err


def _subtract(a: Bounded, b: Bounded) -> tuple[Any, Any, Any]:
    return a.lo - b.hi, a.hi - b.lo, a.err + b.err


def _multiply(a: Bounded, b: Bounded) -> tuple[Any, Any, Any]:
    ends = [a.lo * b.lo, a.lo * b.hi, a.hi * b.lo, a.hi * b.hi]
    return (
        np.minimum.reduce(ends),
        np.maximum.reduce(ends),
        a.size * b.err + b.size * a.err + a.err * b.err,
    )


def _divide(a: Bounded, b: Bounded) -> tuple[Any, Any, Any]:
    least = b.lo - b.err
    if np.any(least <= 0.0):
        raise ArithmeticError("a divisor that may be zero")
    ends = [a.lo / b.lo, a.lo / b.hi, a.hi / b.lo, a.hi / b.hi]
    lo, hi = np.minimum.reduce(ends), np.maximum.reduce(ends)
    return lo, hi, (a.err + np.maximum(np.abs(lo), np.abs(hi)) * (1 + _WIDER) * b.err) / least


_RULES: dict[np.ufunc, Any] = {
    np.add: _add,
    np.subtract: _subtract,
    np.multiply: _multiply,
    np.divide: _divide,
}


# --- the rest of the polynomial ---


def root_half() -> float:
    """Where mantissas begin."""
    return float(ziggurat.BITS_OF_ROOT.view(np.float64))


def log_rest() -> float:
    """Bound on |2 atanh(z)/z - polynomial(z^2)| for the largest z^2 that a mantissa in
    sqrt(1/2)*[1, 2] gives.
    """
    root = Fraction(root_half())
    largest = max((1 - root) / (1 + root), (2 * root - 1) / (2 * root + 1)) ** 2 + Fraction(
        1, 10**9
    )
    series = [Fraction(2, 2 * k + 1) for k in range(30)]
    tail = 2 * largest**30 / (1 - largest)
    return _rest(series, ziggurat.LOG, largest) + float(tail)


def _rest(
    series: Sequence[Fraction], coefficients: Sequence[float], largest: Fraction, cells: int = 1_000
) -> float:
    """The largest |D| on [0, largest] for D = series - polynomial.

    In a cell with middle m and half width h: |D| <= |D(m)| + h |D'(m)| + h^2/2 max |D''|, the last
    by absolute values.
    """
    padded = [*coefficients, *[0.0] * (len(series) - len(coefficients))]
    difference = [s - Fraction(c) for s, c in zip(series, padded, strict=True)]
    slope = [k * d for k, d in enumerate(difference)][1:]
    bend = sum(k * (k + 1) * abs(d) * largest ** (k - 1) for k, d in enumerate(difference[1:]) if k)
    half = largest / (2 * cells)
    scaled = [[int(d * _ONE) for d in reversed(polynomial)] for polynomial in (difference, slope)]
    width = int(half * _ONE) + 1
    worst = 0
    for cell in range(cells):
        middle = int(half * _ONE * (2 * cell + 1))
        value, rise = (_horner(polynomial, middle) for polynomial in scaled)
        worst = max(worst, abs(value) + (width * abs(rise) >> _BITS))
    return float(Fraction(worst, _ONE) + half * half / 2 * bend) + 2.0**-90


def _horner(coefficients: Sequence[int], t: int) -> int:
    value = 0
    for c in coefficients:
        value = (value * t >> _BITS) + c
    return value


# --- the three bounds ---


@dataclass(frozen=True)
class Errors:
    """The largest errors, in units of the scale for x.

    inside: of x, for a position that is inside of its layer.
    tail: of x, in the tail.
    surplus: of -ln y - x^2/2, in layers and in the tail.
    """

    inside: float
    tail: float
    surplus: float


def largest_errors(fine: int = 6) -> Errors:
    """Walk the functions of the fast paths over all positions, heights, layers and scales, with all
    further bits.
    """
    ln2 = [Fraction(end, _ONE) for end in minus_log(1, 1, _BITS)]
    off = max(abs(Fraction(ziggurat.MINUS_LN_2) + end) for end in ln2)
    with (
        patch.object(ziggurat, "_L0", _around(ziggurat.LOG[0], log_rest())),
        patch.object(ziggurat, "MINUS_LN_2", _around(ziggurat.MINUS_LN_2, float(off))),
    ):
        distance, tail = _tail(fine)
        return Errors(_inside(fine), distance, max(_wedge(fine), tail))


def _inside(fine: int) -> float:
    """Walk x = f * (2 W * scale); a power of two in the scale is exact."""
    scale = _mantissa_of_scale(fine)
    width = _rounded(tables().twice_widths[:, None, None])
    edges = np.linspace(-0.5, 0.5, 2 * fine + 1)
    x = _position(edges) * (width * scale)
    return float(np.max(x.err / scale.lo))


def _wedge(fine: int) -> float:
    table = tables()
    v_err = _HALF_ULP + 2.0**-64
    v = Bounded(2.0**-20 - v_err, 1.0 + v_err, v_err)
    y: Any = ziggurat.ordinate(_rounded(table.edges[1:-1]), _rounded(table.heights[1:]), v)
    relative = float(np.max(y.err / (y.lo - y.err)))
    log_err = _log_error(relative, -14, fine)

    # |x| = |f| * 2 W up to r, and logarithms up to -ln Y_1 < 9.7.
    size = _position(np.linspace(0.0, 0.5, 2 * fine + 1)) * _rounded(table.twice_widths[1:, None])
    over: Any = ziggurat.surplus(Bounded(0.0, 9.7, log_err), size)
    return float(np.max(over.err))


def _tail(fine: int) -> tuple[float, float]:
    """Errors of x and of the surplus for U and V in their windows."""
    # 1 - 2 |f| is exact, and its prefix twice that of f; U is at most 1.
    prefix = 2 * _PREFIX
    share = Bounded(0.0, 1.0 / ziggurat.TAIL_AREA + 2.0**-20, prefix)
    u: Any = share * _rounded(np.array(ziggurat.TAIL_AREA))
    worst_x, worst_over = 0.0, 0.0
    v_log = _log_error(_HALF_ULP + 2.0**-44 * (1 + _WIDER), -20, fine)
    lowest = int(np.log2(ziggurat.LEAST_TAIL))
    scale = _mantissa_of_scale(fine)

    for exponent in range(lowest, 1):
        relative = float(u.err) / (2.0**exponent * root_half())
        log = Bounded(0.0, -exponent * 0.7 + 0.4, _log_error(relative, exponent, fine, exponent))
        distance: Any = log * _rounded(np.array(ziggurat.INVERSE_R))
        x: Any = (distance + _rounded(np.array(ziggurat.R_FLOAT))) * scale
        over: Any = ziggurat.surplus(Bounded(0.0, 14.0, v_log), distance)
        worst_x = max(worst_x, float(np.max(x.err / scale.lo)))
        worst_over = max(worst_over, float(np.max(over.err)))

    return worst_x, worst_over + _gap_at_r()


def _gap_at_r() -> float:
    """r^2/2 + ln Y_1 >= 0, which the fast path takes for 0."""
    lo, _ = minus_log(layers().edges[1], HEIGHT_BITS, _BITS)
    return float(Fraction(R**2, 1 << 2 * R_BITS + 1) - Fraction(lo, _ONE))


def mantissas(fine: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Cells over sqrt(1/2) * [1, 2], which shrink towards 1: there the logarithm is small."""
    root = root_half()
    near = 2.0 ** -np.arange(2.0, 40.0, 4.0 / fine)
    wide = np.linspace(root, 2 * root, 8 * fine)
    edges = np.unique([*wide, *(1.0 - near), 1.0, *(1.0 + near)])
    return edges[:-1], edges[1:]


def _log_error(relative: float, lowest: int, fine: int, highest: int = 0) -> float:
    """Largest error of `minus_log` for arguments with this relative error on entry."""
    lo, hi = mantissas(fine)
    err = hi * relative * (1 + _WIDER)
    worst = 0.0
    for exponent in range(lowest, highest + 1):
        log: Any = ziggurat.minus_logarithm(Bounded(lo - err, hi + err, err), float(exponent))
        worst = max(worst, float(np.max(log.err)))
    return worst


def _position(edges: NDArray[np.float64]) -> Bounded:
    """Cells of f; computed: t*2^-52 - 1/2, true: up to 2^-52 above, or below for |f|."""
    cells = np.array([*itertools.pairwise(edges)])
    return Bounded(cells[:, 0] - _PREFIX, cells[:, 1] + _PREFIX, _PREFIX)


def _mantissa_of_scale(fine: int) -> Bounded:
    edges = np.linspace(1.0, 2.0, 2 * fine + 1)
    return Bounded(edges[:-1, None], edges[1:, None])


def _rounded(values: NDArray[np.float64]) -> Bounded:
    """Table entries: the truth is half a unit in the last place away at most."""
    err = np.abs(values) * _HALF_ULP * (1 + _WIDER)
    return Bounded(values - err, values + err, err)


def _around(value: float, err: float) -> Bounded:
    return Bounded(value - err, value + err, err)
