"""LSTM, GRU and RNN layers whose weights are those of linear maps, with the gradients of the maps'
values handed out.

One direction of one layer is two linear maps over the positions, and a third if an LSTM projects:

    W_ih x_t + b_ih        W_hh h_t + b_hh        W_hr y_t

with h_t the state that position t starts from. With b_t the gradient of the loss by the value of a
map, and a_t what its weight met, one record's gradients are dW = sum_t b_t a_t^T and dc = sum_t b_t
for the bias, as for every linear map. A native layer keeps the b_t to itself and adds up the
records. Here one backward pass hands them out, and computes no gradient of a weight. All x_t go
into one product and each step into one more, which is about as fast as a native layer.

Legend: T positions, m records, I inputs, H cells, P outputs of a step (H, or fewer if an LSTM
projects), G = kH gates, S = T + 1 states, O outputs of a map. Tensors other than weights are
sensitive.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal, TypeAlias, final

import torch
from torch import Tensor

from discreet.errors import ParameterError
from discreet.training.rules.nodes import Receiver
from discreet.training.rules.recurrent.cells import (
    CellSteps,
    Gradients,
    Trace,
    Weights,
    gru,
    gru_backward,
    rnn,
    rnn_backward,
)
from discreet.training.rules.recurrent.lstm import lstm, lstm_backward
from discreet.training.separation.own import own_operation

__all__ = ["Kind", "Recurrence", "Visit", "recurrent_layer"]

Kind: TypeAlias = Literal["lstm", "gru", "rnn_tanh", "rnn_relu"]

_Forward: TypeAlias = Callable[[Tensor, tuple[Tensor, ...], Weights, CellSteps], Trace]
_Backward: TypeAlias = Callable[[Trace, Weights, Tensor, tuple[Tensor, ...], CellSteps], Gradients]
_CELLS: Final[dict[Kind, tuple[_Forward, _Backward]]] = {
    "lstm": (lstm, lstm_backward),
    "gru": (gru, gru_backward),
    "rnn_tanh": (partial(rnn, relu=False), partial(rnn_backward, relu=False)),
    "rnn_relu": (partial(rnn, relu=True), partial(rnn_backward, relu=True)),
}


Visit: TypeAlias = Callable[[Tensor, Tensor | None, Tensor], Receiver]
"""Told the weight and the bias of a linear map and what it met, (m, T, inputs), when its layer has
run; gives what takes the gradient of the map's value, (m, T, outputs), once: another backward pass
is refused.

What it met lies time first in memory. It and the gradient may be shared with other maps, and are
not to be written to.
"""


def recurrent_layer(
    kind: Kind,
    x: Tensor,
    start: tuple[Tensor, ...],
    weights: Weights,
    visit: Visit,
    *,
    anchor: Tensor,
    reverse: bool = False,
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Run one direction of one layer, in the precision of its weights.

    Args:
        kind: of the layer (public).
        x: inputs, time first, (T, m, I).
        start: h, (m, P), and for an LSTM c, (m, H).
        weights: of this direction; they get no gradient.
        visit: see there; called for ih, hh and hr, in this order.
        anchor: requires a gradient, and gets none: it makes the outputs require one.
        reverse: from the last position to the first (public).

    Returns:
        The outputs, (T, m, P), and the last states.

    >>> weights = Weights(torch.ones(4, 1), torch.ones(4, 1))
    >>> start = (torch.zeros(2, 1), torch.zeros(2, 1))
    >>> gradients = []
    >>> def visit(weight, bias, met):
    ...     return lambda gradient: gradients.append(torch.bmm(gradient.mT, met))
    >>> x, anchor = torch.ones(3, 2, 1), torch.zeros((), requires_grad=True)
    >>> out, (h, c) = recurrent_layer("lstm", x, start, weights, visit, anchor=anchor)
    >>> h.sum().backward()
    >>> gradients[0].shape  # the gradient of W_ih, for each of two records
    torch.Size([2, 4, 1])
    """
    if x.ndim != 3 or not len(x):
        raise ParameterError(
            owner=kind,
            name="x",
            expected="a tensor of three axes with at least one position",
            got="no position" if x.ndim == 3 else f"{x.ndim} axes",
        )

    states_of_kind = 2 if kind == "lstm" else 1
    if len(start) != states_of_kind:
        raise ParameterError(
            owner=kind,
            name="start",
            expected="h, and c for an LSTM alone",
            got=f"{len(start)} tensors",
        )

    # Weights enter detached: their gradients are made of what the receivers get, record by record.
    run = _Run(kind, CellSteps.of(len(x), reverse=reverse))
    tensors = [None if weight is None else weight.detach() for weight in weights]
    states = [tensor.to(weights.ih.dtype) for tensor in (x, *start)]
    apply: Callable[..., tuple[Tensor, ...]] = _Layer.apply
    out, *last = apply(run, len(start), anchor, *states, *tensors)

    met = [met_TmI.transpose(0, 1) for met_TmI in run.met]
    maps = zip(weights.maps, met, strict=True)
    run.receivers = tuple([visit(weight, bias, met_mTI) for (weight, bias), met_mTI in maps])
    run.met = ()

    return out, tuple(last)


@dataclass(slots=True, eq=False)
class _Run:
    """What one forward pass hands to its caller, and its caller to the backward pass."""

    kind: Kind
    steps: CellSteps
    met: tuple[Tensor, ...] = ()
    receivers: tuple[Receiver, ...] = ()


class _Layer(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, run: _Run, states: int, _anchor: Tensor, x: Tensor, *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        start, weights, steps = tensors[:states], Weights(*tensors[states:]), run.steps
        arguments = [(x, 1), *((state_mP, 0) for state_mP in start)]
        off = torch.autocast(x.device.type, enabled=False)

        with own_operation(run.kind, arguments) as declare, off:
            x_TmI = x.contiguous()
            gates_TmG = _from_inputs(run.kind, x_TmI, weights)
            trace = _CELLS[run.kind][0](gates_TmG, start, weights, steps)
            met = (x_TmI.detach(), steps.sooner(trace.states[0]))
            run.met = met if weights.hr is None else (*met, trace.buffers[-1])

            # Copies: the user may change them in place, and the states are still needed as they
            # are.
            output = steps.later(trace.states[0]).clone()
            last = [buffer[steps.after[-1]].clone() for buffer in trace.states]
            declare(output, 1)
            for state_mP in last:
                declare(state_mP, 0)

        ctx.run, ctx.states = run, states
        # The inputs are saved only so that a change in place is noticed.
        ctx.save_for_backward(x_TmI, *weights, *trace.states, *trace.buffers)

        return output, *last

    @staticmethod
    def backward(ctx: Any, output: Tensor, *last: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise _refusal(
                "create_graph",
                "Leave out penalties on gradients, or write the layer out in other functions.",
            )

        if not ctx.run.receivers:
            raise _refusal("retain_graph", "Run the forward pass again for another backward pass.")

        # The trace is overwritten below: a second pass would find gradients in the place of gates.
        run, (_, *saved), split = ctx.run, ctx.saved_tensors, len(Weights._fields)
        weights, buffers = Weights(*saved[:split]), saved[split:]
        trace = Trace(tuple(buffers[: ctx.states]), tuple(buffers[ctx.states :]))
        receivers, run.receivers = run.receivers, ()

        arguments = [(output, 1), *((state_mP, 0) for state_mP in last)]
        off = torch.autocast(output.device.type, enabled=False)

        with own_operation(f"the backward of {run.kind}", arguments) as declare, off:
            gradients = _CELLS[run.kind][1](trace, weights, output, last, run.steps)
            d_x = gradients.ih @ weights.ih if ctx.needs_input_grad[3] else None
            maps = [gradients.ih, gradients.hh]
            if gradients.hr is not None:
                maps.append(gradients.hr)
            # Record after record in memory, once for all maps: products over the positions of one
            # record are faster then. The two maps of an LSTM share their gradient.
            rows = {id(map_TmO): map_TmO.transpose(0, 1).contiguous() for map_TmO in maps}
            for row_mTO in rows.values():
                declare(row_mTO, 0)
            if d_x is not None:
                declare(d_x, 1)
            for state_mP in gradients.start:
                declare(state_mP, 0)

        # Outside of the operation: what the receivers do is not a part of it.
        for receive, map_TmO in zip(receivers, maps, strict=True):
            receive(rows[id(map_TmO)])

        return None, None, None, d_x, *gradients.start, *[None] * split


def _refusal(name: str, do: str) -> ParameterError:
    return ParameterError(
        owner="backward", name=name, expected="False for recurrent layers", got="True", do=do
    )


def _from_inputs(kind: Kind, x: Tensor, weights: Weights) -> Tensor:
    # What x and the biases add to the gates, (T, m, G).
    flat = x.flatten(0, 1)
    if weights.bias_ih is None or weights.bias_hh is None:
        gates = torch.mm(flat, weights.ih.t())
    else:
        bias = weights.bias_ih + weights.bias_hh
        if kind == "gru":  # b_hn stands inside of r (W_hn h + b_hn), and is added there
            third = len(bias) // 3 * 2
            bias[third:] = weights.bias_ih[third:]
        gates = torch.addmm(bias, flat, weights.ih.t())

    return gates.view(*x.shape[:2], gates.shape[1])


@final
@dataclass(frozen=True, slots=True, eq=False)
class Recurrence:
    """One call of torch.lstm, gru, rnn_tanh or rnn_relu: layers one after the other, each in one or
    two directions.

    Args:
        kind: of the layers.
        x: inputs, (T, m, I), or (m, T, I) if `batch_first`.
        start: h, (layers * directions, m, P), and for an LSTM c, (layers * directions, m, H).
        flat_weights: for each layer and direction W_ih, W_hh, b_ih and b_hh if there are biases,
            W_hr if an LSTM projects.
        has_biases: see there.
        num_layers: how many.
        dropout: its probability, between layers.
        training: whether there is dropout.
        bidirectional: there is a second direction, from the last position to the first, whose
            outputs stand beside the others.
        batch_first: for inputs and outputs.
    """

    kind: Kind
    x: Tensor
    start: tuple[Tensor, ...]
    flat_weights: tuple[Tensor, ...]
    has_biases: bool
    num_layers: int
    dropout: float
    training: bool
    bidirectional: bool
    batch_first: bool

    @classmethod
    def read(cls, kind: Kind, arguments: Sequence[Any]) -> Recurrence | None:
        """From the positional arguments of the torch function.

        Returns:
            None for other calls, such as those on packed sequences.
        """
        # A packed sequence has its batch sizes before the start, and its weights in fourth place.
        if len(arguments) != 9 or not isinstance(arguments[3], bool):
            return None

        x, start, flat_weights, *options = arguments
        states = (start,) if isinstance(start, Tensor) else tuple(start)

        return cls(kind, x, states, tuple(flat_weights), *options)

    def run(self, visit: Visit, anchor: Tensor) -> tuple[Tensor, ...]:
        """What torch returns: the outputs, then the last states.

        Args:
            visit: asked once for each linear map, when its layer has run.
            anchor: as for `recurrent_layer`.
        """
        # Time first, as the cells want it.
        directions = 2 if self.bidirectional else 1
        size = self._tensors_each(directions)
        x_TmI = self.x.transpose(0, 1) if self.batch_first else self.x
        ends: list[tuple[Tensor, ...]] = []

        for layer in range(self.num_layers):
            outputs = []
            for reverse in (False, True)[:directions]:
                number = len(ends)  # of the layer and direction, in the order of the flat weights
                out, end = recurrent_layer(
                    self.kind,
                    x_TmI,
                    tuple([state[number] for state in self.start]),
                    self._weights(self.flat_weights[number * size : (number + 1) * size]),
                    visit,
                    anchor=anchor,
                    reverse=reverse,
                )
                outputs.append(out)
                ends.append(end)

            # The outputs of both directions stand beside each other, and go into the next layer.
            x_TmI = outputs[0] if directions == 1 else torch.cat(outputs, 2)
            if self.dropout and self.training and layer < self.num_layers - 1:
                x_TmI = torch.dropout(x_TmI, self.dropout, train=True)

        out = x_TmI.transpose(0, 1) if self.batch_first else x_TmI

        return out, *map(torch.stack, zip(*ends, strict=True))

    def _tensors_each(self, directions: int) -> int:
        # How many tensors each direction of each layer has: an LSTM that projects has one more.
        size, remainder = divmod(len(self.flat_weights), self.num_layers * directions)
        least = 4 if self.has_biases else 2
        if remainder or size not in ((least, least + 1) if self.kind == "lstm" else (least,)):
            raise ParameterError(
                owner=self.kind,
                name="flat_weights",
                expected=(
                    f"{least} tensors for each of {self.num_layers} layers and {directions} "
                    "directions"
                ),
                got=str(len(self.flat_weights)),
            )

        return size

    def _weights(self, tensors: tuple[Tensor, ...]) -> Weights:
        if self.has_biases:
            return Weights(*tensors)

        ih, hh, *projection = tensors
        return Weights(ih, hh, None, None, *projection)
