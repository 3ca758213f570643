"""Convolutions: torch.conv1d ... conv3d and their transposes. Other padding modes come as a padded
input.

Legend: m records, q output channels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from discreet.training.factors.factors import Dense, Factor, Forms, Measures, wide
from discreet.training.rounding.norms import row_squares
from discreet.training.rounding.precision import LARGEST_INPUT
from discreet.training.rules.call import Call
from discreet.training.rules.convolution.geometry import Convolution
from discreet.training.rules.convolution.norms import ghost_pays, ghost_squares
from discreet.training.separation.states import OneByOne

__all__ = ["Convolved", "Copied", "convolution", "transposed_convolution"]

_TOGETHER = 8  # records whose gradients exist at a time


@final
@dataclass(frozen=True, slots=True, eq=False)
class Convolved:
    """Gradients of a convolution's weight, from its input x and the gradient g of its output;
    formed a few at a time.
    """

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
            # Below, no partial sum of the gradient leaves the range of float32; above, the record
            # is left out as elsewhere.
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

    def joined(self, copies: int) -> Copied:
        x, g = (
            side.reshape(len(side) // copies, copies, *side.shape[1:]) for side in (self.x, self.g)
        )
        return Copied(self.how, x, g)

    def forms(self) -> Forms:
        return {
            "streamed": lambda: self,
            "folded": self.dense,
            "unfolded": lambda: Dense(self.how.unfolded(self.x, self.g)),
        }


@final
@dataclass(frozen=True, slots=True, eq=False)
class Copied:
    """The same where a record is several rows, x and g (m, copies, channels, ...): gradients are
    added up, then measured.
    """

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
        return 1  # as above

    def measured(self) -> Measures:
        squares = torch.cat([row_squares(few.values) for _, few in self._in_turn()])
        return squares, squares

    def single(self, _spread: float) -> bool:
        return False

    def add_to(self, total: Tensor, weights: Tensor, spread: float) -> None:
        for some, few in self._in_turn():
            few.add_to(total, weights[some], spread)

    def _in_turn(self) -> Iterator[tuple[slice, Dense]]:
        """The gradients of a few records after the others: the same bits each time."""
        for start in range(0, max(1, self.records), _TOGETHER):
            some = slice(start, start + _TOGETHER)
            yield some, _added(self.how.unfolded, self.x[some], self.g[some])

    def dense(self) -> Dense:
        return _added(self.how.folded, self.x, self.g)

    def keep(self, kept: Tensor) -> Copied:
        rows = kept.to(self.x.device).reshape(-1, *[1] * (self.x.ndim - 1))
        return Copied(self.how, torch.where(rows, self.x, 0), torch.where(rows, self.g, 0))

    def joined(self, copies: int) -> Copied:
        x, g = (
            side.reshape(self.records // copies, -1, *side.shape[2:]) for side in (self.x, self.g)
        )
        return Copied(self.how, x, g)

    def forms(self) -> Forms:
        unfolded = self.how.unfolded
        return {
            "streamed": lambda: self,
            "folded": self.dense,
            "unfolded": lambda: _added(unfolded, self.x, self.g),
        }


def _added(gradients: Callable[[Tensor, Tensor], Tensor], x: Tensor, g: Tensor) -> Dense:
    """The gradients of all copies, one after the other: never those of all rows at once."""
    total = gradients(x[:, 0].contiguous(), g[:, 0].contiguous())
    for copy in range(1, x.shape[1]):
        total.add_(gradients(x[:, copy].contiguous(), g[:, copy].contiguous()))
    return Dense(total)


def convolution(call: Call) -> Tensor:
    """y = conv(x, weight) + bias."""
    weight = call.get(1, "weight")
    names = ("stride", "padding", "dilation", "groups")
    options = [
        call.get(3 + place, name, default)
        for place, (name, default) in enumerate(zip(names, (1, 0, 1, 1), strict=True))
    ]
    return _convolved(call, Convolution.of(tuple(weight.shape), *options))


def transposed_convolution(call: Call) -> Tensor:
    """y = conv_transpose(x, weight) + bias."""
    weight = call.get(1, "weight")
    names = ("stride", "padding", "output_padding", "groups", "dilation")
    options = [
        call.get(3 + place, name, default)
        for place, (name, default) in enumerate(zip(names, (1, 0, 0, 1, 1), strict=True))
    ]
    return _convolved(call, Convolution.of_transposed(tuple(weight.shape), *options))


def _convolved(call: Call, how: Convolution) -> Tensor:
    x, weight, bias = (
        call.get(place, name) for place, name in enumerate(("input", "weight", "bias"))
    )
    axis = call.axes[id(x)]
    if (
        axis is None
        or (axis.dim, axis.fold) != (0, 1)
        or x.ndim != weight.ndim
        or call.value(x) is not None
    ):
        raise OneByOne("a convolution of something else than (records, channels, ...)")
    rest = [thing for place, thing in enumerate(call.args) if place > 2]
    kwargs = {
        name: thing
        for name, thing in call.kwargs.items()
        if name not in ("input", "weight", "bias")
    }
    y = call.func(x, call.plain(weight), call.plain(bias), *rest, **kwargs)
    seen = x.detach()

    def of_weight(gradient: Tensor) -> Factor:
        kind = torch.promote_types(wide(seen).dtype, wide(gradient).dtype)
        return Convolved(how, seen.to(kind), gradient.to(kind))

    def of_bias(gradient: Tensor) -> Factor:
        return Dense(wide(gradient).flatten(2).sum(2))

    return call.tap(y, (call.value(weight), of_weight), (call.value(bias), of_bias))
