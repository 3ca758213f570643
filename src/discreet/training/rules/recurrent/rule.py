"""Recurrent layers and cells as linear maps over positions: torch.lstm, gru, rnn_tanh, rnn_relu,
and lstm_cell, gru_cell, rnn_tanh_cell, rnn_relu_cell.

    dW = sum_t b_t a_t^T        dc = sum_t b_t

for each map W a_t + c of the layer (see `layer`), with b_t the gradient of the loss by its value. A
cell is a layer of one position.

Legend: m records, T positions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from torch import Tensor

from discreet.training.factors.factors import Factor, Outer, wide
from discreet.training.rules.call import Call, Make, Rule
from discreet.training.rules.linear import bias_factor, by_position
from discreet.training.rules.nodes import Receiver
from discreet.training.rules.recurrent.cells import Weights
from discreet.training.rules.recurrent.layer import (
    Kind,
    LinearMap,
    Recurrence,
    Taps,
    recurrent_layer,
)
from discreet.training.rules.weights import Value
from discreet.training.separation.states import OneByOne, Rows

__all__ = ["RULES", "cell", "recurrent"]


def recurrent(kind: Kind, call: Call) -> Any:
    """All layers and directions of one call; every weight and bias is a use of its own."""
    # Keyword arguments are not how torch's own layers call these functions.
    run = None if call.kwargs else Recurrence.read(kind, call.args)
    if run is None:
        raise OneByOne(f"a packed sequence in {kind}")

    if run.x.ndim != 3:
        raise OneByOne(f"the input of {kind} has no clear record axis")

    rows = _place(call, run.x, 0 if run.batch_first else 1)
    _check_weights(call, (run.x, *run.start), run.flat_weights)

    return run.run(_taps(call, rows))


def cell(kind: Kind, call: Call) -> Any:
    """One step: a layer of one position, from the state that is given to the one after it."""
    x, start, *weights = call.get_all("input", "hx", "w_ih", "w_hh", "b_ih", "b_hh")
    states = (start,) if isinstance(start, Tensor) else tuple(start)
    if x.ndim != 2:
        raise OneByOne(f"the input of {call.name} has no clear record axis")

    # A decoder may begin with the same input for all records, and their own states.
    holder = x if call.axes[id(x)] is not None else states[0]
    rows = _place(call, holder, 0)
    _check_weights(call, (x, *states), [weight for weight in weights if weight is not None])

    _, last = recurrent_layer(
        kind,
        x,
        states,
        Weights(*weights),
        _taps(call, rows),
    )

    return last if kind == "lstm" else last[0]


def _place(call: Call, tensor: Tensor, dim: int) -> Rows:
    """Where the records are along the axis of the batch, `dim`, counted as the first."""
    place = call.axes[id(tensor)]
    if place is None or place.dim != dim:
        raise OneByOne(f"the input of {call.name} has no clear record axis")

    return place.at(0)


def _check_weights(call: Call, met: Iterable[Tensor], weights: Iterable[Tensor]) -> None:
    """The layer computes no gradients of weights: what it begins with, and weights that hang on
    something else, would be left without theirs.
    """
    if any(call.value(tensor) is not None for tensor in met):
        raise OneByOne(f"{call.name} begins with a parameter")

    if any(weight.requires_grad and call.value(weight) is None for weight in weights):
        raise OneByOne(f"{call.name} has weights that were computed before the pass")


def _taps(call: Call, rows: Rows) -> Taps:
    """What makes the factors of linear maps whose values have the same gradient."""

    # The rows of one record, wherever they stand along the axis of the batch, are its positions.
    def of_records(values_mTO: Tensor) -> Tensor:
        return wide(values_mTO) if rows.clear else by_position(call.split(values_mTO, rows))

    def visit(maps: Sequence[LinearMap]) -> Receiver:
        shared: list[Factor] = []  # by the biases, whose gradients are the same sum

        def of_bias(gradient: Tensor) -> Factor:
            if not shared:
                shared.append(bias_factor(of_records(gradient)))

            return shared[0]

        def of_weight(linear_map: LinearMap, gradient: Tensor) -> Factor:
            a_mTI = of_records(linear_map.met).contiguous()
            return Outer(a_mTI, of_records(gradient), tuple(linear_map.weight.shape))

        # Frozen ones are no values.
        uses: list[tuple[Value, Make]] = []
        for linear_map in maps:
            weight, bias = call.value(linear_map.weight), call.value(linear_map.bias)
            uses += [] if weight is None else [(weight, partial(of_weight, linear_map))]
            uses += [] if bias is None else [(bias, of_bias)]

        return call.uses.receiver(call, uses, rows, call.others()) if uses else _ignore

    return Taps(visit, call.uses.anchor, rows)


def _ignore(_: Tensor) -> None:
    # Nobody needs the gradient of a map whose weight and bias are frozen.
    return


_KINDS: tuple[Kind, ...] = ("gru", "lstm", "rnn_relu", "rnn_tanh")
RULES: dict[str, Rule] = {
    **{kind: partial(recurrent, kind) for kind in _KINDS},
    **{f"{kind}_cell": partial(cell, kind) for kind in _KINDS},
}
