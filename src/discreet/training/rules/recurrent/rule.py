"""Recurrent layers: torch.lstm, gru, rnn_tanh, rnn_relu, as linear maps over positions.

    dW = sum_t b_t a_t^T        dc = sum_t b_t

for each map W a_t + c of the layer (see `layer`), with b_t the gradient of the loss by its value.
Legend: m records, T positions.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import Tensor

from discreet.training.factors.factors import Dense, Factor, Outer, wide
from discreet.training.rules.call import Call, Rule
from discreet.training.rules.nodes import Receiver
from discreet.training.rules.recurrent.layer import Kind, Recurrence
from discreet.training.separation.states import OneByOne, Rows

__all__ = ["RULES", "recurrent"]


def recurrent(kind: Kind, call: Call) -> Any:
    """All layers and directions of one call; every weight and bias is a use of its own."""
    # Keyword arguments are not how torch's own layers call these functions.
    run = None if call.kwargs else Recurrence.read(kind, call.args)
    if run is None:
        raise OneByOne(f"a packed sequence in {kind}")

    if call.axes[id(run.x)] != Rows(0 if run.batch_first else 1) or run.x.ndim != 3:
        raise OneByOne(f"the input of {kind} has no clear record axis")

    # The layer computes no gradients of weights: what it begins with, and weights that hang on
    # something else, would be left without theirs.
    if any(call.value(tensor) is not None for tensor in (run.x, *run.start)):
        raise OneByOne(f"{kind} begins with a parameter")

    if any(weight.requires_grad and call.value(weight) is None for weight in run.flat_weights):
        raise OneByOne(f"{kind} has weights that were computed before the pass")

    # Called once for each linear map of each layer and direction.
    def visit(weight: Tensor, bias: Tensor | None, met: Tensor) -> Receiver:
        def of_weight(gradient: Tensor) -> Factor:
            return Outer(wide(met).contiguous(), wide(gradient), tuple(weight.shape))

        def of_bias(gradient: Tensor) -> Factor:
            return Dense(wide(gradient).sum(1))

        # Frozen ones are no values.
        uses = ((call.value(weight), of_weight), (call.value(bias), of_bias))
        values = [(value, make) for value, make in uses if value is not None]

        return call.uses.receiver(call, values, Rows(0), call.others()) if values else _ignore

    return run.run(visit, call.uses.anchor)


def _ignore(_: Tensor) -> None:
    # Nobody needs the gradient of a map whose weight and bias are frozen.
    return


_KINDS: tuple[Kind, ...] = ("gru", "lstm", "rnn_relu", "rnn_tanh")
RULES: dict[str, Rule] = {kind: partial(recurrent, kind) for kind in _KINDS}
