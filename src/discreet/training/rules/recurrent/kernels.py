"""What happens between the products of an LSTM's steps, compiled (native/lstm.h): few passes, over
rows that stay in the first cache.

    e^x = 2^k (1 + q),  k = round(x / ln 2),  q = e^r - 1 for r = x - k ln 2 in [-0.35, 0.35],
    by its series up to r^7 / 7!

    s(x) = 1 / (1 + e^-x)      tanh(x) = d / (d + 2) with d = e^(2x) - 1 = 2^k q + (2^k - 1)

The first term that the series leaves out is below 0.35^7 / 8! < 2^-25 of q; together with a handful
of roundings, both functions are within 4 units of 2^-24 of the truth, relative to it, for |x| <= 87
(test_compiled_functions_are_accurate_and_keep_nan measures it), and NaN stays NaN.

float32 only. The first use is checked against torch.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from discreet.errors import NumericsError
from discreet.native import kernels

__all__ = ["Backward", "Forward", "backward", "check_kernels", "forward"]

_F: Final = np.float32
_BYTES: Final = 4

_Singles = NDArray[np.float32]

Forward = Callable[[int, int, int], None]
"""Of (t, old, new): fills one step."""

Backward = Callable[[int, int], None]
"""Of (t, old): gates become their gradients, and dc that of the cells before."""


def forward(gates: _Singles, ys: _Singles, cells: _Singles, tanhs: _Singles) -> Forward:
    """Prepare the steps of an LSTM forward.

    Args:
        gates: (T, m, 4H), before their functions, which take their place.
        ys: (S, m, H), the outputs; gets that of the state `new`.
        cells: (S, m, H); of state `old` are read, of `new` are written.
        tanhs: (T, m, H) of the new cells.
    """
    positions, records, width = tanhs.shape
    states = len(cells)
    _check_shapes(gates, (positions, records, 4 * width))
    for array, length in ((ys, states), (cells, states), (tanhs, positions)):
        _check_shapes(array, (length, records, width))

    step = _function("lstm_forward", "nnppppp")
    size = records * width * _BYTES
    buffers = (gates, ys, cells, tanhs)
    gate, y, cell, tanh = (array.ctypes.data for array in buffers)

    # The buffers stay as long as their addresses.
    def run(t: int, old: int, new: int, *, _: object = buffers) -> None:
        _check_places(t, positions, (old, new), states)
        step(
            records,
            width,
            gate + 4 * size * t,
            cell + size * old,
            cell + size * new,
            tanh + size * t,
            y + size * new,
        )

    return run


def backward(
    gates: _Singles, cells: _Singles, tanhs: _Singles, dys: _Singles, dcs: _Singles
) -> Backward:
    """Prepare the steps of an LSTM backward.

    Args:
        gates: (T, m, 4H), of the forward pass; become their gradients.
        cells: (S, m, H).
        tanhs: (T, m, H) of the new cells.
        dys: (m, H), the gradients of the outputs.
        dcs: (m, H), those of the new cells; become those of the cells before.
    """
    positions, records, width = tanhs.shape
    states = len(cells)
    _check_shapes(gates, (positions, records, 4 * width))
    _check_shapes(cells, (states, records, width))
    _check_shapes(tanhs, (positions, records, width))
    _check_shapes(dys, (records, width))
    _check_shapes(dcs, (records, width))

    step = _function("lstm_backward", "nnppppp")
    size = records * width * _BYTES
    buffers = (gates, cells, tanhs, dys, dcs)
    gate, cell, tanh, dy, dc = (array.ctypes.data for array in buffers)

    def run(t: int, old: int, *, _: object = buffers) -> None:
        _check_places(t, positions, (old,), states)
        step(records, width, gate + 4 * size * t, cell + size * old, tanh + size * t, dy, dc)

    return run


def _check_shapes(array: _Singles, shape: tuple[int, ...]) -> None:
    """Refuse what compiled code would read as something else: it is given an address alone."""
    fits = array.flags.carray and array.dtype == _F and array.shape == shape
    if not fits:
        raise NumericsError(
            expected=f"a contiguous array of float32 of shape {shape}",
            got=f"{array.dtype} of shape {array.shape}",
            do="Use torch for these.",
        )


def _check_places(t: int, positions: int, states: tuple[int, ...], count: int) -> None:
    if not (0 <= t < positions and all(0 <= state < count for state in states)):
        raise NumericsError(
            expected=f"a step below {positions} and states below {count}",
            got=f"{t} and {states}",
            do="Take steps of the buffers that were prepared.",
        )


@cache
def _function(name: str, arguments: str) -> Any:
    library = kernels(may_compile=True)
    if library is None:
        raise NumericsError(expected="compiled code", got="none", do="Use torch, which needs none.")

    return library.function(name, arguments)


@cache
def check_kernels() -> None:
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
    forward(gates, ys, cells, tanhs)(0, 0, 1)
    backward(gates, cells, tanhs, dy.float().numpy(), dc_single)(0, 0)
    expected = (y.detach(), later.detach(), torch.cat(d_gates, 1), d_c)

    for computed, truth in zip((ys[1], cells[1], gates[0], dc_single), expected, strict=True):
        if not np.allclose(computed, truth.numpy(), rtol=1e-5, atol=1e-5):
            raise NumericsError(
                expected="compiled code that agrees with torch",
                got="other numbers",
                do="Remove the files kernels-*.so of discreet: they are compiled anew.",
            )
