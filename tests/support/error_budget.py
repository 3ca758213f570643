"""A proof by program of the error bound of `randomness.box_muller`.

`Bounded` is a number that carries a proof: for every point of a cell, the *true* value is in [lo,
hi], and what float64 computes differs from it by at most err. It answers NumPy's ufuncs, so the
library's own functions `radius`, `sine_cosine` and `cartesian` run on it unchanged, over cells that
cover the window. "True" means the real-valued map for *all* further bits:

*   U enters with the error of its conversion to float64 and with the width of its prefix; so does
    the angle.
*   The true function is a polynomial plus a rest. The rest is bounded here in integer arithmetic,
    and its bound is the error of the constant coefficient, so that it is carried along as the rest
    itself would be.
*   Every operation adds half a unit in the last place of its result, and 2^-1022 for what a
    processor may flush to zero.

Ends of intervals are widened after every operation by far more than their own rounding.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from fractions import Fraction
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from discreet.randomness import box_muller
from discreet.randomness._enclosures import half_pi, minus_log

_HALF_ULP = 2.0**-53
_FLUSHED = 2.0**-1022
_WIDER = 2.0**-48  # relative; each end is the result of at most a few roundings
_BITS = 200
_ONE = 1 << _BITS


class Bounded:
    """Cells with an enclosure of the true value and a bound on |computed - true|."""

    def __init__(self, lo: Any, hi: Any, err: Any = 0.0) -> None:
        self.lo, self.hi, self.err = np.broadcast_arrays(
            *(np.asarray(x, float) for x in (lo, hi, err))
        )

    @property
    def size(self) -> NDArray[np.float64]:
        return np.asarray(np.maximum(np.abs(self.lo), np.abs(self.hi)))

    def spread(self, *axes: int) -> Bounded:
        """The same cells with further axes of length 1."""
        return Bounded(*(np.expand_dims(x, axes) for x in (self.lo, self.hi, self.err)))

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: Any, out: tuple[Bounded, ...]
    ) -> None:
        if method != "__call__":
            raise TypeError(method)
        arguments = [x if isinstance(x, Bounded) else Bounded(x, x) for x in inputs]
        with np.errstate(all="raise", under="ignore"):
            lo, hi, err = _RULES[ufunc](*arguments)
            slack = _WIDER * np.maximum(np.abs(lo), np.abs(hi))
            lo, hi = lo - slack, hi + slack
            err = err * (1 + _WIDER)
            err = err + (np.maximum(np.abs(lo), np.abs(hi)) + err) * _HALF_ULP + _FLUSHED
        out[0].lo, out[0].hi, out[0].err = lo, hi, err * (1 + _WIDER)


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


def _sqrt(a: Bounded) -> tuple[Any, Any, Any]:
    least = a.lo - a.err
    if np.any(least <= 0.0):
        raise ArithmeticError("a square root that may be of zero")
    return np.sqrt(a.lo), np.sqrt(a.hi), a.err / (np.sqrt(a.lo) + np.sqrt(least))


_RULES: dict[np.ufunc, Any] = {
    np.add: _add,
    np.subtract: _subtract,
    np.multiply: _multiply,
    np.divide: _divide,
    np.sqrt: _sqrt,
}


# --- the rests of the polynomials ---


def log_rest() -> float:
    """Bound on |4 atanh(z)/z - polynomial(z^2)| for the largest z^2 that a mantissa in
    sqrt(1/2)*[1, 2] gives.
    """
    root = Fraction(float(box_muller._ROOT_HALF.view(np.float64))) / 2**63
    largest = max((1 - root) / (1 + root), (2 * root - 1) / (2 * root + 1)) ** 2 + Fraction(
        1, 10**9
    )
    series = [Fraction(4, 2 * k + 1) for k in range(30)]
    tail = 4 * largest**30 / (1 - largest)
    return _rest(series, box_muller.LOG, largest) + float(tail)


def sine_rest() -> float:
    """Bound on |sin(pi f/2)/f - polynomial(f^2)| for f^2 <= 1/4."""
    half = Fraction(
        half_pi(_BITS)[0], _ONE
    )  # below pi/2 by less than 2^-180: covered by the slack in _rest
    series, term = [], half
    for k in range(20):
        series.append(term)
        term *= -half * half / ((2 * k + 2) * (2 * k + 3))
    largest = Fraction(1, 4) + Fraction(1, 10**9)
    return _rest(series, box_muller.SINE, largest) + float(abs(term))  # alternating, falling


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


# --- the cells ---


def mantissas(fine: int) -> tuple[NDArray[np.float64], ...]:
    """(lo, hi, exponent) of cells of u = mantissa * 2^exponent over [LOWEST, HIGHEST];
    mantissa/2^63 in sqrt(1/2)*[1, 2].
    """
    root, top = float(box_muller._ROOT_HALF.view(np.float64)), 2.0**63
    cells = []
    for exponent in range(-63, 1):
        lowest = max(root, box_muller.LOWEST * 2.0**-exponent)
        if lowest >= 2 * root:
            continue
        if exponent:
            edges = np.linspace(lowest, 2 * root, 8 * fine)
        else:  # towards 1 the cells shrink with the distance from 1
            near = top - (top - box_muller.HIGHEST) * 2.0 ** np.arange(0, 64, 1 / fine)
            edges = np.unique([lowest, *near[near > lowest], box_muller.HIGHEST])
        cells += [(lo, hi, exponent) for lo, hi in itertools.pairwise(edges)]
    return tuple(np.array(column, float) for column in zip(*cells, strict=True))


def largest_error(fine: int = 6) -> float:
    """Largest |x computed - x| / scale over the whole window, all angles, all scales and all
    further bits.
    """
    log, sine = log_rest(), sine_rest()
    ln2 = [Fraction(end, _ONE) for end in minus_log(1, 1, _BITS)]
    constant = Fraction(box_muller.MINUS_TWO_LN_2) * 2**52
    off = max(abs(constant + 2 * end) for end in ln2)
    lo, hi, exponent = mantissas(fine)
    err = hi * _HALF_ULP + 2.0**-exponent * (1 + _WIDER)
    edges = np.linspace(-0.5, 0.5, 8 * fine + 1)
    scales = np.linspace(1.0, 2.0, 2 * fine + 1)  # a power of two in the scale is exact
    with (
        patch.object(box_muller, "_LOG", _with_rest(box_muller.LOG, log)),
        patch.object(box_muller, "_SINE", _with_rest(box_muller.SINE, sine)),
        patch.object(
            box_muller, "_MINUS_TWO_LN_2", _around(box_muller.MINUS_TWO_LN_2, float(off) * 2.0**-52)
        ),
    ):
        r, s, c, unused = (Bounded(0, 0) for _ in range(4))
        mantissa = Bounded(lo - err, hi + err, err).spread(1)
        power = Bounded(exponent * 2.0**52, exponent * 2.0**52).spread(1)
        box_muller.radius(*_any(mantissa, power, Bounded(scales[:-1], scales[1:]), unused, r))
        f = Bounded(
            edges[:-1], edges[1:] + 2.0**-52, 2.0**-52
        )  # computed: t*2^-52 - 1/2; true: up to 2^-52 above
        box_muller.sine_cosine(*_any(f, s, c))
        box_muller.cartesian(*_any(r.spread(2), s, c))
    return float(max(np.max(x.err / scales[:-1, None]) for x in (s, c)))


def _any(*values: Bounded) -> Any:
    return values


def _around(value: float, err: float) -> Bounded:
    return Bounded(value - err, value + err, err)


def _with_rest(coefficients: Sequence[float], rest: float) -> tuple[Bounded, ...]:
    return _around(coefficients[0], rest), *(Bounded(c, c) for c in coefficients[1:])
