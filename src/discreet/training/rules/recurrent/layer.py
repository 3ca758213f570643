"""LSTM, GRU and RNN layers whose weights are those of linear maps, with the gradients of the maps'
values handed out.

One direction of one layer is two linear maps over the positions, and a third if an LSTM projects:

    W_ih x_t + b_ih        W_hh h_t + b_hh        W_hr y_t

with h_t the state that position t starts from. One record's gradient of a weight is the sum over t
of the outer products of the gradient of the map's value with what the weight met; of a bias, the
sum of the gradients. A native layer keeps those gradients to itself and adds up the records. Here
one backward pass hands them out, and computes no gradient of a weight. All x_t go into one product
and each step into one more, which is about as fast as a native layer.

Legend: T positions, m records, I inputs, H cells, P outputs of a step (H, or fewer if an LSTM
projects), G = kH gates, S = T + 1 states. Tensors other than weights are sensitive.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal, NamedTuple, TypeAlias, final

import torch
from torch import Tensor

from discreet.errors import ParameterError
from discreet.training.rules.recurrent.cells import (
    Gradients,
    Steps,
    Trace,
    Weights,
    gru,
    gru_backward,
    rnn,
    rnn_backward,
)
from discreet.training.rules.recurrent.lstm import lstm, lstm_backward
from discreet.training.separation.own import own_operation

__all__ = ["Kind", "Place", "Receiver", "Recurrence", "Visit", "recurrent_layer"]

Kind: TypeAlias = Literal["lstm", "gru", "rnn_tanh", "rnn_relu"]

Receiver: TypeAlias = Callable[[Tensor], None]
"""Takes the gradient of the value of one linear map, (m, T, outputs), once: another backward pass
is refused.
"""

_Forward: TypeAlias = Callable[[Tensor, tuple[Tensor, ...], Weights, Steps], Trace]
_Backward: TypeAlias = Callable[[Trace, Weights, Tensor, tuple[Tensor, ...], Steps], Gradients]
_CELLS: Final[dict[Kind, tuple[_Forward, _Backward]]] = {
    "lstm": (lstm, lstm_backward),
    "gru": (gru, gru_backward),
    "rnn_tanh": (partial(rnn, relu=False), partial(rnn_backward, relu=False)),
    "rnn_relu": (partial(rnn, relu=True), partial(rnn_backward, relu=True)),
}


class Place(NamedTuple):
    """A linear map: where its weight and its bias stand among the flat weights of a stack."""

    weight: int
    bias: int | None


Visit: TypeAlias = Callable[[Place, Tensor], Receiver]
"""Told what a linear map met, (m, T, inputs), when its layer has run; gives what takes the gradient of its value.

What it met lies time first in memory. It and the gradient may be shared with other maps, and are not to be written to.
"""


def recurrent_layer(
    kind: Kind,
    x: Tensor,
    start: tuple[Tensor, ...],
    weights: Weights,
    visit: Callable[[int, Tensor], Receiver],
    *,
    anchor: Tensor,
    reverse: bool = False,
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Run one direction of one layer, in the precision of its weights. Gives the outputs, (T, m,
    P), and the last states.

    Args:
        kind: of the layer (public).
        x: inputs, time first, (T, m, I).
        start: h, (m, P), and for an LSTM c, (m, H).
        weights: of this direction; they get no gradient.
        visit: told the number of a linear map (0: ih, 1: hh, 2: hr) and what it met, as by `Visit`.
        anchor: requires a gradient, and gets none: it makes the outputs require one.
        reverse: from the last position to the first (public).

    >>> weights, start = Weights(torch.ones(4, 1), torch.ones(4, 1)), (torch.zeros(2, 1), torch.zeros(2, 1))
    >>> found = {}
    >>> visit = lambda number, met: lambda gradient: found.update({number: torch.bmm(gradient.mT, met)})
    >>> anchor = torch.zeros((), requires_grad=True)
    >>> out, (h, c) = recurrent_layer("lstm", torch.ones(3, 2, 1), start, weights, visit, anchor=anchor)
    >>> h.sum().backward()
    >>> found[0].shape                                     # the gradient of W_ih, for each of two records
    torch.Size([2, 4, 1])
    """
    if x.ndim != 3 or not len(x):
        expected = "a tensor of three axes with at least one position"
        raise ParameterError(
            owner=kind,
            name="x",
            expected=expected,
            got="no position" if x.ndim == 3 else f"{x.ndim} axes",
        )
    if len(start) != (2 if kind == "lstm" else 1):
        raise ParameterError(
            owner=kind,
            name="start",
            expected="h, and c for an LSTM alone",
            got=f"{len(start)} tensors",
        )
    run = _Run(kind, Steps.of(len(x), reverse=reverse))
    tensors = [None if weight is None else weight.detach() for weight in weights]
    states = [tensor.to(weights.ih.dtype) for tensor in (x, *start)]
    out, *last = _Layer.apply(run, len(start), anchor, *states, *tensors)  # type: ignore[no-untyped-call]
    run.receivers = tuple(
        visit(number, met_TmI.transpose(0, 1)) for number, met_TmI in enumerate(run.met)
    )
    run.met = ()
    return out, tuple(last)


class _Run:
    """What one forward pass hands to its caller, and its caller to the backward pass."""

    __slots__ = ("kind", "met", "receivers", "steps")

    def __init__(self, kind: Kind, steps: Steps) -> None:
        self.kind = kind
        self.steps = steps
        self.met: tuple[Tensor, ...] = ()
        self.receivers: tuple[Receiver, ...] = ()


class _Layer(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, run: _Run, states: int, _anchor: Tensor, x: Tensor, *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        start, weights, steps = tensors[:states], Weights(*tensors[states:]), run.steps
        arguments = [(x, 1), *((state_mP, 0) for state_mP in start)]
        with (
            own_operation(run.kind, arguments) as declare,
            torch.autocast(x.device.type, enabled=False),
        ):
            x_TmI = x.contiguous()
            trace = _CELLS[run.kind][0](
                _from_inputs(run.kind, x_TmI, weights), start, weights, steps
            )
            met = (x_TmI.detach(), steps.sooner(trace.states[0]))
            run.met = met if weights.hr is None else (*met, trace.others[-1])
            # Copies: the user may change them in place, and the states are still needed as they
            # are.
            output = steps.later(trace.states[0]).clone()
            last = [buffer[steps.after[-1]].clone() for buffer in trace.states]
            declare(output, 1)
            for state_mP in last:
                declare(state_mP, 0)
        ctx.run, ctx.states = run, states
        ctx.save_for_backward(
            x_TmI, *weights, *trace.states, *trace.others
        )  # x: so that a change in place is noticed
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
        run, (_, *saved), split = ctx.run, ctx.saved_tensors, len(Weights._fields)
        weights, trace = (
            Weights(*saved[:split]),
            Trace(tuple(saved[split:][: ctx.states]), tuple(saved[split:][ctx.states :])),
        )
        receivers, run.receivers = run.receivers, ()
        arguments = [(output, 1), *((state_mP, 0) for state_mP in last)]
        off = torch.autocast(output.device.type, enabled=False)
        with own_operation(f"the backward of {run.kind}", arguments) as declare, off:
            gradients = _CELLS[run.kind][1](trace, weights, output, last, run.steps)
            d_x = gradients.ih @ weights.ih if ctx.needs_input_grad[3] else None
            maps = (
                (gradients.ih, gradients.hh)
                if gradients.hr is None
                else (gradients.ih, gradients.hh, gradients.hr)
            )
            # Record after record in memory, once for all maps: products over the positions of one
            # record are faster then.
            rows = {id(map_TmO): map_TmO.transpose(0, 1).contiguous() for map_TmO in maps}
            for row_mTO in rows.values():
                declare(row_mTO, 0)
            if d_x is not None:
                declare(d_x, 1)
            for state_mP in gradients.start:
                declare(state_mP, 0)
        for receive, map_TmO in zip(receivers, maps, strict=True):
            receive(rows[id(map_TmO)])
        return None, None, None, d_x, *gradients.start, *[None] * split


def _refusal(name: str, do: str) -> ParameterError:
    return ParameterError(
        owner="backward", name=name, expected="False for recurrent layers", got="True", do=do
    )


def _from_inputs(kind: Kind, x: Tensor, weights: Weights) -> Tensor:
    """What x and the biases add to the gates, (T, m, G); b_hn of a GRU belongs inside and is left
    out.
    """
    flat = x.flatten(0, 1)
    if weights.bias_ih is None or weights.bias_hh is None:
        gates = torch.mm(flat, weights.ih.t())
    else:
        bias = weights.bias_ih + weights.bias_hh
        if kind == "gru":
            bias[len(bias) // 3 * 2 :] = weights.bias_ih[len(bias) // 3 * 2 :]
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
        """From the positional arguments of the torch function; None for other calls, such as those
        on packed sequences.
        """
        if len(arguments) != 9 or not isinstance(
            arguments[3], bool
        ):  # a packed sequence has its batch sizes before the start
            return None
        x, start, flat_weights, *rest = arguments
        return cls(
            kind,
            x,
            (start,) if isinstance(start, Tensor) else tuple(start),
            tuple(flat_weights),
            *rest,
        )

    def run(self, visit: Visit, anchor: Tensor) -> tuple[Tensor, ...]:
        """What torch returns: the outputs, then the last states.

        Args:
            visit: asked once for each linear map, when its layer has run.
            anchor: as for `recurrent_layer`.
        """
        directions = 2 if self.bidirectional else 1
        size = self._checked(directions)
        x_TmI = self.x.transpose(0, 1) if self.batch_first else self.x
        ends: list[tuple[Tensor, ...]] = []
        for layer in range(self.num_layers):
            outputs = []
            for reverse in (False, True)[:directions]:
                places = self._places(len(ends) * size, size)
                out, end = recurrent_layer(
                    self.kind,
                    x_TmI,
                    tuple(state[len(ends)] for state in self.start),
                    self._weights(places),
                    partial(_visit, visit, places),
                    anchor=anchor,
                    reverse=reverse,
                )
                outputs.append(out)
                ends.append(end)
            x_TmI = outputs[0] if directions == 1 else torch.cat(outputs, 2)
            if self.dropout and self.training and layer < self.num_layers - 1:
                x_TmI = torch.dropout(x_TmI, self.dropout, train=True)
        return x_TmI.transpose(0, 1) if self.batch_first else x_TmI, *map(
            torch.stack, zip(*ends, strict=True)
        )

    def _checked(self, directions: int) -> int:
        """How many tensors a direction of a layer has."""
        size, left = divmod(len(self.flat_weights), self.num_layers * directions)
        least = 4 if self.has_biases else 2
        if left or size not in ((least, least + 1) if self.kind == "lstm" else (least,)):
            expected = (
                f"{least} tensors for each of {self.num_layers} layers and {directions} directions"
            )
            raise ParameterError(
                owner=self.kind,
                name="flat_weights",
                expected=expected,
                got=str(len(self.flat_weights)),
            )
        return size

    def _places(self, first: int, size: int) -> tuple[Place, ...]:
        both = (2, 3) if self.has_biases else (None, None)
        maps = [
            Place(first + number, None if bias is None else first + bias)
            for number, bias in enumerate(both)
        ]
        return (*maps, Place(first + size - 1, None)) if size % 2 else tuple(maps)

    def _weights(self, places: tuple[Place, ...]) -> Weights:
        bias_ih, bias_hh = (
            None if place.bias is None else self.flat_weights[place.bias] for place in places[:2]
        )
        ih, hh, *hr = (self.flat_weights[place.weight] for place in places)
        return Weights(ih, hh, bias_ih, bias_hh, hr[0] if hr else None)


def _visit(visit: Visit, places: tuple[Place, ...], number: int, met: Tensor) -> Receiver:
    return visit(places[number], met)
