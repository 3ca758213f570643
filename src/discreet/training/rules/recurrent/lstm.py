"""The steps of an LSTM, as those of `_cells`.

    i, f, o = s(.), g = tanh(.);  c' = f c + i g;  y = o tanh(c');  h' = y, or W_hr y

What happens between the products is done by torch or, for float32 on a CPU with numba, by compiled
kernels. They take a few seconds to compile, so they are used where torch works, or is going to
work, for about as long in this process.

Legend as in `_cells`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from discreet.training.rules.recurrent.cells import (
    Gradients,
    Steps,
    Trace,
    Weights,
    sigmoid_backward,
    states_from,
    tanh_backward,
)

__all__ = ["announce", "lstm", "lstm_backward"]

_WORTH = 2**27  # cells that torch takes some seconds for, forward and backward
_MANY = 2**15  # cells of one step from which torch uses all its threads
_THREADS = 3  # from which those are faster than compiled code in one

_seen = [0]  # cells so far, and those announced
_passes = [1]  # that every cell is going to be seen in


def announce(passes: int) -> None:
    """Say how often what is seen from now on is going to be computed: long runs need not wait for
    compiled kernels.
    """
    _passes[0] = max(1, passes)


def lstm(gates: Tensor, start: tuple[Tensor, ...], weights: Weights, steps: Steps) -> Trace:
    """States: h and c. Others: gates, tanh(c') (T, m, H), and y (T, m, H) if it is projected."""
    across, hidden_SmP, cells_SmH = (
        weights.hh.t(),
        states_from(start[0], steps),
        states_from(start[1], steps),
    )
    y_SmH = hidden_SmP if weights.hr is None else torch.empty_like(cells_SmH)
    tanh_TmH = torch.empty_like(cells_SmH[1:])
    activate = _activate(gates, y_SmH, cells_SmH, tanh_TmH)
    rows, h, y = gates.unbind(), hidden_SmP.unbind(), y_SmH.unbind()
    for t, old, new in zip(*steps, strict=True):
        rows[t].addmm_(h[old], across)
        activate(t, old, new)
        if weights.hr is not None:
            torch.mm(y[new], weights.hr.t(), out=h[new])
    others = (gates, tanh_TmH)
    return Trace(
        (hidden_SmP, cells_SmH), others if weights.hr is None else (*others, steps.later(y_SmH))
    )


def _activate(
    gates: Tensor, y: Tensor, cells: Tensor, tanh: Tensor
) -> Callable[[int, int, int], None]:
    """Between the products of a step: gates, c', tanh(c') and y, in place, for (t, old, new)."""
    kernels = _kernels() if _compiled_is_faster(cells) else None
    if kernels is not None:
        forward, arrays = kernels[0], [buffer.numpy() for buffer in (gates, y, cells, tanh)]
        return lambda t, old, new: forward(t, old, new, *arrays)
    i, f, g, o = (gate.unbind() for gate in gates.chunk(4, 2))
    both, ys, c, u = gates.chunk(2, 2)[0].unbind(), y.unbind(), cells.unbind(), tanh.unbind()

    def activate(t: int, old: int, new: int) -> None:
        both[t].sigmoid_()
        g[t].tanh_()
        o[t].sigmoid_()
        torch.mul(f[t], c[old], out=c[new]).addcmul_(i[t], g[t])
        torch.mul(o[t], torch.tanh(c[new], out=u[t]), out=ys[new])

    return activate


def lstm_backward(
    trace: Trace, weights: Weights, output: Tensor, last: tuple[Tensor, ...], steps: Steps
) -> Gradients:
    """From the gradients of the outputs and of the last states."""
    (_, cells_SmH), (gates_TmG, tanh_TmH, *_) = trace
    dh, dc = (gradient.clone(memory_format=torch.contiguous_format) for gradient in last)
    dy, d_hr_TmP = dh, None
    if weights.hr is not None:
        dy, d_hr_TmP = (
            torch.empty_like(dc),
            torch.empty_like(output, memory_format=torch.contiguous_format),
        )
    differentiate = _differentiate(gates_TmG, cells_SmH, tanh_TmH, dy, dc)
    d_rows, d_out = gates_TmG.unbind(), output.unbind()
    for t, old, _ in zip(*steps.back(), strict=True):
        dh += d_out[t]
        if weights.hr is not None and d_hr_TmP is not None:
            torch.mm(d_hr_TmP[t].copy_(dh), weights.hr, out=dy)
        differentiate(t, old)
        torch.mm(d_rows[t], weights.hh, out=dh)
    return Gradients(gates_TmG, gates_TmG, d_hr_TmP, (dh, dc))


def _differentiate(
    gates: Tensor, cells: Tensor, tanh: Tensor, dy: Tensor, dc: Tensor
) -> Callable[[int, int], None]:
    """Between the products of a step back: gates become their gradients, and dc that of the state
    before, for (t, old).
    """
    kernels = _kernels() if _compiled_is_faster(cells) else None
    if kernels is not None:
        backward, arrays = kernels[1], [buffer.numpy() for buffer in (gates, cells, tanh, dy, dc)]
        return lambda t, old: backward(t, old, *arrays)
    i, f, g, o = (gate.unbind() for gate in gates.chunk(4, 2))
    both, c, u = gates.chunk(2, 2)[0].unbind(), cells.unbind(), tanh.unbind()
    part, part_g, part_both = (
        torch.empty_like(dc),
        torch.empty_like(dc),
        dc.new_empty(len(dc), 2 * dc.shape[1]),
    )
    part_i, part_f = part_both.chunk(2, 1)

    def differentiate(t: int, old: int) -> None:
        dc.add_(tanh_backward(torch.mul(dy, o[t], out=part), u[t], grad_input=part))
        sigmoid_backward(torch.mul(dy, u[t], out=part), o[t], grad_input=o[t])
        torch.mul(dc, i[t], out=part_g)
        torch.mul(dc, g[t], out=part_i)
        torch.mul(dc, c[old], out=part_f)
        dc.mul_(f[t])
        tanh_backward(part_g, g[t], grad_input=g[t])
        sigmoid_backward(part_both, both[t], grad_input=both[t])

    return differentiate


def _compiled_is_faster(cells: Tensor) -> bool:
    if cells.dtype != torch.float32 or cells.device.type != "cpu":
        return False
    if cells[0].numel() >= _MANY and torch.get_num_threads() > _THREADS:
        return False
    _seen[0] += cells.numel() // 2 * _passes[0]  # forward and backward are halves
    return _seen[0] > _WORTH


@cache
def _kernels() -> tuple[Callable[..., None], Callable[..., None]] | None:
    """Forward and backward, compiled; None without numba."""
    try:
        from discreet.training.rules.recurrent.kernels import backward, compile_now, forward  # noqa: PLC0415  (numba is optional)
    except ImportError:
        return None
    compile_now()
    return forward, backward
