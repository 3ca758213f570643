"""The steps of recurrent layers, forward and backward, on buffers that lie time first.

    LSTM   i, f, o = s(.), g = tanh(.);  c' = f c + i g;  y = o tanh(c');  h' = y, or W_hr y
    GRU    r, z = s(.), n = tanh(x_n + r h_n);  h' = (1 - z) n + z h,  where x_n = W_in x + b_in and h_n = W_hn h + b_hn
    RNN    h' = tanh(.) or relu(.)

with (.) = W_ih x + b_ih + W_hh h + b_hh and s the logistic function. What x and the biases add to the gates is in the buffer
already, but for b_hn. Activated gates replace what they were computed from. A step works on its own slices of the buffers, and
nothing is allocated in the loop.

Legend: T positions, m records, H cells, P outputs of a step (H, or fewer if an LSTM projects), G = kH gates, S = T + 1 states:
the start and one for each position. `d` in front of a name is the gradient of the loss. All of it is sensitive.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Gradients", "Steps", "Trace", "Weights", "gru", "gru_backward", "lstm", "lstm_backward", "rnn", "rnn_backward"]

_sigmoid_backward = torch.ops.aten.sigmoid_backward.grad_input  # (d, output) -> d * output * (1 - output)
_tanh_backward = torch.ops.aten.tanh_backward.grad_input  # (d, output) -> d * (1 - output^2)
_relu_backward = torch.ops.aten.threshold_backward.grad_input


class Weights(NamedTuple):
    """Of one direction of one layer: (G, I), (G, P), twice (G,) or both None, and (P, H) if an LSTM projects."""

    ih: Tensor
    hh: Tensor
    bias_ih: Tensor | None = None
    bias_hh: Tensor | None = None
    hr: Tensor | None = None


class Steps(NamedTuple):
    """The positions, and the states before and after each, in the order of the forward pass."""

    at: range
    before: range
    after: range

    @classmethod
    def of(cls, positions: int, *, reverse: bool) -> Steps:
        """From the first position to the last, or back.

        >>> list(zip(*Steps.of(2, reverse=True)))
        [(1, 2, 1), (0, 1, 0)]
        """
        ahead, later = range(positions), range(1, positions + 1)
        return cls(ahead[::-1], later[::-1], ahead[::-1]) if reverse else cls(ahead, ahead, later)

    def back(self) -> Steps:
        """The same in the order of the backward pass."""
        return Steps(self.at[::-1], self.before[::-1], self.after[::-1])


class Trace(NamedTuple):
    """What a forward pass leaves: states (S, m, .) of h and, in an LSTM, c; and what the backward pass needs besides."""

    states: tuple[Tensor, ...]
    others: tuple[Tensor, ...]


class Gradients(NamedTuple):
    """Of the values of the linear maps, (T, m, outputs), and of the states at the start."""

    ih: Tensor
    hh: Tensor
    hr: Tensor | None
    start: tuple[Tensor, ...]


def _states(start: Tensor, steps: Steps) -> Tensor:
    states = start.new_empty(len(steps.at) + 1, *start.shape)
    states[steps.before[0]] = start
    return states


def lstm(gates: Tensor, start: tuple[Tensor, ...], weights: Weights, steps: Steps) -> Trace:
    """Others: gates, tanh(c'), and y if it is projected."""
    across, hidden_SmP, cells_SmH = weights.hh.t(), _states(start[0], steps), _states(start[1], steps)
    tanh_TmH = torch.empty_like(cells_SmH[1:])
    y_TmH = None if weights.hr is None else torch.empty_like(tanh_TmH)
    rows, both = gates.unbind(), gates.chunk(2, 2)[0].unbind()
    i, f, g, o = (gate.unbind() for gate in gates.chunk(4, 2))
    h, c, u = hidden_SmP.unbind(), cells_SmH.unbind(), tanh_TmH.unbind()
    for t, old, new in zip(*steps, strict=True):
        rows[t].addmm_(h[old], across)
        both[t].sigmoid_()
        g[t].tanh_()
        o[t].sigmoid_()
        torch.mul(f[t], c[old], out=c[new]).addcmul_(i[t], g[t])
        torch.tanh(c[new], out=u[t])
        if weights.hr is None or y_TmH is None:
            torch.mul(o[t], u[t], out=h[new])
        else:
            torch.mm(torch.mul(o[t], u[t], out=y_TmH[t]), weights.hr.t(), out=h[new])
    others = (gates, tanh_TmH) if y_TmH is None else (gates, tanh_TmH, y_TmH)
    return Trace((hidden_SmP, cells_SmH), others)


def lstm_backward(trace: Trace, weights: Weights, output: Tensor, last: tuple[Tensor, ...], steps: Steps) -> Gradients:
    """From the gradients of the outputs and of the last states."""
    (_, cells_SmH), (gates_TmG, tanh_TmH, *_) = trace
    d_gates_TmG = torch.empty_like(gates_TmG)
    i, f, g, o = (gate.unbind() for gate in gates_TmG.chunk(4, 2))
    d_i, d_f, d_g, d_o = (gate.unbind() for gate in d_gates_TmG.chunk(4, 2))
    both, d_both, d_rows = gates_TmG.chunk(2, 2)[0].unbind(), d_gates_TmG.chunk(2, 2)[0].unbind(), d_gates_TmG.unbind()
    c, u, d_out = cells_SmH.unbind(), tanh_TmH.unbind(), output.unbind()
    dh, dc = last[0].clone(), last[1].clone()
    dy, part = dh if weights.hr is None else torch.empty_like(dc), torch.empty_like(dc)
    d_hr_TmP = None if weights.hr is None else torch.empty_like(output, memory_format=torch.contiguous_format)
    for t, old, _ in zip(*steps.back(), strict=True):
        dh += d_out[t]
        if weights.hr is not None and d_hr_TmP is not None:
            torch.mm(d_hr_TmP[t].copy_(dh), weights.hr, out=dy)
        _sigmoid_backward(torch.mul(dy, u[t], out=part), o[t], grad_input=d_o[t])
        dc += _tanh_backward(torch.mul(dy, o[t], out=part), u[t], grad_input=part)
        torch.mul(dc, g[t], out=d_i[t])
        torch.mul(dc, c[old], out=d_f[t])
        _sigmoid_backward(d_both[t], both[t], grad_input=d_both[t])
        _tanh_backward(torch.mul(dc, i[t], out=part), g[t], grad_input=d_g[t])
        dc *= f[t]
        torch.mm(d_rows[t], weights.hh, out=dh)
    return Gradients(d_gates_TmG, d_gates_TmG, d_hr_TmP, (dh, dc))


def gru(gates: Tensor, start: tuple[Tensor, ...], weights: Weights, steps: Steps) -> Trace:
    """Others: gates and h_n."""
    hidden_SmH = _states(start[0], steps)
    width = hidden_SmH.shape[2]
    across, across_n = weights.hh[: 2 * width].t(), weights.hh[2 * width :].t()
    bias_n = weights.hh.new_zeros(width) if weights.bias_hh is None else weights.bias_hh[2 * width :]
    h_n_TmH = torch.empty_like(hidden_SmH[1:])
    r, z, n = (gate.unbind() for gate in gates.chunk(3, 2))
    both, h, h_n = gates[..., : 2 * width].unbind(), hidden_SmH.unbind(), h_n_TmH.unbind()
    for t, old, new in zip(*steps, strict=True):
        both[t].addmm_(h[old], across).sigmoid_()
        torch.addmm(bias_n, h[old], across_n, out=h_n[t])
        n[t].addcmul_(r[t], h_n[t]).tanh_()
        torch.lerp(n[t], h[old], z[t], out=h[new])
    return Trace((hidden_SmH,), (gates, h_n_TmH))


def gru_backward(trace: Trace, weights: Weights, output: Tensor, last: tuple[Tensor, ...], steps: Steps) -> Gradients:
    """From the gradients of the outputs and of the last state. The two maps differ in n, which r stands in front of."""
    (hidden_SmH,), (gates_TmG, h_n_TmH) = trace
    width = hidden_SmH.shape[2]
    d_ih_TmG, d_hh_TmG = torch.empty_like(gates_TmG), torch.empty_like(gates_TmG)
    r, z, n = (gate.unbind() for gate in gates_TmG.chunk(3, 2))
    d_r, d_z, d_hn = (gate.unbind() for gate in d_hh_TmG.chunk(3, 2))
    both, d_both = gates_TmG[..., : 2 * width].unbind(), d_hh_TmG[..., : 2 * width].unbind()
    d_n, d_rows = d_ih_TmG[..., 2 * width :].unbind(), d_hh_TmG.unbind()
    h, h_n, d_out = hidden_SmH.unbind(), h_n_TmH.unbind(), output.unbind()
    dh, part = last[0].clone(), torch.empty_like(last[0])
    for t, old, _ in zip(*steps.back(), strict=True):
        dh += d_out[t]
        torch.mul(dh, torch.sub(h[old], n[t], out=part), out=d_z[t])
        kept = torch.mul(dh, z[t], out=part)
        _tanh_backward(dh.sub_(kept), n[t], grad_input=d_n[t])
        torch.mul(d_n[t], h_n[t], out=d_r[t])
        torch.mul(d_n[t], r[t], out=d_hn[t])
        _sigmoid_backward(d_both[t], both[t], grad_input=d_both[t])
        torch.addmm(kept, d_rows[t], weights.hh, out=dh)
    d_ih_TmG[..., : 2 * width] = d_hh_TmG[..., : 2 * width]
    return Gradients(d_ih_TmG, d_hh_TmG, None, (dh,))


def rnn(gates: Tensor, start: tuple[Tensor, ...], weights: Weights, steps: Steps, *, relu: bool) -> Trace:
    """Others: none."""
    across, hidden_SmH = weights.hh.t(), _states(start[0], steps)
    rows, h = gates.unbind(), hidden_SmH.unbind()
    for t, old, new in zip(*steps, strict=True):
        rows[t].addmm_(h[old], across)
        if relu:
            torch.clamp(rows[t], min=0.0, out=h[new])
        else:
            torch.tanh(rows[t], out=h[new])
    return Trace((hidden_SmH,), ())


def rnn_backward(
    trace: Trace, weights: Weights, output: Tensor, last: tuple[Tensor, ...], steps: Steps, *, relu: bool
) -> Gradients:
    """From the gradients of the outputs and of the last state."""
    hidden_SmH = trace.states[0]
    d_gates_TmH = torch.empty_like(hidden_SmH[1:])
    d_rows, h, d_out = d_gates_TmH.unbind(), hidden_SmH.unbind(), output.unbind()
    dh = last[0].clone()
    for t, _, new in zip(*steps.back(), strict=True):
        dh += d_out[t]
        if relu:
            _relu_backward(dh, h[new], 0, grad_input=d_rows[t])
        else:
            _tanh_backward(dh, h[new], grad_input=d_rows[t])
        torch.mm(d_rows[t], weights.hh, out=dh)
    return Gradients(d_gates_TmH, d_gates_TmH, None, (dh,))
