"""How numbers are written for people, the same in guarantees, reports and commands."""

from __future__ import annotations

import math
import re
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

__all__ = ["counted", "downward", "nearest", "upward"]


def upward(number: float | Decimal, digits: int = 4) -> str:
    """Write an upper bound in few digits: never below the number.

    From 1e-4 to 1e9 the digits stand as they are; beyond, with an exponent, as Python itself does
    for small numbers: in 0.00005001 a reader has to count zeros, and miscounting one is a factor
    of ten in a claim. The exponent's `e` is small, as in the delta that stands beside it.

    >>> upward(2.67641), upward(5e-5), upward(math.inf), upward(0.0)
    ('2.677', '5.001e-5', 'infinity', '0')
    """
    return _rounded(number, ROUND_CEILING, digits)


def downward(number: float | Decimal, digits: int = 4) -> str:
    """Write a lower bound in few digits: never above the number; else as `upward`.

    >>> downward(2.67648), downward(5e-5)
    ('2.676', '5e-5')
    """
    return _rounded(number, ROUND_FLOOR, digits)


def _rounded(number: float | Decimal, direction: str, digits: int) -> str:
    size = abs(float(number))
    if math.isinf(size):
        return "infinity" if number > 0 else "-infinity"

    # From the float's exact value: 5e-5 is a little more than the decimal, and rounds up.
    short = Context(prec=digits, rounding=direction).create_decimal(number).normalize()

    # Plain digits from 0.0001 on, by the number itself and not by what it was rounded to.
    is_plain = size == 0.0 or 1e-4 <= size < 1e9
    return f"{short:f}" if is_plain else f"{short:e}"


def nearest(number: float) -> str:
    """Write a parameter in six digits, to the nearest; no bound is written so.

    >>> nearest(512.0), nearest(0.94925707003)
    ('512', '0.949257')
    """
    return f"{number:.6g}"


def counted(count: int, noun: str) -> str:
    """Write a number with its noun.

    >>> counted(1, "step"), counted(2344, "step"), counted(20, "batch")
    ('1 step', '2,344 steps', '20 batches')
    """
    if count == 1:
        return f"1 {noun}"

    # Enough English for the nouns of this library: steps, batches, queries.
    plural = re.sub("ys$", "ies", re.sub("chs$", "ches", noun + "s"))
    return f"{count:,} {plural}"
