"""What happens between the products of an LSTM's steps, compiled by numba: few passes, over rows
that stay in the first cache.

    e^x = 2^k (1 + q),  k = round(x / ln 2),  q = e^r - 1 for r = x - k ln 2 in [-0.35, 0.35],
    by its series up to r^7 / 7!

    s(x) = 1 / (1 + e^-x)      tanh(x) = d / (d + 2) with d = e^(2x) - 1 = 2^k q + (2^k - 1)

The first term that the series leaves out is below 0.35^7 / 8! < 2^-25 of q; together with a handful
of roundings, both functions are within 4 units of 2^-24 of the truth, relative to it, for |x| <= 87
(test_compiled_functions_are_accurate_and_keep_nan measures it), and NaN stays NaN. Compiled without
fast-math. Each loop writes to one array, and reads it nowhere but where it writes: so the compiler
uses vectors.

float32 only. Compiling takes a few seconds, once in a process; nothing is cached on disk (see
`randomness._compiled`). The first use is checked against torch. Importing this file imports numba.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final, cast

import numpy as np
import torch
from numba import njit, types

from discreet.errors import NumericsError

__all__ = ["backward", "compile_kernels", "forward"]

_F: Final = np.float32
_PER_LN_2 = _F(1.4426950408889634)
_LN_2_HIGH = _F(0.693145751953125)  # few enough bits that k times it is exact
_LN_2_LOW = _F(0.6931471805599453 - 0.693145751953125)
# Added and subtracted, it rounds to an integer, which the last bits of the sum hold.
_ROUNDER = _F(1.5 * 2.0**23)
_BITS_OF_1 = np.int32(127 << 23)
_FRACTION = np.int32(23)
_R2, _R3, _R4, _R5, _R6, _R7 = (_F(1.0 / factorial) for factorial in (2, 6, 24, 120, 720, 5040))
_ONE, _TWO = _F(1.0), _F(2.0)
_FARTHEST = _F(87.0)  # e^87 and e^-87 are normal numbers
_FLAT = _F(18.1)  # tanh of half of it is 1 in float32


def _exponential(x: Any) -> tuple[Any, Any]:
    # (2^k, q): k goes into the exponent of a float32, 23 bits up, and q follows by Horner's scheme.
    rounded = x * _PER_LN_2 + _ROUNDER
    k = rounded - _ROUNDER
    r = (x - k * _LN_2_HIGH) - k * _LN_2_LOW
    q = ((((((r * _R7 + _R6) * r + _R5) * r + _R4) * r + _R3) * r + _R2) * r) * r + r
    bits = (np.int32(_F(rounded).view(np.int32)) << _FRACTION) + _BITS_OF_1

    return np.int32(bits).view(np.float32), q


def _within(x: Any, limit: Any) -> Any:
    # The nearest number in [-limit, limit], or NaN, which min and max may lose.
    x = limit if x > limit else x  # noqa: FURB136
    return -limit if x < -limit else x  # noqa: FURB136


def _sigmoid(row: Any) -> None:
    # e^-x = scale (1 + q), and s(x) = 1 / (1 + e^-x).
    for j in range(row.size):
        scale, q = _compiled_exponential(_compiled_within(-row[j], _FARTHEST))
        row[j] = _ONE / ((scale * q + scale) + _ONE)


def _tanh(row: Any) -> None:
    # d = e^(2x) - 1 without cancellation: scale is a power of two, and scale - 1 is exact near 0.
    for j in range(row.size):
        scale, q = _compiled_exponential(_compiled_within(row[j] + row[j], _FLAT))
        d = scale * q + (scale - _ONE)
        row[j] = d / (d + _TWO)


def _forward(t: int, old: int, new: int, gates: Any, ys: Any, cells: Any, tanhs: Any) -> None:
    width = cells.shape[2]
    for record in range(gates.shape[1]):
        row, y, u = gates[t, record], ys[new, record], tanhs[t, record]
        c, later = cells[old, record], cells[new, record]
        i, f = row[:width], row[width : 2 * width]
        g, o = row[2 * width : 3 * width], row[3 * width :]
        # i and f lie beside each other: one pass for both.
        _compiled_sigmoid(row[: 2 * width])
        _compiled_tanh(g)
        _compiled_sigmoid(o)
        # c' = f c + i g.
        for j in range(width):
            later[j] = f[j] * c[j] + i[j] * g[j]
        for j in range(width):
            u[j] = later[j]
        _compiled_tanh(u)
        # y = o tanh(c').
        for j in range(width):
            y[j] = o[j] * u[j]


def _backward(t: int, old: int, gates: Any, cells: Any, tanhs: Any, dys: Any, dcs: Any) -> None:
    width = cells.shape[2]
    scratch = np.empty(width, np.float32)
    for record in range(gates.shape[1]):
        row, c, u = gates[t, record], cells[old, record], tanhs[t, record]
        dy, dc = dys[record], dcs[record]
        i, f = row[:width], row[width : 2 * width]
        g, o = row[2 * width : 3 * width], row[3 * width :]
        # The gradients of `lstm._differentiate`, in an order in which nothing is overwritten that
        # is still needed.

        # dc, through y = o tanh(c').
        for j in range(width):
            dc[j] += dy[j] * o[j] * (_ONE - u[j] * u[j])
        # The gradient of o, in its place.
        for j in range(width):
            o[j] = dy[j] * u[j] * (o[j] * (_ONE - o[j]))
        # Those of i and g need each other: i waits in the scratch.
        for j in range(width):
            scratch[j] = dc[j] * g[j] * (i[j] * (_ONE - i[j]))
        for j in range(width):
            g[j] = dc[j] * i[j] * (_ONE - g[j] * g[j])
        for j in range(width):
            i[j] = scratch[j]
        # The gradient of the state before, and that of f, in the same way.
        for j in range(width):
            scratch[j] = dc[j] * f[j]
        for j in range(width):
            f[j] = dc[j] * c[j] * (f[j] * (_ONE - f[j]))
        for j in range(width):
            dc[j] = scratch[j]


_make = cast("Any", njit(nogil=True, error_model="numpy"))
_compiled_exponential, _compiled_within = _make(_exponential), _make(_within)
_compiled_sigmoid, _compiled_tanh = _make(_sigmoid), _make(_tanh)

forward: Any = _make(_forward)
"""(t, old, new, gates (T, m, 4H), y (S, m, H), cells (S, m, H), tanh of cells (T, m, H)): fills one
step of them.
"""

backward: Any = _make(_backward)
"""(t, old, gates, cells, tanh of cells, dy (m, H), dc (m, H)): gates become their gradients, dc
that of the cells before.
"""


@cache
def compile_kernels() -> None:
    """Compile both kernels, and compare them with torch."""
    table, rows = types.Array(types.float32, 3, "C"), types.Array(types.float32, 2, "C")
    at = types.intp
    forward.compile((at, at, at, table, table, table, table))
    backward.compile((at, at, table, table, table, rows, rows))
    _check()


def _check() -> None:
    """Compare one step of two records, on well spread numbers, with autograd in float64."""
    width = 37
    # Multiples of the golden ratio, modulo 1, fill [-6, 6) evenly.
    golden = torch.arange(2 * 7 * width, dtype=torch.float64) * 0.6180339887498949 % 1.0
    numbers = (golden * 12.0 - 6.0).float().double().view(7, 2, width)
    gates, (dy, dc) = torch.cat(tuple(numbers[:4]), 1).float().unsqueeze(0).numpy(), numbers[5:]
    cells = np.zeros((2, 2, width), _F)
    cells[0] = numbers[4]

    with torch.enable_grad():
        leaves = [leaf.clone().requires_grad_() for leaf in numbers[:5]]
        i, f, g, o, c = leaves
        later = f.sigmoid() * c + i.sigmoid() * g.tanh()
        y = o.sigmoid() * later.tanh()
        *d_gates, d_c = torch.autograd.grad((y, later), leaves, (dy, dc))

    ys, tanhs = np.zeros((2, 2, width), _F), np.zeros((1, 2, width), _F)
    dc_single = dc.float().numpy()
    forward(0, 0, 1, gates, ys, cells, tanhs)
    backward(0, 0, gates, cells, tanhs, dy.float().numpy(), dc_single)
    expected = (y.detach(), later.detach(), torch.cat(d_gates, 1), d_c)

    for computed, truth in zip((ys[1], cells[1], gates[0], dc_single), expected, strict=True):
        if not np.allclose(computed, truth.numpy(), rtol=1e-5, atol=1e-5):
            raise NumericsError(
                expected="compiled code that agrees with torch",
                got="other numbers",
                do="Repair or remove numba: without it torch is used.",
            )
