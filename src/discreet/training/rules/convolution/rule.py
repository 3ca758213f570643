"""Convolutions: torch.conv1d ... conv3d and their transposes. Other padding modes come as a padded
input.

    dW[o, i, k] = sum_t g[o, t] x[i, s t + d k - e]        dc[o] = sum_t g[o, t]

with g the gradient of the output; see `geometry` for the symbols and `norms` for the norms.

Legend: m records, K copies of a record.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from discreet.training.factors.factors import Dense, Factor, Forms, Measures, present_only, wide
from discreet.training.rounding.norms import row_squares
from discreet.training.rounding.precision import LARGEST_INPUT
from discreet.training.rules.call import Call
from discreet.training.rules.convolution.geometry import TOGETHER, Convolution
from discreet.training.rules.convolution.norms import ghost_pays, ghost_squares
from discreet.training.separation.states import OneByOne

__all__ = ["Convolved", "Copied", "convolution", "transposed_convolution"]


@final
@dataclass(frozen=True, slots=True, eq=False)
class Convolved:
    """Gradients of a convolution's weight, formed a few records at a time.

    Args:
        how: the geometry; public.
        x: the input, (m, channels, *sizes).
        g: the gradient of the output, (m, channels, *sizes).
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
            # is left out as elsewhere (docs/proofs/sums.md, section 6).
            squares = squares.masked_fill(spreads > LARGEST_INPUT**2, math.inf)
        else:
            gradients = self.how.in_turn(self.x, self.g)
            squares = torch.cat([row_squares(rows) for _, rows in gradients])
        return squares, squares

    def single(self, _spread: float) -> bool:
        return False

    def add_to(self, total: Tensor, weights: Tensor, _spread: float) -> None:
        total.add_(self.how.streamed(self.x, self.g, weights.to(self.x.dtype)))

    def dense(self) -> Dense:
        return Dense(self.how.folded(self.x, self.g))

    def keep(self, mask: Tensor) -> Convolved:
        return Convolved(self.how, present_only(self.x, mask), present_only(self.g, mask))

    def joined(self, copies: int) -> Copied:
        sizes = (self.records // copies, copies)
        x, g = (side.reshape(*sizes, *side.shape[1:]) for side in (self.x, self.g))
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
    """Gradients of a convolution's weight where a record is several rows, which are added up before
    they are measured.

    Args:
        how: the geometry; public.
        x: the input, (m, K, channels, *sizes).
        g: the gradient of the output, (m, K, channels, *sizes).
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
        squares = torch.cat([row_squares(gradients.values) for _, gradients in self._in_turn()])
        return squares, squares

    def single(self, _spread: float) -> bool:
        return False

    def add_to(self, total: Tensor, weights: Tensor, spread: float) -> None:
        for part, gradients in self._in_turn():
            gradients.add_to(total, weights[part], spread)

    # The gradients of a few records after the others: the same bits for norms and for sums.
    def _in_turn(self) -> Iterator[tuple[slice, Dense]]:
        for start in range(0, max(1, self.records), TOGETHER):
            part = slice(start, start + TOGETHER)
            yield part, _added(self.how.unfolded, self.x[part], self.g[part])

    def dense(self) -> Dense:
        return _added(self.how.folded, self.x, self.g)

    def keep(self, mask: Tensor) -> Copied:
        return Copied(self.how, present_only(self.x, mask), present_only(self.g, mask))

    def joined(self, copies: int) -> Copied:
        rows = Convolved(self.how, self.x.flatten(0, 1), self.g.flatten(0, 1))
        return rows.joined(copies * self.x.shape[1])

    def forms(self) -> Forms:
        return {
            "streamed": lambda: self,
            "folded": self.dense,
            "unfolded": lambda: _added(self.how.unfolded, self.x, self.g),
        }


# Copy after copy, number by number: the gradients of all rows never exist at once.
def _added(gradients: Callable[[Tensor, Tensor], Tensor], x: Tensor, g: Tensor) -> Dense:
    total = gradients(x[:, 0].contiguous(), g[:, 0].contiguous())
    for copy in range(1, x.shape[1]):
        total.add_(gradients(x[:, copy].contiguous(), g[:, copy].contiguous()))
    return Dense(total)


def convolution(call: Call) -> Tensor:
    """y = conv(x, W) + c: dW[o,i,k] = sum_t g[o,t] x[i, s t + d k - e] and dc[o] = sum_t g[o,t]."""
    defaults = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1}
    return _convolved(call, Convolution.of, defaults)


def transposed_convolution(call: Call) -> Tensor:
    """y = conv_transpose(x, W) + c: dW as for `convolution`, with x and g exchanged."""
    defaults = {"stride": 1, "padding": 0, "output_padding": 0, "groups": 1, "dilation": 1}
    return _convolved(call, Convolution.of_transposed, defaults)


def _convolved(call: Call, build: Callable[..., Convolution], defaults: dict[str, int]) -> Tensor:
    """Convolve, and tap the output.

    Args:
        call: of a convolution.
        build: makes the geometry from the shape of the weight and the options.
        defaults: the options that follow (input, weight, bias) in torch's function, in this order.
    """
    x, weight, bias, *options = call.get_all("input", "weight", "bias", *defaults)
    if not call.has_records_first(x) or x.ndim != weight.ndim or call.value(x) is not None:
        raise OneByOne("a convolution of something else than (records, channels, ...)")
    options = [
        default if option is None else option
        for option, default in zip(options, defaults.values(), strict=True)
    ]
    y = call.func(x, call.plain(weight), call.plain(bias), *options)
    how, plain = build(tuple(weight.shape), *options), x.detach()

    def of_weight(gradient: Tensor) -> Factor:
        kind = torch.promote_types(wide(plain).dtype, wide(gradient).dtype)
        return Convolved(how, plain.to(kind), gradient.to(kind))

    def of_bias(gradient: Tensor) -> Factor:
        return Dense(wide(gradient).flatten(2).sum(2))

    return call.tap(y, (call.value(weight), of_weight), (call.value(bias), of_bias))
