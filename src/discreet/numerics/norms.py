"""Certified upper bounds of the L2 norms of records.

    squares in float64 -> added in lanes of columns -> lanes added in a tree -> times 1/(1 - k*u),
    rounded up

k is the number of roundings on the longest path, u = 2^-53. Lanes and tree use elementwise
additions only, so the order, and
with it every bit of a norm, depends on the number of columns and on nothing else: not on the
record's place in the batch, the size of the batch or the memory layout. Without that, one added
record could change the weights of all others (docs/proofs/sums.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

from discreet import _validate as check
from discreet.errors import ParameterError
from discreet.numerics import _compiled
from discreet.numerics._compiled import LANES
from discreet.numerics._rational import binary, gamma, tiny, up

__all__ = [
    "NormError",
    "Records",
    "as_rows",
    "l2_norms",
    "norm_error",
    "squared_norms",
    "tree_sums",
]

Records: TypeAlias = NDArray[np.floating]
"""Float16, float32 or float64, one record per entry of the first axis."""

_CHUNK = 2**16  # numbers converted at a time; they stay in the cache
_SAFE_LEAST, _SAFE_MOST = (
    2.0**-500,
    2.0**1000,
)  # squared norms that float64 squares give without over- or underflow
_WIDE = np.dtype(np.float64)


def l2_norms(records: Records) -> NDArray[np.float64]:
    """An upper bound of each record's L2 norm, relative excess below 1e-12 up to 10^6 columns, 1e-9
    up to 10^9.

    Guarantee: at or above the true norm of the numbers given. A function of the record alone, bit
        for bit.

    | record | bound |
    |---|---|
    | holds NaN or an infinity | +infinity |
    | all zeros, or no columns | 0 |
    | anything else | above 0; +infinity only where the range of float64 ends |

    Args:
        records: shape (B, ...), float16, float32 or float64; sensitive.

    >>> l2_norms(np.array([[3.0, 4.0], [0.0, 0.0], [np.nan, 1.0]], np.float32)).round(12).tolist()
    [5.0, 0.0, inf]
    """
    rows = as_rows("l2_norms", "records", records)
    with np.errstate(all="ignore"):  # no record may raise, whatever the caller has set
        square, exponent = _bounds(rows)
        return _scaled_back(_above(np.sqrt(square)), exponent)


def squared_norms(records: Records) -> NDArray[np.float64]:
    """An upper bound of each record's squared L2 norm; edge cases as for `l2_norms`, with the range
    of float64 for the square.

    A record that is not zero has a bound above zero even where its square underflows.

    >>> usual, small, large = squared_norms(np.array([[3.0, 4.0], [1e-200, 0.0], [1e200, 0.0]])).tolist()
    >>> 25.0 <= usual < 25.000001, 0.0 < small < 1e-300, large
    (True, True, inf)
    """
    rows = as_rows("squared_norms", "records", records)
    with np.errstate(all="ignore"):
        square, exponent = _bounds(rows)
        return _scaled_back(square, 2 * exponent)


@dataclass(frozen=True, slots=True)
class NormError:
    """How far a computed sum of squares may be below the truth: truth <= (computed + absolute) *
    factor.

    >>> error = norm_error(np.float32, dimension=10**6, block=1024)
    >>> error.factor < 1.0000613, error.bound(np.array([1.0])).round(6).tolist()
    (True, [1.000061])
    """

    factor: float
    absolute: float

    def bound(self, computed: NDArray[np.floating]) -> NDArray[np.float64]:
        """Upper bounds of the squared norms, for sums of squares computed as described; +infinity
        where not finite.
        """
        wide = np.asarray(computed, np.float64)
        with np.errstate(all="ignore"):
            high = np.nextafter(
                np.nextafter(wide + self.absolute, math.inf) * self.factor, math.inf
            )
        return np.where(wide >= 0.0, high, math.inf)  # also for NaN


def norm_error(dtype: DTypeLike, dimension: int, block: int) -> NormError:
    """The error of squares and sums over blocks in `dtype`, in any order, block sums added in
    float64 in any order.

    For an engine that computes its sums of squares elsewhere. Each term is rounded at most 1 +
    (block - 1) times in `dtype` and less than dimension/block times in float64; each operation may
    lose an underflowed value, flushed to zero or not.

    Args:
        dtype: float32 or float64 (not TF32 or bfloat16 products, which round the factors first);
            public.
        dimension: columns of a record; public.
        block: columns summed in `dtype`; public.
    """
    owner = "norm_error"
    kind = binary(owner, dtype)
    columns = check.whole(owner, "dimension", dimension, least=0)
    width = check.whole(owner, "block", block, least=1)
    blocks = -(-columns // width)
    lost = (
        6 * columns * tiny(kind)
    )  # three operations per column, later rounded up by less than a factor of 2
    # All terms are positive: computed >= (1 - a)(1 - b) (truth - lost), with a and b the shares
    # below.
    least = (1 - _share(min(width, columns), kind)) * (1 - _share(blocks, _WIDE))
    return NormError(up(1 / least), up(lost))


def as_rows(owner: str, name: str, records: Records) -> Records:
    """The records as (B, d), or an error that says what is wrong."""
    if (
        not isinstance(records, np.ndarray)
        or records.dtype not in (np.float16, np.float32, np.float64)
        or records.ndim < 1
    ):
        got = (
            f"{records.dtype}, {records.ndim} axes"
            if isinstance(records, np.ndarray)
            else type(records).__name__
        )
        expected = (
            "an array of float16, float32 or float64 with one record per entry of the first axis"
        )
        raise ParameterError(owner=owner, name=name, expected=expected, got=got)
    return np.asarray(records).reshape(
        len(records), math.prod(records.shape[1:])
    )  # a mask would hide numbers from the norm


def _bounds(rows: Records) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
    """(s, e) with squared norm <= s * 4^e for each row."""
    square = _sums_of_squares(rows)
    exponent = np.zeros(len(rows), np.int32)
    if rows.dtype == _WIDE:  # narrower numbers have squares well inside the range
        odd = np.flatnonzero(
            ~((square >= _SAFE_LEAST) & (square <= _SAFE_MOST))
        )  # rare, and true for NaN
        height = max(1, _CHUNK // max(1, rows.shape[1]))
        for start in range(0, len(odd), height):
            some = odd[start : start + height]
            square[some], exponent[some] = _scaled(rows[some])
    square *= _excess(rows.shape[1])
    square[np.isnan(square)] = math.inf
    return _above(square), exponent


def _scaled(rows: Records) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
    """The same for rows divided by a power of two above their largest entry."""
    largest = np.max(np.abs(rows), axis=1, initial=0.0)
    finite = np.isfinite(largest)  # false for NaN
    exponent = np.where(finite, np.frexp(np.where(finite, largest, 0.0))[1], 0).astype(np.int32)
    # What underflows here is below 2^-500 of the largest entry: less than one more rounding for any
    # number of columns.
    total = _sums_of_squares(np.ldexp(rows, -exponent[:, np.newaxis]))
    return np.where(finite, _above(total), math.inf), exponent


def _sums_of_squares(rows: Records) -> NDArray[np.float64]:
    if _compiled.worth_it(rows):
        return _compiled.sums_of_squares(rows)
    count, columns = rows.shape
    width = min(columns, LANES)
    height = max(1, _CHUNK // max(1, width))
    total = np.zeros(count)
    space = np.empty((min(height, count), width))
    with np.errstate(all="ignore"):
        for top in range(0, count if columns else 0, height):
            lanes = np.zeros((min(height, count - top), width))
            for left in range(0, columns, LANES):
                some = rows[top : top + height, left : left + LANES]
                piece = space[: some.shape[0], : some.shape[1]]
                np.copyto(piece, some)
                np.square(piece, out=piece)
                lanes[:, : some.shape[1]] += piece
            total[top : top + height] = tree_sums(lanes)
    return total


def tree_sums(terms: Any) -> Any:
    """Row sums by elementwise additions, in an order that depends on the number of columns only.
    Overwrites its argument.

    A library's own sum may take another order for another number of rows or another layout: then a
    record that comes or goes would move the norms of all others (docs/proofs/sums.md, assumption
    A). For arrays of NumPy or torch.
    """
    width = terms.shape[1]
    while width > 1:
        half = width // 2
        terms[:, :half] += terms[:, width - half : width]
        width -= half
    return terms[:, 0]


@lru_cache(1024)
def _excess(columns: int) -> float:
    """At or above truth / computed."""
    return up(1 / (1 - _share(_roundings(columns), _WIDE)))


def _roundings(columns: int) -> int:
    """Most roundings of one term: its square, its lane, the tree, and one for what `_scaled` drops."""
    return 2 + -(-columns // LANES) + math.ceil(math.log2(max(2, min(columns, LANES))))


def _share(roundings: int, kind: np.dtype[np.floating]) -> Fraction:
    """At or above 1 - (1-u)^n."""
    bound = gamma(roundings, kind)
    return bound / (1 + bound)


def _above(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The next number up, except for zero."""
    return np.where(values > 0.0, np.nextafter(values, math.inf), values)


def _scaled_back(values: NDArray[np.float64], exponent: NDArray[np.int32]) -> NDArray[np.float64]:
    """Times a power of two, rounded up: what is not zero stays above zero."""
    return np.where(values > 0.0, np.nextafter(np.ldexp(values, exponent), math.inf), values)
