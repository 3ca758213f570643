"""Certified norms and exact sums compiled by numba: the operations of `norms` and `exact`, with
fewer passes over memory.

Norms are added in the same order as by NumPy, and sums are sums of integers, which have one value
in any order: so both paths give the same bits, and it does not matter which one is taken. Compiled
without fast-math: nothing is reordered or fused.

Compiling takes about a second for each type, once in a process (nothing is cached on disk: see
`randomness._compiled`). So it
happens once NumPy has worked for about as long: no run takes much more than twice the time of the
better choice. The first use is checked against the same functions run by the interpreter.
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

_WORTH = 2**29  # numbers that NumPy takes one or two seconds for
_PIECE = 2048  # columns that are added at a time: their sums stay in the first cache
_FEW = 256  # lanes for squares of integers, which may be added in any order

_Floats = NDArray[np.float64]
_seen: Counter[np.dtype[np.floating]] = Counter()  # numbers so far


def worth_it(rows: NDArray[np.floating]) -> bool:
    """Whether these rows go through compiled code: it takes their type and layout, numba is there,
    and the work pays for it.
    """
    if rows.dtype not in (np.float32, np.float64) or not (
        rows.flags.c_contiguous and rows.flags.aligned
    ):
        return False
    _seen[rows.dtype] += rows.size
    return _seen[rows.dtype] > _WORTH and _kernels(rows.dtype) is not None


def sums_of_squares(rows: NDArray[np.floating]) -> _Floats:
    """As `norms` adds them, bit for bit. For rows that are `worth_it`."""
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
    """Add trunc(row * weight) of the chosen rows to `total`, and the sums of their squares to
    `squares`, in one pass.

    The squares are exact as long as they are below 2^53, and stay above once they are not. For rows
    that are `worth_it`.
    """
    _compiled(rows)[1](rows, weight, chosen, total, squares)


def _sums_of_squares(rows: Any, out: Any) -> None:
    columns = rows.shape[1]
    lanes = np.empty(min(columns, LANES))
    for i in range(rows.shape[0] if columns else 0):
        lanes[:] = 0.0
        for left in range(0, columns, LANES):
            some = rows[i, left : left + LANES]
            for j in range(some.size):
                x = np.float64(some[j])
                lanes[j] += x * x
        width = lanes.size
        while width > 1:
            half = width // 2
            for j in range(half):
                lanes[j] += lanes[j + width - half]
            width -= half
        out[i] = lanes[0]


def _add_units(rows: Any, weight: Any, chosen: Any, total: Any, squares: Any) -> None:
    for left in range(0, rows.shape[1], _PIECE):
        right = min(left + _PIECE, rows.shape[1])
        lanes = np.empty(min(right - left, _FEW))
        for i in chosen:
            w = weight[i]
            lanes[:] = 0.0
            for start in range(left, right, _FEW):
                some = rows[i, start : min(start + _FEW, right)]
                sums = total[start : start + _FEW]
                for j in range(some.size):
                    k = np.trunc(np.float64(some[j]) * w)
                    sums[j] += k
                    lanes[j] += k * k
            width = lanes.size
            while width > 1:
                half = width // 2
                for j in range(half):
                    lanes[j] += lanes[j + width - half]
                width -= half
            squares[i] += lanes[0]


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
    """Both, for float32 or float64; None without numba."""
    try:
        from numba import njit, types  # noqa: PLC0415  (numba is optional, and slow to import)
    except ImportError:
        return None
    number = types.float32 if dtype == np.float32 else types.float64
    rows = types.Array(
        number, 2, "C", readonly=True
    )  # arrays that may be written to are taken as well
    floats, places = types.Array(types.float64, 1, "C"), types.Array(types.intp, 1, "C")
    norms = njit(types.void(rows, floats), nogil=True, error_model="numpy")(_sums_of_squares)
    sums = njit(types.void(rows, floats, places, floats, floats), nogil=True, error_model="numpy")(
        _add_units
    )
    _check(dtype, norms, sums)
    return norms, sums


def _check(
    dtype: np.dtype[np.floating], norms: Callable[..., None], sums: Callable[..., None]
) -> None:
    """Compare with the interpreter on a few well spread numbers."""
    count, columns = 8, _PIECE + 77
    rows = (
        (np.arange(count * columns) * 0.6180339887498949 % 1.0 - 0.5)
        .astype(dtype)
        .reshape(count, columns)
    )
    rows[2:, np.arange(columns) % LANES != 0] = (
        0.0  # one lane alone: the others would hide a rounding that is missing
    )
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
