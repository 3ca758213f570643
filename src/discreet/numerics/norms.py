"""Certified upper bounds of the L2 norms of records.

    squares in float64 -> added in lanes of columns -> lanes added in a tree
                       -> times 1/(1 - k*u), rounded up

k is the number of roundings on the longest path, u = 2^-53. Lanes and tree use elementwise
additions only, so the order, and with it every bit of a norm, depends on the number of columns and
on nothing else: not on the record's place in the batch, the size of the batch or the memory layout.
Without that, one added record could change the weights of all others (docs/proofs/sums.md, section
1 and assumption A).

Shapes: B records, D columns, L lanes.
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

# Numbers converted at a time; they stay in the cache.
_CHUNK = 2**16

# Squared norms that squares in float64 give without over- or underflow that matters.
_SAFE_LEAST, _SAFE_MOST = 2.0**-500, 2.0**1000

_WIDE = np.dtype(np.float64)


def l2_norms(records: Records) -> NDArray[np.float64]:
    """Bound each record's L2 norm from above.

    Guarantee: at or above the true norm of the numbers that came in. A function of the record
    alone, bit for bit. The relative excess is below 1e-12 up to 10^6 columns, 1e-9 up to 10^9.

    | record | bound |
    |---|---|
    | holds NaN or an infinity | +infinity |
    | all zeros, or no columns | 0 |
    | 5e-324, the smallest number, in one column | 1e-323, above 0 |
    | 1.8e308, the largest number, in one column | +infinity: the next number up |
    | anything else | above 0; +infinity only where the range of float64 ends |
    | no records | an empty array |

    Args:
        records: (B, ...), float16, float32 or float64; sensitive.

    >>> l2_norms(np.array([[3.0, 4.0], [0.0, 0.0], [np.nan, 1.0]], np.float32)).round(12).tolist()
    [5.0, 0.0, inf]
    """
    rows = as_rows("l2_norms", "records", records)
    with np.errstate(all="ignore"):  # no record may raise, whatever the caller has set
        square, exponent = _bounds(rows)
        return _scaled_back(_above(np.sqrt(square)), exponent)


def squared_norms(records: Records) -> NDArray[np.float64]:
    """Bound each record's squared L2 norm from above.

    Edge cases as for `l2_norms`, with the range of float64 for the square. A record that is not
    zero has a bound above zero even where its square underflows.

    >>> records = np.array([[3.0, 4.0], [1e-200, 0.0], [1e200, 0.0]])
    >>> usual, small, large = squared_norms(records).tolist()
    >>> 25.0 <= usual < 25.000001, 0.0 < small < 1e-300, large
    (True, True, inf)
    """
    rows = as_rows("squared_norms", "records", records)
    with np.errstate(all="ignore"):
        square, exponent = _bounds(rows)
        return _scaled_back(square, 2 * exponent)


@dataclass(frozen=True, slots=True)
class NormError:
    """How far a computed sum of squares may be below the truth.

    truth <= (computed + absolute) * factor.

    >>> error = norm_error(np.float32, dimension=10**6, block=1024)
    >>> error.factor < 1.0000613, error.bound(np.array([1.0])).round(6).tolist()
    (True, [1.000061])
    """

    factor: float
    absolute: float

    def bound(self, computed: NDArray[np.floating]) -> NDArray[np.float64]:
        """Bound the squared norms from above, for sums of squares computed as described.

        Not a number, or below 0: +infinity.
        """
        wide = np.asarray(computed, np.float64)

        # The sum and the product may each round down: one step up after each. The comparison is
        # false for NaN. Whatever the caller has set, no record may raise.
        with np.errstate(all="ignore"):
            high = np.nextafter(wide + self.absolute, math.inf) * self.factor
            return np.where(wide >= 0.0, np.nextafter(high, math.inf), math.inf)


def norm_error(dtype: DTypeLike, dimension: int, block: int) -> NormError:
    """Bound the error of sums of squares: blocks in `dtype`, then block sums in float64.

    In any order; for an engine that computes its sums of squares elsewhere. Each term is rounded at
    most 1 + (block - 1) times in `dtype` and less than dimension/block times in float64; each
    operation may lose an underflowed value, flushed to zero or not (sums.md, section 1).

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

    # Three operations per column may underflow, later rounded up by less than a factor of 2.
    lost = 6 * columns * tiny(kind)

    # All terms are positive: computed >= (1 - a)(1 - b) (truth - lost), with a and b the shares
    # below.
    least = (1 - _share(min(width, columns), kind)) * (1 - _share(blocks, _WIDE))
    return NormError(up(1 / least), up(lost))


def as_rows(owner: str, name: str, records: Records) -> Records:
    """View the records as (B, D), or raise an error that says what is wrong."""
    is_array = isinstance(records, np.ndarray)
    kinds = (np.float16, np.float32, np.float64)
    if not is_array or records.dtype not in kinds or records.ndim < 1:
        raise ParameterError(
            owner=owner,
            name=name,
            expected=(
                "an array of float16, float32 or float64 with one record per entry of the "
                "first axis"
            ),
            got=f"{records.dtype}, {records.ndim} axes" if is_array else type(records).__name__,
        )

    # A plain array: a mask would hide numbers from the norm.
    return np.asarray(records).reshape(len(records), math.prod(records.shape[1:]))


def _bounds(rows_BD: Records) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
    """Compute (s, e) with squared norm <= s * 4^e for each row."""
    square_B = _sums_of_squares(rows_BD)
    exponent_B = np.zeros(len(rows_BD), np.int32)

    # Squares of narrower numbers are well inside the range. Of wide ones, what is not (rare, and
    # true for NaN) is computed once more from rows of about 1.
    if rows_BD.dtype == _WIDE:
        unsafe = np.flatnonzero(~((square_B >= _SAFE_LEAST) & (square_B <= _SAFE_MOST)))
        height = max(1, _CHUNK // max(1, rows_BD.shape[1]))

        for start in range(0, len(unsafe), height):
            batch = unsafe[start : start + height]
            square_B[batch], exponent_B[batch] = _scaled(rows_BD[batch])

    # Outward: times the largest excess of truth over computed, then the next number up.
    square_B *= _excess(rows_BD.shape[1])
    square_B[np.isnan(square_B)] = math.inf
    return _above(square_B), exponent_B


def _scaled(rows_BD: Records) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
    """Compute (s, e) from rows divided by a power of two above their largest entry."""
    # Comparisons with NaN are false: such a row is not finite.
    largest_B = np.max(np.abs(rows_BD), axis=1, initial=0.0)
    finite_B = np.isfinite(largest_B)
    powers = np.frexp(np.where(finite_B, largest_B, 0.0))[1]
    exponent_B = np.where(finite_B, powers, 0).astype(np.int32)

    # What underflows here is below 2^-500 of the largest entry: less than one more rounding for any
    # number of columns.
    total_B = _sums_of_squares(np.ldexp(rows_BD, -exponent_B[:, np.newaxis]))
    return np.where(finite_B, _above(total_B), math.inf), exponent_B


def _sums_of_squares(rows_BD: Records) -> NDArray[np.float64]:
    """Add the squares of each row, in the order that the file's first lines state."""
    if _compiled.worth_it(rows_BD):
        return _compiled.sums_of_squares(rows_BD)

    count, columns = rows_BD.shape
    width = min(columns, LANES)
    height = max(1, _CHUNK // max(1, width))
    total_B = np.zeros(count)
    space_BL = np.empty((min(height, count), width))
    with np.errstate(all="ignore"):
        for row in range(0, count if columns else 0, height):
            lanes_BL = np.zeros((min(height, count - row), width))

            for column in range(0, columns, LANES):
                piece = rows_BD[row : row + height, column : column + LANES]
                squares = space_BL[: piece.shape[0], : piece.shape[1]]
                np.copyto(squares, piece)
                np.square(squares, out=squares)
                lanes_BL[:, : piece.shape[1]] += squares

            total_B[row : row + height] = tree_sums(lanes_BL)

    return total_B


def tree_sums(terms: Any) -> Any:
    """Add up each row by elementwise additions, in an order that the number of columns decides.

    A library's own sum may take another order for another number of rows or another layout: then a
    record that comes or goes would move the norms of all others (docs/proofs/sums.md, assumption
    A). For arrays of NumPy or torch with at least one column. Overwrites its argument.
    """
    width = terms.shape[1]

    while width > 1:
        half = width // 2
        terms[:, :half] += terms[:, width - half : width]
        width -= half

    return terms[:, 0]


@lru_cache(1024)
def _excess(columns: int) -> float:
    """Bound truth / computed from above, for a sum of squares of so many columns."""
    return up(1 / (1 - _share(_roundings(columns), _WIDE)))


def _roundings(columns: int) -> int:
    """Bound the roundings of one term: its square, its lane, the tree, and what `_scaled` drops."""
    return 2 + -(-columns // LANES) + math.ceil(math.log2(max(2, min(columns, LANES))))


def _share(roundings: int, kind: np.dtype[np.floating]) -> Fraction:
    """Bound 1 - (1-u)^n from above: the share that so many roundings down may take."""
    bound = gamma(roundings, kind)
    return bound / (1 + bound)


def _above(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Take the next number up, except for zero, which is exact."""
    return np.where(values > 0.0, np.nextafter(values, math.inf), values)


def _scaled_back(values: NDArray[np.float64], exponent: NDArray[np.int32]) -> NDArray[np.float64]:
    """Multiply by a power of two, rounded up: what is not zero stays above zero."""
    return np.where(values > 0.0, np.nextafter(np.ldexp(values, exponent), math.inf), values)
