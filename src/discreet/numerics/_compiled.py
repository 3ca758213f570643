"""Certified norms and exact sums compiled by numba, with fewer passes over memory.

The operations are those of `norms` and `exact`. Norms are added in the same order as by NumPy, and
sums are sums of integers, which have one value in any order (docs/proofs/sums.md, sections 1 and
2): so both paths give the same bits, and it does not matter which one is taken. Compiled without
fast-math: nothing is reordered or fused.

Compiling takes about a second for each type, once in a process (nothing is cached on disk, for the
reasons of `randomness._compiled`). So it happens once NumPy has worked for about as long: no run
takes much more than twice the time of the better choice. The first use is checked against the same
functions run by the interpreter.

Shapes: B records of D columns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.errors import NumericsError

__all__ = ["LANES", "add_units", "sums_of_squares", "worth_it"]

LANES = 512
"""Columns j, j + LANES, j + 2*LANES, ... of a record are added one after the other, then the lanes
in a tree.
"""

# Numbers that NumPy takes one or two seconds for.
_WORTH = 2**29

# Columns that are added at a time: their sums stay in the first cache.
_PIECE = 2048

# Lanes for squares of integers, which may be added in any order.
_INTEGER_LANES = 256

_Floats = NDArray[np.float64]

# Numbers of each type that went through either path so far.
_worked_on: Counter[np.dtype[np.floating]] = Counter()


def worth_it(rows: NDArray[np.floating]) -> bool:
    """Whether these rows go through compiled code.

    They do if it takes their type and layout, numba is there, and the work so far pays for it.
    """
    right_layout = rows.flags.c_contiguous and rows.flags.aligned
    if rows.dtype not in (np.float32, np.float64) or not right_layout:
        return False

    _worked_on[rows.dtype] += rows.size
    return _worked_on[rows.dtype] > _WORTH and _kernels(rows.dtype) is not None


def sums_of_squares(rows: NDArray[np.floating]) -> _Floats:
    """Add squares as `norms` does, bit for bit: (B, D) to (B,). For rows that are `worth_it`."""
    out = np.zeros(len(rows))
    _compiled(rows)[0](rows, out)
    return out


def add_units(
    rows: NDArray[np.floating],
    weight: _Floats,
    chosen: NDArray[np.intp],
    total: _Floats,
    squares: _Floats,
) -> None:
    """Add the integers of the chosen rows, and their squares, in one pass.

    trunc(row * weight) goes to `total` (D,), the sums of the squares of each row to `squares` (B,).
    These are exact as long as they are below 2^53, and stay above once they are not. For rows that
    are `worth_it`.
    """
    _compiled(rows)[1](rows, weight, chosen, total, squares)


def _sums_of_squares(rows_BD: Any, out_B: Any) -> None:
    columns = rows_BD.shape[1]
    lanes = np.empty(min(columns, LANES))

    for i in range(rows_BD.shape[0] if columns else 0):
        lanes[:] = 0.0

        for start in range(0, columns, LANES):
            piece = rows_BD[i, start : start + LANES]

            for j in range(piece.size):
                x = np.float64(piece[j])
                lanes[j] += x * x

        # The tree of `norms.tree_sums`: the same order, so the same bits.
        width = lanes.size

        while width > 1:
            half = width // 2
            for j in range(half):
                lanes[j] += lanes[j + width - half]

            width -= half

        out_B[i] = lanes[0]


def _add_units(rows_BD: Any, weight_B: Any, chosen: Any, total_D: Any, squares_B: Any) -> None:
    for begin in range(0, rows_BD.shape[1], _PIECE):
        end = min(begin + _PIECE, rows_BD.shape[1])
        lanes = np.empty(min(end - begin, _INTEGER_LANES))

        for i in chosen:
            w = weight_B[i]
            lanes[:] = 0.0

            for start in range(begin, end, _INTEGER_LANES):
                piece = rows_BD[i, start : min(start + _INTEGER_LANES, end)]
                sums = total_D[start : start + _INTEGER_LANES]

                for j in range(piece.size):
                    k = np.trunc(np.float64(piece[j]) * w)
                    sums[j] += k
                    lanes[j] += k * k

            # Whole numbers: the order of this tree does not matter.
            width = lanes.size

            while width > 1:
                half = width // 2
                for j in range(half):
                    lanes[j] += lanes[j + width - half]

                width -= half

            squares_B[i] += lanes[0]


_Kernels = tuple[Callable[..., None], Callable[..., None]]


def _compiled(rows: NDArray[np.floating]) -> _Kernels:
    kernels = _kernels(rows.dtype)
    if kernels is None:
        raise NumericsError(
            expected="numba", got="none", do="Install numba, or use the NumPy path."
        )

    return kernels


@cache
def _kernels(dtype: np.dtype[np.floating]) -> _Kernels | None:
    """Compile both kernels for float32 or float64, and check them; None without numba."""
    # Numba is optional, and slow to import.
    try:
        from numba import njit, types  # noqa: PLC0415
    except ImportError:
        return None

    # Read-only in the signature: arrays that may be written to are taken as well.
    number = types.float32 if dtype == np.float32 else types.float64
    rows = types.Array(number, 2, "C", readonly=True)
    floats, indices = types.Array(types.float64, 1, "C"), types.Array(types.intp, 1, "C")
    norms = njit(types.void(rows, floats), nogil=True, error_model="numpy")(_sums_of_squares)
    sums = njit(types.void(rows, floats, indices, floats, floats), nogil=True, error_model="numpy")(
        _add_units
    )
    _check(dtype, norms, sums)
    return norms, sums


def _check(
    dtype: np.dtype[np.floating], norms: Callable[..., None], sums: Callable[..., None]
) -> None:
    """Compare both kernels with the interpreter on a few well spread numbers."""
    count, columns = 8, _PIECE + 77
    spread = np.arange(count * columns) * 0.6180339887498949 % 1.0 - 0.5
    rows = spread.astype(dtype).reshape(count, columns)

    # Rows with one lane alone: in a sum over many, a rounding that is missing would not show.
    rows[2:, np.arange(columns) % LANES != 0] = 0.0
    weight, chosen = np.linspace(2.0**20, 2.0**21, count), np.arange(count)
    results = []

    for square, add in ((norms, sums), (_sums_of_squares, _add_units)):
        out, total, squares = np.zeros(count), np.zeros(columns), np.zeros(count)
        square(rows, out)
        add(rows, weight, chosen, total, squares)
        results.append(np.concatenate([out, total, squares]))

    if not np.array_equal(results[0], results[1]):
        raise NumericsError(
            expected="compiled code that agrees with the interpreter",
            got="other numbers",
            do="Repair or remove numba: without it the NumPy path is used.",
        )
