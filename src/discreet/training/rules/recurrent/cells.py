"""The steps of recurrent layers, forward and backward, on buffers that lie time first; those of
LSTMs are in `lstm.py`.

    GRU    r, z = s(.),  n = tanh(x_n + r h_n),  h' = (1 - z) n + z h
           where x_n = W_in x + b_in and h_n = W_hn h + b_hn
    RNN    h' = tanh(.) or relu(.)

with (.) = W_ih x + b_ih + W_hh h + b_hh and s the logistic function, as torch defines them. What x
and the biases add to the gates is in the buffer already, but for b_hn. A step works on its own
slices of the buffers, and nothing is allocated in the loop. Activated gates are written over what
they were computed from, and gradients over the gates: a backward pass can run only once.

Legend: T positions, m records, H cells, P outputs of a step (H, or fewer if an LSTM projects), G =
kH gates, S = T + 1 states: the start and one for each position. `d` in front of a name is the
gradient of the loss. All of it is sensitive.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

__all__ = [
    "CellSteps",
    "Gradients",
    "Trace",
    "Weights",
    "gru",
    "gru_backward",
    "rnn",
    "rnn_backward",
    "sigmoid_backward",
    "states_from",
    "tanh_backward",
]

# (d, output) -> d * output * (1 - output)
sigmoid_backward = torch.ops.aten.sigmoid_backward.grad_input
# (d, output) -> d * (1 - output^2)
tanh_backward = torch.ops.aten.tanh_backward.grad_input
_relu_backward = torch.ops.aten.threshold_backward.grad_input


class Weights(NamedTuple):
    """The weights of one direction of one layer.

    (G, I) and (G, P); biases (G,), both or none; (P, H) if an LSTM projects.
    """

    ih: Tensor
    hh: Tensor
    bias_ih: Tensor | None = None
    bias_hh: Tensor | None = None
    hr: Tensor | None = None

    @property
    def maps(self) -> list[tuple[Tensor, Tensor | None]]:
        """The weight and the bias of each linear map: ih, hh, and hr if an LSTM projects."""
        projection = [] if self.hr is None else [(self.hr, None)]
        return [(self.ih, self.bias_ih), (self.hh, self.bias_hh), *projection]


class CellSteps(NamedTuple):
    """The positions, and the states before and after each, in the order of the forward pass."""

    at: range
    before: range
    after: range

    @classmethod
    def of(cls, positions: int, *, reverse: bool) -> CellSteps:
        """From the first position to the last, or back.

        >>> list(zip(*CellSteps.of(2, reverse=True)))
        [(1, 2, 1), (0, 1, 0)]
        """
        # State number t stands before position t, and number t + 1 after it; back, the other way.
        ahead, later = range(positions), range(1, positions + 1)
        return cls(ahead[::-1], later[::-1], ahead[::-1]) if reverse else cls(ahead, ahead, later)

    def sooner(self, states: Tensor) -> Tensor:
        """The states before each position, (T, m, .), of all states, without a copy."""
        return states[min(self.before) : max(self.before) + 1]

    def later(self, states: Tensor) -> Tensor:
        """The states after each position, (T, m, .), of all states, without a copy."""
        return states[min(self.after) : max(self.after) + 1]

    def back(self) -> CellSteps:
        """These steps in the order of the backward pass."""
        return CellSteps(self.at[::-1], self.before[::-1], self.after[::-1])


class Trace(NamedTuple):
    """What a forward pass leaves for the backward pass.

    Args:
        states: (S, m, .), of h and, in an LSTM, of c.
        buffers: what the backward pass needs besides; which ones, says each cell.
    """

    states: tuple[Tensor, ...]
    buffers: tuple[Tensor, ...]


class Gradients(NamedTuple):
    """Gradients by the values of the linear maps, (T, m, outputs), and by the starting states."""

    ih: Tensor
    hh: Tensor
    hr: Tensor | None
    start: tuple[Tensor, ...]

    @property
    def by_record(self) -> list[Tensor]:
        """Those of ih, hh and hr, (m, T, outputs), once for maps that share theirs.

        Record after record in memory: products over the positions of one record are faster then.
        """
        of_hh = [] if self.hh is self.ih else [self.hh]
        of_hr = [] if self.hr is None else [self.hr]
        return [rows.transpose(0, 1).contiguous() for rows in (self.ih, *of_hh, *of_hr)]


def states_from(start: Tensor, steps: CellSteps) -> Tensor:
    """Room for the states, (S, m, .), with the start in its place."""
    states = start.new_empty(len(steps.at) + 1, *start.shape)
    states[steps.before[0]] = start
    return states


def gru(gates: Tensor, start: tuple[Tensor, ...], weights: Weights, steps: CellSteps) -> Trace:
    """Run a GRU forward. Buffers of the trace: gates and h_n."""
    hidden_SmH = states_from(start[0], steps)
    width = hidden_SmH.shape[2]
    across, across_n = weights.hh[: 2 * width].t(), weights.hh[2 * width :].t()
    bias_hh = weights.hh.new_zeros(3 * width) if weights.bias_hh is None else weights.bias_hh
    bias_n = bias_hh[2 * width :]
    h_n_TmH = torch.empty_like(hidden_SmH[1:])
    r, z, n = (gate.unbind() for gate in gates.chunk(3, 2))
    r_and_z, h, h_n = gates[..., : 2 * width].unbind(), hidden_SmH.unbind(), h_n_TmH.unbind()

    # h_n has its own buffer: r is multiplied into it, and the backward pass needs it without r.
    for t, old, new in zip(*steps, strict=True):
        r_and_z[t].addmm_(h[old], across).sigmoid_()
        torch.addmm(bias_n, h[old], across_n, out=h_n[t])
        n[t].addcmul_(r[t], h_n[t]).tanh_()
        torch.lerp(n[t], h[old], z[t], out=h[new])

    return Trace((hidden_SmH,), (gates, h_n_TmH))


def gru_backward(
    trace: Trace, weights: Weights, output: Tensor, last: tuple[Tensor, ...], steps: CellSteps
) -> Gradients:
    """Run a GRU backward, from the gradients of the outputs and of the last state.

    dh' is split over z and n; the gradients of the two maps differ in n, where r stands in front of
    h_n: d_r = d_n h_n, d_hn = d_n r.
    """
    (hidden_SmH,), (gates_TmG, h_n_TmH) = trace
    width = hidden_SmH.shape[2]
    d_hh_TmG = torch.empty_like(gates_TmG)
    r, z, n = (gate.unbind() for gate in gates_TmG.chunk(3, 2))
    d_r, d_z, d_hn = (gate.unbind() for gate in d_hh_TmG.chunk(3, 2))
    r_and_z = gates_TmG[..., : 2 * width].unbind()
    d_r_and_z, d_rows = d_hh_TmG[..., : 2 * width].unbind(), d_hh_TmG.unbind()
    h, h_n, d_out = hidden_SmH.unbind(), h_n_TmH.unbind(), output.unbind()
    dh, scratch = last[0].clone(), torch.empty_like(last[0])

    for t, old, _ in zip(*steps.back(), strict=True):
        dh += d_out[t]
        torch.mul(dh, torch.sub(h[old], n[t], out=scratch), out=d_z[t])
        # h' = n + z (h - n): dh z goes straight to h, dh (1 - z) to n.
        to_old = torch.mul(dh, z[t], out=scratch)
        d_n = tanh_backward(dh.sub_(to_old), n[t], grad_input=n[t])
        torch.mul(d_n, h_n[t], out=d_r[t])
        torch.mul(d_n, r[t], out=d_hn[t])
        # In the gates of both maps r and z have the same gradients.
        sigmoid_backward(d_r_and_z[t], r_and_z[t], grad_input=d_r_and_z[t])
        r_and_z[t].copy_(d_r_and_z[t])
        torch.addmm(to_old, d_rows[t], weights.hh, out=dh)

    return Gradients(gates_TmG, d_hh_TmG, None, (dh,))


def rnn(
    gates: Tensor, start: tuple[Tensor, ...], weights: Weights, steps: CellSteps, *, relu: bool
) -> Trace:
    """Run a plain recurrent layer forward. The trace has no buffers."""
    across, hidden_SmH = weights.hh.t(), states_from(start[0], steps)
    rows, h = gates.unbind(), hidden_SmH.unbind()

    for t, old, new in zip(*steps, strict=True):
        rows[t].addmm_(h[old], across)
        if relu:
            torch.clamp(rows[t], min=0.0, out=h[new])
        else:
            torch.tanh(rows[t], out=h[new])

    return Trace((hidden_SmH,), ())


def rnn_backward(
    trace: Trace,
    weights: Weights,
    output: Tensor,
    last: tuple[Tensor, ...],
    steps: CellSteps,
    *,
    relu: bool,
) -> Gradients:
    """Run a plain recurrent layer backward, from the gradients of outputs and of the last state."""
    hidden_SmH = trace.states[0]
    d_gates_TmH = torch.empty_like(hidden_SmH[1:])
    d_rows, h, d_out = d_gates_TmH.unbind(), hidden_SmH.unbind(), output.unbind()
    dh = last[0].clone()

    for t, _, new in zip(*steps.back(), strict=True):
        dh += d_out[t]
        if relu:
            _relu_backward(dh, h[new], 0, grad_input=d_rows[t])
        else:
            tanh_backward(dh, h[new], grad_input=d_rows[t])

        torch.mm(d_rows[t], weights.hh, out=dh)

    return Gradients(d_gates_TmH, d_gates_TmH, None, (dh,))
