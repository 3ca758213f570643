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
from discreet.training.rules.call import Call, Rule
from discreet.training.rules.convolution.geometry import TOGETHER, Convolution
from discreet.training.rules.convolution.norms import ghost_pays, ghost_squares
from discreet.training.separation.states import OneByOne, Rows

__all__ = ["RULES", "Convolved", "convolution", "transposed_convolution"]


@final
@dataclass(frozen=True, slots=True, eq=False)
class Convolved:
    """Gradients of a convolution's weight, formed a few records at a time.

    Where a record is several rows (K copies of it), their gradients are added up before they are
    measured.

    Args:
        how: the geometry; public.
        x: the input, (m, channels, *sizes), or (m, K, channels, *sizes).
        g: the gradient of the output, with the same first axes.
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

    @property
    def _is_copied(self) -> bool:
        return self.x.ndim > len(self.shape)

    def measured(self) -> Measures:
        if self._is_copied:
            squares = torch.cat([row_squares(rows.values) for _, rows in self._in_turn()])
        elif ghost_pays(self.how, self.how.sides(self.x, self.g)[0].shape[2:]):
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

    def add_to(self, total: Tensor, weights: Tensor, spread: float) -> None:
        if not self._is_copied:
            total.add_(self.how.streamed(self.x, self.g, weights.to(self.x.dtype)))
            return

        for part, gradients in self._in_turn():
            gradients.add_to(total, weights[part], spread)

    def _in_turn(self) -> Iterator[tuple[slice, Dense]]:
        # The gradients of a few copied records after the others: the same bits for norms and for
        # sums.
        for start in range(0, max(1, self.records), TOGETHER):
            part = slice(start, start + TOGETHER)
            records = Convolved(self.how, self.x[part], self.g[part])
            yield part, records.added(self.how.unfolded)

    def added(self, gradients: Callable[[Tensor, Tensor], Tensor]) -> Dense:
        """The gradients by one way to compute them, added up over the copies of a record.

        Copy after copy, number by number: the gradients of all rows never exist at once.
        """
        if not self._is_copied:
            return Dense(gradients(self.x, self.g))

        first, *copies = zip(self.x.unbind(1), self.g.unbind(1), strict=True)
        total = gradients(*[side.contiguous() for side in first])

        for copy in copies:
            total.add_(gradients(*[side.contiguous() for side in copy]))

        return Dense(total)

    def dense(self) -> Dense:
        return self.added(self.how.folded)

    def keep(self, mask: Tensor) -> Convolved:
        return Convolved(self.how, present_only(self.x, mask), present_only(self.g, mask))

    def joined(self, copies: int) -> Convolved:
        # Records that follow each other become one, with all of their copies.
        rows = copies * (self.x.shape[1] if self._is_copied else 1)
        axes = len(self.shape) - 1  # channels and sizes
        x, g = (
            side.reshape(self.records // copies, rows, *side.shape[-axes:])
            for side in (self.x, self.g)
        )

        return Convolved(self.how, x, g)

    def forms(self) -> Forms:
        return {
            "streamed": lambda: self,
            "folded": self.dense,
            "unfolded": lambda: self.added(self.how.unfolded),
        }


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
    if call.axes[id(x)] != Rows(0) or x.ndim != weight.ndim or call.value(x) is not None:
        raise OneByOne("a convolution of something else than (records, channels, ...)")

    options = [
        default if option is None else option
        for option, default in zip(options, defaults.values(), strict=True)
    ]

    # torch first: it refuses what is no convolution, before a geometry is made of it.
    y = call.func(x, call.plain(weight), call.plain(bias), *options)
    how, plain = build(tuple(weight.shape), *options), x.detach()

    def of_weight(gradient: Tensor) -> Factor:
        kind = torch.promote_types(wide(plain).dtype, wide(gradient).dtype)
        return Convolved(how, plain.to(kind), gradient.to(kind))

    def of_bias(gradient: Tensor) -> Factor:
        return Dense(wide(gradient).flatten(2).sum(2))

    return call.tap(y, (call.value(weight), of_weight), (call.value(bias), of_bias))


RULES: dict[str, Rule] = {
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), convolution),
    **dict.fromkeys(
        ("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), transposed_convolution
    ),
}
