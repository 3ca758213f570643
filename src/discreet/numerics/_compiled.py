"""Certified norms and exact sums compiled (native/sums.h), with fewer passes over memory.

The operations are those of `norms` and `exact`. Norms are added in the same order as by NumPy, and
sums are sums of integers, which have one value in any order (docs/proofs/sums.md, sections 1 and
2): so both paths give the same bits, and it does not matter which one is taken. The compiler is
told to fuse and to reorder nothing.

Where nobody has compiled them so far, it happens once NumPy has worked for about as long. The first
use is checked against the same functions in Python.

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
from discreet.native import kernels

__all__ = ["LANES", "add_units", "sums_of_squares", "worth_it"]

LANES = 512
"""Columns j, j + LANES, j + 2*LANES, ... of a record are added one after the other, then the lanes
in a tree.
"""

# Numbers that NumPy takes one or two seconds for.
_WORTH = 2**29

# Columns of the check: more than the compiled code adds at a time.
_CHECKED = 2048 + 77

_Floats = NDArray[np.float64]

# Numbers that went through either path so far.
_worked_on: Counter[str] = Counter()


def worth_it(rows: NDArray[np.floating]) -> bool:
    """Whether these rows go through compiled code.

    They do if it takes their type and layout, and is there, or is worth a compiler by now.
    """
    right_layout = rows.flags.c_contiguous and rows.flags.aligned
    if rows.dtype not in (np.float32, np.float64) or not right_layout:
        return False

    _worked_on["numbers"] += rows.size
    is_worth_it = _worked_on["numbers"] > _WORTH
    return kernels(may_compile=is_worth_it) is not None and _kernels(rows.dtype) is not None


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


_Kernels = tuple[Callable[..., None], Callable[..., None]]


def _compiled(rows: NDArray[np.floating]) -> _Kernels:
    functions = _kernels(rows.dtype)
    if functions is None:
        raise NumericsError(
            expected="compiled code", got="none", do="Use the NumPy path, which needs none."
        )

    return functions


@cache
def _kernels(dtype: np.dtype[np.floating]) -> _Kernels | None:
    """Both kernels for float32 or float64, checked; None where nothing can be compiled."""
    library = kernels(may_compile=True)
    if library is None:
        return None

    square = library.function(f"squares_{dtype.char}", "pnnp")
    add = library.function(f"units_{dtype.char}", "pnppnpp")

    def norms(rows_BD: Any, out_B: Any) -> None:
        _check_memory(dtype, rows_BD, (out_B,))
        square(rows_BD.ctypes.data, *rows_BD.shape, out_B.ctypes.data)

    def sums(rows_BD: Any, weight_B: Any, chosen: Any, total_D: Any, squares_B: Any) -> None:
        records, columns = rows_BD.shape
        _check_memory(dtype, rows_BD, (squares_B,), (total_D,))
        weight, places = np.ascontiguousarray(weight_B, float), chosen.astype(np.int64)
        if weight.shape != (records,) or not np.all((places >= 0) & (places < records)):
            raise _wrong_memory("a weight for each record, and records that there are")

        add(
            rows_BD.ctypes.data,
            columns,
            weight.ctypes.data,
            places.ctypes.data,
            places.size,
            total_D.ctypes.data,
            squares_B.ctypes.data,
        )

    _check(dtype, norms, sums)
    return norms, sums


def _check_memory(
    dtype: np.dtype[np.floating],
    rows: NDArray[np.floating],
    of_records: tuple[_Floats, ...],
    of_columns: tuple[_Floats, ...] = (),
) -> None:
    """Refuse what compiled code would read as something else: it is given an address alone."""
    is_read = rows.dtype == dtype and rows.flags.c_contiguous and rows.flags.aligned
    sizes = [(array, rows.shape[0]) for array in of_records]
    sizes += [(array, rows.shape[1]) for array in of_columns]
    are_written = all(
        array.flags.carray and array.dtype == np.float64 and array.shape == (size,)
        for array, size in sizes
    )
    if not (is_read and are_written):
        raise _wrong_memory("contiguous rows, and float64 numbers for each record and column")


def _wrong_memory(expected: str) -> NumericsError:
    return NumericsError(
        expected=expected, got="other arrays", do="Use the NumPy path, which takes them."
    )


def _check(
    dtype: np.dtype[np.floating], norms: Callable[..., None], sums: Callable[..., None]
) -> None:
    """Compare both kernels with plain Python on a few well spread numbers."""
    count, columns = 8, _CHECKED
    spread = np.arange(count * columns) * 0.6180339887498949 % 1.0 - 0.5
    rows = spread.astype(dtype).reshape(count, columns)

    # Rows with one lane alone: in a sum over many, a rounding that is missing would not show.
    rows[2:, np.arange(columns) % LANES != 0] = 0.0
    weight, chosen = np.linspace(2.0**20, 2.0**21, count), np.arange(count)
    results = []

    for square, add in ((norms, sums), (_plain_squares, _plain_units)):
        out, total, squares = np.zeros(count), np.zeros(columns), np.zeros(count)
        square(rows, out)
        add(rows, weight, chosen, total, squares)
        results.append(np.concatenate([out, total, squares]))

    if not np.array_equal(results[0], results[1]):
        raise NumericsError(
            expected="compiled code that agrees with plain Python",
            got="other numbers",
            do="Remove the files kernels-*.so of discreet: they are compiled anew.",
        )


def _plain_squares(rows_BD: Any, out_B: Any) -> None:
    """What the check expects of norms: lanes one after the other, then in a tree."""
    for i, row in enumerate(rows_BD.astype(np.float64)):
        lanes = np.zeros(min(row.size, LANES))
        for start in range(0, row.size, LANES):
            piece = row[start : start + LANES]
            lanes[: piece.size] += piece * piece

        while lanes.size > 1:
            half = lanes.size // 2
            lanes[:half] += lanes[lanes.size - half :]
            lanes = lanes[: lanes.size - half]

        out_B[i] = lanes[0]


def _plain_units(rows_BD: Any, weight_B: Any, chosen: Any, total_D: Any, squares_B: Any) -> None:
    """What the check expects of sums: whole numbers, in any order."""
    for i in chosen:
        units = np.trunc(rows_BD[i].astype(np.float64) * weight_B[i])
        total_D += units
        squares_B[i] += units @ units
