"""Recurrent layers: torch.lstm, gru, rnn_tanh, rnn_relu, as linear maps over positions."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from discreet.training.factors.factors import Dense, Factor, Outer, wide
from discreet.training.rules.call import Call
from discreet.training.rules.recurrent.layer import Kind, Place, Receiver, Recurrence
from discreet.training.separation.states import OneByOne, Rows

__all__ = ["recurring"]


def recurring(kind: Kind, call: Call) -> Any:
    """All layers and directions of one call; every weight and bias is a use of its own."""
    run = None if call.kwargs else Recurrence.read(kind, call.args)
    if run is None:
        raise OneByOne(f"a packed sequence in {kind}")
    axis = call.axes[id(run.x)]
    if axis is None or (axis.dim, axis.fold) != (0 if run.batch_first else 1, 1) or run.x.ndim != 3:
        raise OneByOne(f"the input of {kind} has no clear record axis")
    if any(call.value(tensor) is not None for tensor in (run.x, *run.start)):
        raise OneByOne(f"{kind} begins with a parameter")
    if any(weight.requires_grad and call.value(weight) is None for weight in run.flat_weights):
        raise OneByOne(f"{kind} has weights that were computed before the pass")

    def visit(place: Place, met: Tensor) -> Receiver:
        weight = run.flat_weights[place.weight]
        bias = None if place.bias is None else run.flat_weights[place.bias]

        def of_weight(gradient: Tensor) -> Factor:
            return Outer(wide(met).contiguous(), wide(gradient), tuple(weight.shape))

        pairs = ((weight, of_weight), (bias, lambda gradient: Dense(wide(gradient).sum(1))))
        values = [
            (value, make) for tensor, make in pairs if (value := call.value(tensor)) is not None
        ]
        return call.uses.receiver(call, values, Rows(0), call.others()) if values else _nothing

    return run.run(visit, call.anchor)


def _nothing(_: Tensor) -> None:
    """Of weights that are frozen, or absent."""
