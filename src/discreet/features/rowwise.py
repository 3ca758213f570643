"""Operations on rows in which every row's result is a function of that row alone, bit for bit.

This is assumption A of docs/proofs/sums.md, without which clipping bounds nothing. A library's
matrix product does not satisfy it: with another number of rows it may add in another order. In
whole numbers below 2^53 the order does not matter (docs/proofs/features.md, section 3).

Shapes: B rows (records), D numbers of a row, K columns of a matrix.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet import _validate as check
from discreet.aggregation.sums import bare
from discreet.errors import NumericsError, ParameterError
from discreet.numerics import l2_norms
from discreet.plan import Plan
from discreet.sampling import Sampler

__all__ = ["as_vectors", "check_plan", "chunks", "own_product", "unit_ball"]

# Numbers at a time.
_CHUNK = 2**22

# Bits of a row's norm; bits of the norm of a column of the matrix, which is about 1; the longest
# column: 2^26 * 1.5 * 2^25 < 2^52, so that every partial sum of a product is exact.
_ROW_BITS = 26
_COLUMN_BITS = 25
_LONGEST_COLUMN = 1.5

# Rows of smaller norm become zeros; so all powers of two here are float64.
_LEAST_EXPONENT = -900


def unit_ball(vectors: NDArray[Any], *, radius: float = 1.0) -> NDArray[np.floating]:
    """Shrink each row x to x / max(radius, |x|), of norm at most 1.

    Up to one rounding of each number. It depends on no data but the row, so it costs nothing.

    | row, or radius | result |
    |---|---|
    | zeros | zeros, also with radius 0 |
    | NaN or an infinity | NaN there, zeros elsewhere: its norm counts as infinite |
    | norm above 1.8e308 | zeros, for the same reason |
    | radius negative, infinite or NaN | `ParameterError` |
    | no rows | no rows |

    Args:
        vectors: (B, ...), one row per record; sensitive or public, and so is the result.
        radius: norm that becomes 1; longer rows become 1 as well. With 0, all rows but zeros have
            norm 1. Public.

    >>> unit_ball(np.array([[3.0, 4.0], [0.3, 0.4]])).round(6).tolist()
    [[0.6, 0.8], [0.3, 0.4]]
    """
    owner = "unit_ball"
    rows = as_vectors(owner, vectors)
    least = 0.0 if radius == 0 else check.positive(owner, "radius", radius)
    result = np.empty_like(rows)

    for part in chunks(*rows.shape):
        norms_B = np.maximum(l2_norms(rows[part]), least)

        # Zeros stay zeros; a norm is infinite where a row is not finite, or too large.
        divisors = np.where(norms_B == 0.0, 1.0, norms_B)[:, np.newaxis]
        with np.errstate(all="ignore"):
            np.divide(rows[part], divisors, out=result[part], casting="same_kind")

    return result


def own_product(rows_BD: NDArray[np.floating], matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """Multiply rows @ matrix, so that a row depends on its own row only, bit for bit.

    For columns of norm about 1. With integers k of a row, |k| <= 2^26, and integers m of a column,
    |m| <= 1.5 * 2^25, every sum of some of the products k_i m_i is at most |k||m| < 2^52 in size:
    exact in float64, in any order. For columns of norm 1 and rows of d numbers, not smaller than
    2^-900, a number of the result is off by at most 2^-24 sqrt(d) |x|.

    Args:
        rows_BD: any numbers; a row with NaN or infinities gives NaN. Sensitive.
        matrix: (D, K), of columns of norm at most 1.5; public.
    """
    if not (l2_norms(matrix.T.copy()) <= _LONGEST_COLUMN).all():
        raise NumericsError(
            expected="a matrix whose columns have norms of at most 1.5",
            got="another",
            do="Use orthonormal columns.",
        )

    norms_B = l2_norms(rows_BD)
    finite_B = np.isfinite(norms_B)

    # 2^exponent is above the norm, so the integers of a row have a norm below 2^26.
    powers_B = np.frexp(np.where(finite_B, norms_B, 1.0))[1]
    exponents_B = np.maximum(powers_B, _LEAST_EXPONENT)

    # No row may raise, whatever it holds.
    with np.errstate(all="ignore"):
        factors = np.ldexp(1.0, _ROW_BITS - exponents_B)[:, np.newaxis]
        units_BD = np.multiply(rows_BD, factors, dtype=np.float64)
        units_BD[~finite_B] = 0.0
        np.trunc(units_BD, out=units_BD)
        product_BK = units_BD @ np.trunc(matrix * 2.0**_COLUMN_BITS)
        product_BK *= np.ldexp(1.0, exponents_B - _ROW_BITS - _COLUMN_BITS)[:, np.newaxis]

    product_BK[~finite_B] = np.nan
    return np.asarray(product_BK)


def as_vectors(
    owner: str, vectors: NDArray[Any], dimension: int | None = None
) -> NDArray[np.floating]:
    """Make rows of float32 or float64 (B, D), one per record. What is masked is not a number.

    No message says how many rows there are, which is sensitive.
    """
    values = bare(vectors)
    wrong = values.dtype.kind not in "iubf" or values.ndim < 2
    size = 0 if wrong else math.prod(values.shape[1:])

    # Any number of columns where the caller states none, but not none at all.
    wrong |= size < 1 if dimension is None else size != dimension
    if wrong:
        width = "" if dimension is None else f" of {dimension} numbers"
        shape = f", rows of shape {values.shape[1:]}" if values.ndim else " without rows"
        raise ParameterError(
            owner=owner,
            name="vectors",
            expected=f"numbers, one row for each record{width}",
            got=f"{values.dtype}{shape}",
        )

    kind: type[np.floating] = np.float32 if values.dtype in (np.float16, np.float32) else np.float64

    # What has no float64 is infinite, and contributes nothing.
    with np.errstate(all="ignore"):
        return np.asarray(values, kind, order="C").reshape(len(values), size)


def chunks(count: int, width: int) -> Iterator[slice]:
    """Cut so many rows of `width` numbers each into pieces that need little memory."""
    height = max(1, _CHUNK // width)
    for start in range(0, count, height):
        yield slice(start, min(start + height, count))


def check_plan(owner: str, plan: Plan, leaves: dict[str, int], rows: int) -> None:
    """Refuse a plan that is not one sample of these rows, before anything is charged."""
    sampler = check.instance(owner, "plan", plan, Plan).sampler
    if not isinstance(sampler, Sampler) or sampler.batches != 1 or sampler.owners is not None:
        raise ParameterError(
            owner=owner,
            name="plan",
            expected="of one step and one batch, over records that are rows",
            got="another sampler",
        )

    if dict(plan.bound.dimensions) != leaves:
        raise ParameterError(
            owner=owner,
            name="plan",
            expected=f"with the leaves {leaves}",
            got=str(dict(plan.bound.dimensions)),
        )

    # The number of rows itself may be sensitive: the message names that of the plan only.
    if rows != sampler.records:
        raise ParameterError(
            owner=owner,
            name="vectors",
            expected=f"one row for each of the {sampler.records} records that the plan names",
            got="another number of rows",
        )
