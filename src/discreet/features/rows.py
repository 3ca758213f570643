"""Operations on rows in which every row's result is a function of that row alone, bit for bit.

This is assumption A of docs/proofs/sums.md, without which clipping bounds nothing. A library's
matrix product does not keep it: with another number of rows it may add in another order. In whole
numbers below 2^53 the order does not matter.
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

__all__ = ["as_vectors", "check_plan", "chunks", "own_product", "pieces", "unit_ball"]

_CHUNK = 2**22  # numbers at a time
_ROW_BITS = 26  # of a row's norm
_COLUMN_BITS = 25  # of the norm of a column of the matrix, which is about 1
_LONGEST_COLUMN = 1.5
_LEAST_EXPONENT = -900  # rows of smaller norm become zeros; all powers of two here are float64


def unit_ball(vectors: NDArray[Any], *, radius: float = 1.0) -> NDArray[np.floating]:
    """Each row x as x / max(radius, |x|): norms are at most 1, up to one rounding of each number.

    It depends on no data but the row, so it costs nothing.

    Args:
        vectors: one row per record; sensitive or public, and so is the result.
        radius: norm that becomes 1; longer rows become 1 as well. With 0, all rows but zeros have
            norm 1. Public.

    >>> unit_ball(np.array([[3.0, 4.0], [0.3, 0.4]])).round(6).tolist()
    [[0.6, 0.8], [0.3, 0.4]]
    """
    owner = "unit_ball"
    rows = as_vectors(owner, vectors)
    least = 0.0 if radius == 0 else check.positive(owner, "radius", radius)
    result = np.empty_like(rows)
    for part in chunks(rows):
        norms = np.maximum(l2_norms(rows[part]), least)
        with np.errstate(
            all="ignore"
        ):  # infinite norms: not a number, or too large; zeros stay zeros
            np.divide(
                rows[part],
                np.where(norms == 0.0, 1.0, norms)[:, np.newaxis],
                out=result[part],
                casting="same_kind",
            )
    return result


def own_product(rows: NDArray[np.floating], matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """The product rows @ matrix, for columns of norm about 1, in which a row depends on its own row
    only, bit for bit.

    With integers k of a row, |k| <= 2^26, and integers m of a column, |m| <= 1.5 * 2^25, every sum
    of some of the products k_i m_i is at most |k||m| < 2^52 in size: exact in float64, in any
    order. For columns of norm 1 and rows of d numbers, not smaller than 2^-900, a number of the
    result is off by at most 2^-24 sqrt(d) |x|.

    Args:
        rows: any numbers; a row with NaN or infinities gives NaN. Sensitive.
        matrix: of columns of norm at most 1.5; public.
    """
    if not (l2_norms(matrix.T.copy()) <= _LONGEST_COLUMN).all():
        raise NumericsError(
            expected="a matrix whose columns have norms of at most 1.5",
            got="another",
            do="Use orthonormal columns.",
        )
    norms = l2_norms(rows)
    finite = np.isfinite(norms)
    exponents = np.maximum(
        np.frexp(np.where(finite, norms, 1.0))[1], _LEAST_EXPONENT
    )  # 2^exponent is above the norm
    with np.errstate(all="ignore"):  # no row may raise
        units = np.multiply(
            rows, np.ldexp(1.0, _ROW_BITS - exponents)[:, np.newaxis], dtype=np.float64
        )
        units[~finite] = 0.0
        np.trunc(units, out=units)
        product = units @ np.trunc(matrix * 2.0**_COLUMN_BITS)
        product *= np.ldexp(1.0, exponents - _ROW_BITS - _COLUMN_BITS)[:, np.newaxis]
    product[~finite] = np.nan
    return np.asarray(product)


def as_vectors(
    owner: str, vectors: NDArray[Any], dimension: int | None = None
) -> NDArray[np.floating]:
    """Rows of float32 or float64, one per record. What is masked is not a number. No message says
    how many there are.
    """
    values = bare(vectors)
    wrong = values.dtype.kind not in "iubf" or values.ndim < 2
    size = 0 if wrong else math.prod(values.shape[1:])
    if wrong or (size != dimension if dimension is not None else size < 1):
        expected = "numbers, one row for each record" + (
            "" if dimension is None else f" of {dimension} numbers"
        )
        got = (
            f"{values.dtype}, rows of shape {values.shape[1:]}"
            if values.ndim
            else f"{values.dtype} without rows"
        )
        raise ParameterError(owner=owner, name="vectors", expected=expected, got=got)
    kind: type[np.floating] = np.float32 if values.dtype in (np.float16, np.float32) else np.float64
    with np.errstate(all="ignore"):  # what has no float64 is infinite, and contributes nothing
        return np.asarray(values, kind, order="C").reshape(len(values), size)


def chunks(rows: NDArray[np.floating]) -> Iterator[slice]:
    """Rows in pieces that need little memory."""
    height = max(1, _CHUNK // rows.shape[1])
    for start in range(0, len(rows), height):
        yield slice(start, min(start + height, len(rows)))


def pieces(indices: NDArray[np.int64], width: int) -> Iterator[NDArray[np.int64]]:
    """The records of a sample, in pieces of `width` numbers each that need little memory."""
    height = max(1, _CHUNK // width)
    for start in range(0, len(indices), height):
        yield indices[start : start + height]


def check_plan(owner: str, plan: Plan, leaves: dict[str, int], rows: int) -> None:
    """Refuse a plan that is not one sample of these rows with these leaves, before anything is
    charged.
    """
    sampler = check.instance(owner, "plan", plan, Plan).sampler
    if not isinstance(sampler, Sampler) or sampler.batches != 1 or sampler.owners is not None:
        expected = "of one step and one batch, over records that are rows"
        raise ParameterError(owner=owner, name="plan", expected=expected, got="another sampler")
    if dict(plan.bound.dimensions) != leaves:
        raise ParameterError(
            owner=owner,
            name="plan",
            expected=f"with the leaves {leaves}",
            got=str(dict(plan.bound.dimensions)),
        )
    if rows != sampler.records:
        expected = f"one row for each of the {sampler.records} records that the plan names"
        raise ParameterError(
            owner=owner, name="vectors", expected=expected, got="another number of rows"
        )
