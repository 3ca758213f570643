"""Bounds as exact fractions, rounded up once at the end.

So no step of a formula can round the wrong way. The model of rounding is that of [Higham2002,
chapter 3] and of docs/proofs/sums.md, first paragraph.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from discreet.errors import ParameterError

__all__ = ["UNIT", "binary", "gamma", "root_up", "tiny", "up"]

UNIT = {np.dtype(np.float32): Fraction(1, 2**24), np.dtype(np.float64): Fraction(1, 2**53)}
"""Unit roundoff u: a rounded operation is off by at most the factor 1 + u."""

# What a result below it may lose to underflow, gradual or flushed to zero.
_SMALLEST_NORMAL = {
    np.dtype(np.float32): Fraction(1, 2**126),
    np.dtype(np.float64): Fraction(1, 2**1022),
}
_TOO_COARSE = (
    "half precision carries 8 to 11 bits: its bound exceeds the clip norm for a few dozen terms. "
    "Sum in float32 or float64."
)


def binary(owner: str, dtype: DTypeLike) -> np.dtype[np.floating]:
    """Return the dtype if it is float32 or float64, else raise an error with the reason."""
    # NumPy has no bfloat16.
    try:
        kind: np.dtype[Any] | None = np.dtype(dtype)
    except TypeError:
        kind = None

    if kind is None or kind not in UNIT:
        raise ParameterError(
            owner=owner,
            name="dtype",
            expected="float32 or float64",
            got=repr(dtype),
            do=_TOO_COARSE,
        )

    return kind


def gamma(roundings: int, dtype: np.dtype[np.floating]) -> Fraction:
    """Bound the relative error of a sum of products whose terms are rounded at most n times.

    n*u / (1 - n*u), in any order of additions: (1 + u)^n - 1 and 1 - (1 - u)^n are at most that
    [Higham2002, Lemma 3.1].

    | roundings | bound |
    |---|---|
    | 0 | 0 |
    | n with n*u below 1/2 | below 1 |
    | more: 2^23 in float32, 2^52 in float64 | `ParameterError` |

    >>> float(gamma(1024, np.dtype(np.float32))) < 6.2e-5
    True
    """
    share = roundings * UNIT[dtype]

    # From one half on the bound is 1 or more: it would say nothing about the sum.
    if share >= Fraction(1, 2):
        raise ParameterError(
            owner="gamma",
            name="roundings",
            expected=(
                "few enough roundings that the bound stays below 1 (at most "
                f"{1 / UNIT[dtype] / 2} in {dtype})"
            ),
            got=str(roundings),
            do="Use smaller blocks.",
        )

    return share / (1 - share)


def tiny(dtype: np.dtype[np.floating]) -> Fraction:
    """Bound what one operation loses to underflow, gradual or flushed to zero."""
    return _SMALLEST_NORMAL[dtype]


def up(value: Fraction) -> float:
    """Round a fraction up to the smallest float64 at or above it; infinity beyond the range.

    >>> up(Fraction(1, 2)), up(Fraction(1, 10)) > Fraction(1, 10)
    (0.5, True)
    """
    try:
        nearest = float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf

    # A fraction becomes the nearest float64, which may lie below it.
    return nearest if nearest >= value else math.nextafter(nearest, math.inf)


def root_up(value: int) -> Fraction:
    """Round the square root of a whole number up, by a relative 2^-32 at most.

    >>> root_up(4) == 2, root_up(2) ** 2 >= 2
    (True, True)
    """
    # 32 bits below the binary point; one more where the root is not exact.
    scaled = value << 64
    root = math.isqrt(scaled)
    return Fraction(root + (root * root < scaled), 2**32)
