"""Two elementary functions that vanish to second order, without cancellation.

    exp_excess(v)  = e^v - 1 - v         >= 0
    log_deficit(u) = u - ln(1 + u)       >= 0,  u > -1

Every Rényi moment is written as 1 plus a mean of such terms, so that a tiny divergence is computed
as a sum of non-negative numbers and never as the difference of two numbers near 1 (P37). Both
results are within `RELATIVE_ERROR` of the real value, given elementary functions that are right to
4 units in the last place (docs/proofs/rdp.md, section 3).
"""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["RELATIVE_ERROR", "FloatArray", "exp_excess", "log_deficit"]

FloatArray: TypeAlias = NDArray[np.float64]

RELATIVE_ERROR = 2.0**-46

# Highest power first, for Horner's rule: e^v - 1 - v = v^2 (1/2! + v/3! + ...), and
# artanh(r) = r + r^3/3 + r^5/5 + ...
_TAYLOR = tuple(1.0 / math.factorial(power) for power in range(20, 1, -1))
_ARTANH = tuple(1.0 / (2 * k + 3) for k in range(12, -1, -1))


def exp_excess(exponent: FloatArray) -> FloatArray:
    """The excess e^v - 1 - v, by its series within 1/2 of 0."""
    near = np.abs(exponent) < 0.5
    inside = np.where(near, exponent, 0.0)
    series = np.zeros_like(inside)
    for coefficient in _TAYLOR:
        series = series * inside + coefficient

    outside = np.where(near, 1.0, exponent)
    result: FloatArray = np.where(near, inside * inside * series, np.expm1(outside) - outside)
    return result


def log_deficit(offset: FloatArray) -> FloatArray:
    """The deficit u - ln(1 + u), by ln(1 + u) = 2 artanh(r), r = u / (2 + u), within 1/4 of 0."""
    near = np.abs(offset) < 0.25
    inside = np.where(near, offset, 0.0)
    ratio = inside / (2.0 + inside)
    square = ratio * ratio
    series = np.zeros_like(inside)
    for coefficient in _ARTANH:
        series = series * square + coefficient

    outside = np.where(near, 1.0, offset)
    result: FloatArray = np.where(
        near, ratio * (inside - 2.0 * square * series), outside - np.log1p(outside)
    )
    return result
