"""LSTM, GRU and RNN layers whose weights are those of linear maps, with the gradients of the maps'
values handed out.

One direction of one layer is two linear maps over the positions, and a third if an LSTM projects:

    W_ih x_t + b_ih        W_hh h_t + b_hh        W_hr y_t

with h_t the state that position t starts from. With b_t the gradient of the loss by the value of a
map, and a_t what its weight met, one record's gradients are dW = sum_t b_t a_t^T and dc = sum_t b_t
for the bias, as for every linear map. A native layer keeps the b_t to itself and adds up the
records. Here one backward pass hands them out, and computes no gradient of a weight. All x_t go
into one product and each step into one more, which is about as fast as a native layer.

Legend: T positions, m records (or rows of records, several of each), I inputs, H cells, P outputs
of a step (H, or fewer if an LSTM projects), G = kH gates, S = T + 1 states, O outputs of a map.
Tensors other than weights are sensitive.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal, NamedTuple, TypeAlias, final

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
from discreet.training.separation.marks import no_functions, out_of_sight
from discreet.training.separation.own import own_operation
from discreet.training.separation.states import Rows

__all__ = ["Kind", "LinearMap", "Recurrence", "Taps", "Visit", "recurrent_layer"]

Kind: TypeAlias = Literal["lstm", "gru", "rnn_tanh", "rnn_relu"]

_CLEAR: Final = Rows(0)
_PLAIN: Final[Any] = nullcontext()
_Forward: TypeAlias = Callable[[Tensor, tuple[Tensor, ...], Weights, CellSteps], Trace]
_Backward: TypeAlias = Callable[[Trace, Weights, Tensor, tuple[Tensor, ...], CellSteps], Gradients]
_CELLS: Final[dict[Kind, tuple[_Forward, _Backward]]] = {
    "lstm": (lstm, lstm_backward),
    "gru": (gru, gru_backward),
    "rnn_tanh": (partial(rnn, relu=False), partial(rnn_backward, relu=False)),
    "rnn_relu": (partial(rnn, relu=True), partial(rnn_backward, relu=True)),
}


class LinearMap(NamedTuple):
    """A linear map of a layer that has run, and what it met.

    Args:
        weight: (outputs, inputs).
        bias: (outputs,), or None.
        met: (m, T, inputs), time first in memory; not to be written to.
    """

    weight: Tensor
    bias: Tensor | None
    met: Tensor


Visit: TypeAlias = Callable[[Sequence[LinearMap]], Receiver]
"""Told the linear maps whose values have the same gradient, when their layer has run; gives what
takes this gradient, (m, T, outputs), once: another backward pass is refused.

The gradient is not to be written to.
"""


@final
@dataclass(frozen=True, slots=True, eq=False)
class Taps:
    """How the gradients of a layer come out.

    Args:
        visit: told of the linear maps of each layer and direction, when it has run: of ih and hh,
            together unless it is a GRU, and then of hr.
        anchor: requires a gradient, and gets none: it makes the outputs require one.
        rows: where the records are along the axis m of everything, counted as the first (public).
    """

    visit: Visit
    anchor: Tensor
    rows: Rows = _CLEAR


def recurrent_layer(
    kind: Kind,
    x: Tensor,
    start: tuple[Tensor, ...],
    weights: Weights,
    taps: Taps,
    *,
    reverse: bool = False,
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Run one direction of one layer, in the precision of its weights.

    Args:
        kind: of the layer (public).
        x: inputs, time first, (T, m, I); or those of one step alone, (m, I), as of a cell.
        start: h, (m, P), and for an LSTM c, (m, H).
        weights: of this direction; they get no gradient.
        taps: see there.
        reverse: from the last position to the first (public).

    Returns:
        The outputs, (T, m, P), of which a cell has none, and the last states.

    >>> weights = Weights(torch.ones(4, 1), torch.ones(4, 1))
    >>> start = (torch.zeros(2, 1), torch.zeros(2, 1))
    >>> gradients = []
    >>> def visit(maps):
    ...     return lambda gradient: gradients.append(torch.bmm(gradient.mT, maps[0].met))
    >>> x, anchor = torch.ones(3, 2, 1), torch.zeros((), requires_grad=True)
    >>> (out,), (h, c) = recurrent_layer("lstm", x, start, weights, Taps(visit, anchor))
    >>> h.sum().backward()
    >>> gradients[0].shape  # the gradient of W_ih, for each of two records
    torch.Size([2, 4, 1])
    """
    is_cell = x.ndim == 2
    _check_shapes(kind, x, start)

    # Weights enter detached: their gradients are made of what the receivers get, record by record.
    run = _Run(kind, CellSteps.of(1 if is_cell else len(x), reverse=reverse), taps.rows)
    with no_functions(), out_of_sight():
        tensors = [None if weight is None else weight.detach() for weight in weights]

    states = [_of_type(tensor, weights.ih.dtype) for tensor in (x, *start)]
    apply: Callable[..., tuple[Tensor, ...]] = _Layer.apply
    results = apply(run, len(start), taps.anchor, *states, *tensors)

    # In a GRU the reset gate stands between the two: their gradients differ.
    maps, alike = _linear_maps(run, weights), 1 if kind == "gru" else 2
    run.receivers = tuple([taps.visit(group) for group in (maps[:alike], maps[alike:]) if group])
    run.met = ()

    outputs = 0 if is_cell else 1
    return results[:outputs], results[outputs:]


def _check_shapes(kind: Kind, x: Tensor, start: tuple[Tensor, ...]) -> None:
    if x.ndim != 2 and (x.ndim != 3 or not len(x)):
        raise ParameterError(
            owner=kind,
            name="x",
            expected="a tensor of three axes with at least one position, or of two",
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


def _linear_maps(run: _Run, weights: Weights) -> list[LinearMap]:
    """The maps of a layer that has run."""
    with no_functions(), out_of_sight():
        met = [met_TmI.transpose(0, 1) for met_TmI in run.met]

    pairs = zip(weights.maps, met, strict=True)
    return [LinearMap(weight, bias, met_mTI) for (weight, bias), met_mTI in pairs]


def _of_type(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    # Where nothing is to do, no function is called that the modes would look at.
    return tensor if tensor.dtype == dtype else tensor.to(dtype)


@dataclass(slots=True, eq=False)
class _Run:
    """What one forward pass hands to its caller, and its caller to the backward pass."""

    kind: Kind
    steps: CellSteps
    rows: Rows
    met: tuple[Tensor, ...] = ()
    receivers: tuple[Receiver, ...] = ()


class _Layer(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, run: _Run, states: int, _anchor: Tensor, x: Tensor, *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        start, weights, steps = tensors[:states], Weights(*tensors[states:]), run.steps
        by_time, by_row = run.rows.at(1), run.rows
        is_cell = x.ndim == 2
        arguments = [(x, by_row if is_cell else by_time)]
        arguments += [(state_mP, by_row) for state_mP in start]

        with own_operation(run.kind, arguments) as declare, _full(x):
            x_TmI = (x.unsqueeze(0) if is_cell else x).contiguous()
            gates_TmG = _from_inputs(run.kind, x_TmI, weights)
            trace = _CELLS[run.kind][0](gates_TmG, start, weights, steps)
            met = (x_TmI.detach(), steps.sooner(trace.states[0]))
            run.met = met if weights.hr is None else (*met, trace.buffers[-1])

            # Copies: the user may change them in place, and the states are still needed as they
            # are.
            results = [buffer[steps.after[-1]].clone() for buffer in trace.states]
            for state_mP in results:
                declare(state_mP, by_row)

            if not is_cell:
                results.insert(0, steps.later(trace.states[0]).clone())
                declare(results[0], by_time)

        ctx.run, ctx.states, ctx.is_cell = run, states, is_cell
        # The inputs are saved only so that a change in place is noticed.
        ctx.save_for_backward(x_TmI, *weights, *trace.states, *trace.buffers)

        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *results: Tensor) -> tuple[Tensor | None, ...]:
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

        by_time, by_row = run.rows.at(1), run.rows
        last = results[-ctx.states :]
        arguments = [(state_mP, by_row) for state_mP in last]
        arguments += [(output, by_time) for output in results[: -ctx.states]]

        with own_operation(f"the backward of {run.kind}", arguments) as declare, _full(last[0]):
            # The one output of a cell is its last state.
            output = last[0].new_zeros(1, *last[0].shape) if ctx.is_cell else results[0]
            gradients = _CELLS[run.kind][1](trace, weights, output, last, run.steps)
            d_x = _of_inputs(gradients.ih, weights.ih, ctx) if ctx.needs_input_grad[3] else None
            if d_x is not None:
                declare(d_x, by_row if ctx.is_cell else by_time)

            rows = gradients.by_record
            for row_mTO in rows:
                declare(row_mTO, by_row)

            for state_mP in gradients.start:
                declare(state_mP, by_row)

        # Outside of the operation: what the receivers do is not a part of it.
        for receive, row_mTO in zip(receivers, rows, strict=True):
            receive(row_mTO)

        return None, None, None, d_x, *gradients.start, *[None] * split


def _full(tensor: Tensor) -> Any:
    """Context in which products are computed in the precision of their arguments."""
    device = tensor.device.type
    return torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else _PLAIN


def _of_inputs(d_gates_TmG: Tensor, ih: Tensor, ctx: Any) -> Tensor:
    """The gradient of the inputs, (T, m, I), or (m, I) of a cell."""
    d_x = torch.mm(d_gates_TmG.flatten(0, 1), ih)
    return d_x if ctx.is_cell else d_x.view(*d_gates_TmG.shape[:2], ih.shape[1])


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

    def run(self, taps: Taps) -> tuple[Tensor, ...]:
        """What torch returns: the outputs, then the last states."""
        # Time first, as the cells want it.
        directions = 2 if self.bidirectional else 1
        size = self._tensors_each(directions)
        x_TmI = self.x.transpose(0, 1) if self.batch_first else self.x
        ends: list[tuple[Tensor, ...]] = []

        for layer in range(self.num_layers):
            outputs = []
            for reverse in (False, True)[:directions]:
                number = len(ends)  # of the layer and direction, in the order of the flat weights
                (out,), end = recurrent_layer(
                    self.kind,
                    x_TmI,
                    tuple([state[number] for state in self.start]),
                    self._weights(self.flat_weights[number * size : (number + 1) * size]),
                    taps,
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
