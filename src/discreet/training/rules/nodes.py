"""Identity nodes in the autograd graph that catch the gradients passing through them.

A node is made from an `anchor`, a zero-dimensional tensor that requires a gradient: one backward
pass towards the anchor visits every node once and computes nothing else. What a node catches is
handed on at once, so that what is no longer needed is freed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor

__all__ = ["Receiver", "new_anchor", "spread_to_records", "tap"]

Receiver: TypeAlias = Callable[[Tensor], None]
"""Takes the gradient of one tensor."""


def new_anchor(device: torch.device) -> Tensor:
    """The tensor on which every node of one pass hangs."""
    return torch.zeros((), device=device, requires_grad=True)


def tap(value: Tensor, anchor: Tensor, receive: Receiver) -> Tensor:
    """A node with the same memory as `value`, whose gradient goes to `receive`.

    What follows may change it in place: the gradient is that of the value before.
    """
    out: Tensor = _Tap.apply(value, anchor, receive)  # type: ignore[no-untyped-call]
    return out


def spread_to_records(
    value: Tensor, shape: tuple[int, ...], anchor: Tensor, receive: Receiver
) -> Tensor:
    """A value without records as if every record had its own copy.

    Args:
        value: public; its axis of records has length 1.
        shape: with the number of records in the place of that 1; the gradient has this shape.
        anchor: of the pass.
        receive: takes the gradient.
    """
    out: Tensor = _SpreadOut.apply(value, shape, anchor, receive)  # type: ignore[no-untyped-call]
    return out


class _Tap(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor, _anchor: Tensor, receive: Receiver) -> Tensor:
        ctx.receive = receive
        # The same memory, and not a view: a view made here could not be changed in place later.
        ctx.mark_dirty(value)
        return value

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, None, None]:
        (gradient,) = gradients
        ctx.receive(gradient)
        return (gradient if ctx.needs_input_grad[0] else None), None, None


class _SpreadOut(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, value: Tensor, shape: tuple[int, ...], _anchor: Tensor, receive: Receiver
    ) -> Tensor:
        ctx.receive = receive
        return value.expand(shape)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None, None, None]:
        (gradient,) = gradients
        ctx.receive(gradient)
        return None, None, None, None
