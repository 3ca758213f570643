"""Convolutions: torch.conv1d ... conv3d and their transposes. Other padding modes come as a padded input.

Legend: m records, q output channels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from discreet.training.factors import Dense, Factor, Forms, Measures, wide
from discreet.training.norms import row_squares
from discreet.training.precision import LARGEST_INPUT
from discreet.training.recording import Call
from discreet.training.rules.convolution import Convolution
from discreet.training.rules.convolution_norms import ghost_pays, ghost_squares
from discreet.training.watching import Unclear

__all__ = ["Convolved", "convolution", "transposed_convolution"]


@final
@dataclass(frozen=True, slots=True, eq=False)
class Convolved:
    """Gradients of a convolution's weight, from its input x and the gradient g of its output; formed a few at a time."""

    how: Convolution
    x: Tensor
    g: Tensor

    @property
    def records(self) -> int:
        return self.x.shape[0]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.how.weight_shape

    @property
    def positions(self) -> int:
        return 1  # a record's gradient is formed before it is summed

    def measured(self) -> Measures:
        if ghost_pays(self.how, self.how.sides(self.x, self.g)[0].shape[2:]):
            squares, spreads = ghost_squares(self.how, self.x, self.g)
            # Below, no partial sum of the gradient leaves the range of float32; above, the record is left out as elsewhere.
            squares = squares.masked_fill(spreads > LARGEST_INPUT**2, math.inf)
        else:
            squares = torch.cat([row_squares(some) for some in self.how.in_turn(self.x, self.g)])
        return squares, squares

    def single(self, _spread: float) -> bool:
        return False

    def add_to(self, total: Tensor, weights: Tensor, _spread: float) -> None:
        total.add_(self.how.streamed(self.x, self.g, weights.to(self.x.dtype)))

    def dense(self) -> Dense:
        return Dense(self.how.folded(self.x, self.g))

    def keep(self, kept: Tensor) -> Convolved:
        rows = kept.to(self.x.device).reshape(-1, *[1] * (self.x.ndim - 1))
        return Convolved(self.how, torch.where(rows, self.x, 0), torch.where(rows, self.g, 0))

    def forms(self) -> Forms:
        return {
            "streamed": lambda: self,
            "folded": self.dense,
            "unfolded": lambda: Dense(self.how.unfolded(self.x, self.g)),
        }


def convolution(call: Call) -> Tensor:
    """y = conv(x, weight) + bias."""
    weight = call.get(1, "weight")
    names = ("stride", "padding", "dilation", "groups")
    options = [
        call.get(3 + place, name, default) for place, (name, default) in enumerate(zip(names, (1, 0, 1, 1), strict=True))
    ]
    return _convolved(call, Convolution.of(tuple(weight.shape), *options))


def transposed_convolution(call: Call) -> Tensor:
    """y = conv_transpose(x, weight) + bias."""
    weight = call.get(1, "weight")
    names = ("stride", "padding", "output_padding", "groups", "dilation")
    options = [
        call.get(3 + place, name, default) for place, (name, default) in enumerate(zip(names, (1, 0, 0, 1, 1), strict=True))
    ]
    return _convolved(call, Convolution.of_transposed(tuple(weight.shape), *options))


def _convolved(call: Call, how: Convolution) -> Tensor:
    x, weight, bias = (call.get(place, name) for place, name in enumerate(("input", "weight", "bias")))
    axis = call.axes[id(x)]
    if axis is None or (axis.dim, axis.fold) != (0, 1) or x.ndim != weight.ndim or call.value(x) is not None:
        raise Unclear("a convolution of something else than (records, channels, ...)")
    rest = [thing for place, thing in enumerate(call.args) if place > 2]
    kwargs = {name: thing for name, thing in call.kwargs.items() if name not in ("input", "weight", "bias")}
    y = call.func(x, call.plain(weight), call.plain(bias), *rest, **kwargs)
    seen = x.detach()

    def of_weight(gradient: Tensor) -> Factor:
        kind = torch.promote_types(wide(seen).dtype, wide(gradient).dtype)
        return Convolved(how, seen.to(kind), gradient.to(kind))

    def of_bias(gradient: Tensor) -> Factor:
        return Dense(wide(gradient).flatten(2).sum(2))

    return call.tap(y, (call.value(weight), of_weight), (call.value(bias), of_bias))
