"""The steps of an LSTM, on the buffers of `cells.py`.

    i, f, o = s(.),  g = tanh(.),  c' = f c + i g,  y = o tanh(c'),  h' = y, or W_hr y

with (.) = W_ih x + b_ih + W_hh h + b_hh, as torch defines it. What happens between the products is
done by torch or, for float32 on a CPU, by compiled kernels. Where nobody has compiled them so far,
they are used where torch works, or is going to work, for about as long in this process as compiling
takes.

Legend as in `cells.py`: T positions, m records, H cells, P outputs of a step, G = 4H gates,
S = T + 1 states.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from discreet import native
from discreet.training.rules.recurrent.cells import (
    CellSteps,
    Gradients,
    Trace,
    Weights,
    sigmoid_backward,
    states_from,
    tanh_backward,
)
from discreet.training.rules.recurrent.kernels import (
    Backward,
    Forward,
    backward,
    check_kernels,
    forward,
)

__all__ = ["expect_passes", "lstm", "lstm_backward"]

_WORTH = 2**26  # cells that torch takes some seconds for, forward and backward
_MANY = 2**15  # cells of one step from which torch uses all its threads
_THREADS = 3  # from which those are faster than compiled code in one

_cells_so_far = [0]  # those of expected passes included
_expected_passes = [1]


def expect_passes(passes: int) -> None:
    """Count every cell from now on as if it were computed so often.

    A long run then need not compute for seconds before the kernels are compiled for it.
    """
    _expected_passes[0] = max(1, passes)


def lstm(gates: Tensor, start: tuple[Tensor, ...], weights: Weights, steps: CellSteps) -> Trace:
    """Run the steps of an LSTM forward.

    States of the trace: h and c. Buffers: gates, tanh(c') (T, m, H), and y (T, m, H) if it is
    projected.
    """
    across = weights.hh.t()
    hidden_SmP, cells_SmH = (states_from(state, steps) for state in start)
    y_SmH = hidden_SmP if weights.hr is None else torch.empty_like(cells_SmH)
    tanh_TmH = torch.empty_like(cells_SmH[1:])
    activate = _activate(gates, y_SmH, cells_SmH, tanh_TmH)
    rows, h, y = gates.unbind(), hidden_SmP.unbind(), y_SmH.unbind()

    # What x adds to the gates is there already; h adds its part, step by step.
    for t, old, new in zip(*steps, strict=True):
        rows[t].addmm_(h[old], across)
        activate(t, old, new)
        if weights.hr is not None:
            torch.mm(y[new], weights.hr.t(), out=h[new])

    projected = () if weights.hr is None else (steps.later(y_SmH),)

    return Trace((hidden_SmP, cells_SmH), (gates, tanh_TmH, *projected))


def _activate(
    gates: Tensor, y: Tensor, cells: Tensor, tanh: Tensor
) -> Callable[[int, int, int], None]:
    """What happens between the products of a step (t, old, new): gates, c', tanh(c') and y."""
    kernels = _kernels() if _compiled_is_faster(cells) else None
    if kernels is not None:
        return kernels[0](*(buffer.numpy() for buffer in (gates, y, cells, tanh)))

    i, f, g, o = (gate.unbind() for gate in gates.chunk(4, 2))
    i_and_f = gates.chunk(2, 2)[0].unbind()
    ys, c, u = y.unbind(), cells.unbind(), tanh.unbind()

    # In place, on slices that exist already: nothing is allocated in the loop.
    def activate(t: int, old: int, new: int) -> None:
        i_and_f[t].sigmoid_()
        g[t].tanh_()
        o[t].sigmoid_()
        torch.mul(f[t], c[old], out=c[new]).addcmul_(i[t], g[t])
        torch.mul(o[t], torch.tanh(c[new], out=u[t]), out=ys[new])

    return activate


def lstm_backward(
    trace: Trace, weights: Weights, output: Tensor, last: tuple[Tensor, ...], steps: CellSteps
) -> Gradients:
    """Run an LSTM backward, from the gradients of the outputs and of the last states."""
    (_, cells_SmH), (gates_TmG, tanh_TmH, *_) = trace
    dh, dc = (gradient.clone(memory_format=torch.contiguous_format) for gradient in last)
    dy, d_hr_TmP = dh, None

    if weights.hr is not None:
        dy = torch.empty_like(dc)
        d_hr_TmP = torch.empty_like(output, memory_format=torch.contiguous_format)

    differentiate = _differentiate(gates_TmG, cells_SmH, tanh_TmH, dy, dc)
    d_rows, d_out = gates_TmG.unbind(), output.unbind()

    # From the last step to the first: dh is what later steps hand back, and the output's own.
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
    """What happens between the products of a step back (t, old).

    Gates become their gradients, and dc that of the state before:

        dc += dy o (1 - u^2),  d_o = dy u o (1 - o),  d_i = dc g i (1 - i),
        d_f = dc c f (1 - f),  d_g = dc i (1 - g^2),  dc <- dc f,        u = tanh(c')
    """
    kernels = _kernels() if _compiled_is_faster(cells) else None
    if kernels is not None:
        return kernels[1](*(buffer.numpy() for buffer in (gates, cells, tanh, dy, dc)))

    i, f, g, o = (gate.unbind() for gate in gates.chunk(4, 2))
    i_and_f, c, u = gates.chunk(2, 2)[0].unbind(), cells.unbind(), tanh.unbind()
    part, part_g = torch.empty_like(dc), torch.empty_like(dc)
    parts = dc.new_empty(len(dc), 2 * dc.shape[1])
    part_i, part_f = parts.chunk(2, 1)

    def differentiate(t: int, old: int) -> None:
        dc.add_(tanh_backward(torch.mul(dy, o[t], out=part), u[t], grad_input=part))
        sigmoid_backward(torch.mul(dy, u[t], out=part), o[t], grad_input=o[t])
        torch.mul(dc, i[t], out=part_g)
        torch.mul(dc, g[t], out=part_i)
        torch.mul(dc, c[old], out=part_f)
        dc.mul_(f[t])
        tanh_backward(part_g, g[t], grad_input=g[t])
        sigmoid_backward(parts, i_and_f[t], grad_input=i_and_f[t])

    return differentiate


def _compiled_is_faster(cells: Tensor) -> bool:
    if cells.dtype != torch.float32 or cells.device.type != "cpu":
        return False

    # With many threads torch is faster on large steps.
    if cells[0].numel() >= _MANY and torch.get_num_threads() > _THREADS:
        return False

    # This is asked once forward and once backward: each counts for half.
    _cells_so_far[0] += cells.numel() // 2 * _expected_passes[0]

    return _is_compiled() or _cells_so_far[0] > _WORTH


def _is_compiled() -> bool:
    return native.kernels(may_compile=False) is not None


@cache
def _kernels() -> tuple[Callable[..., Forward], Callable[..., Backward]] | None:
    # None where nothing can be compiled.
    if native.kernels(may_compile=True) is None:
        return None

    check_kernels()
    return forward, backward
