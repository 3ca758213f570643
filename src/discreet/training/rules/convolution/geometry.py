"""Per-record weight gradients of convolutions, 1d to 3d, grouped, dilated, transposed.

    dW[o, i, k] = sum_t n[o, t] w[i, s t + d k - e]

with t positions, k places of the kernel, s stride, d dilation, e padding. n, the *narrow* side, has
one vector per position; over w, the *wide* side, the kernel slides. For a convolution n is the
gradient of the output and w the input; for a transposed convolution the two are exchanged, and
nothing else changes (docs/proofs/convolution.md, names).

    folded      one library call; the records become groups of one large convolution
                [Rochette2019]: few channels, large maps
    unfolded    windows of w copied out, then one product per record: many channels
    streamed    as unfolded, but summed at once with weights: never m gradients at a time

Norms without gradients ("ghost") are in `norms.py`. Padding here is with zeros: torch itself pads
for the other modes before it convolves.

Legend: m records, T positions, p numbers of a window (channels of one group times places of the
    kernel).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias

import torch
from torch import Tensor
from torch.nn.functional import pad

from discreet import _validate as check
from discreet.errors import ParameterError
from discreet.training.separation.marks import constant

__all__ = ["TOGETHER", "Convolution", "Size", "product"]

Size: TypeAlias = int | Sequence[int]
"""One number for all axes, or one per axis, as torch takes it."""

TOGETHER = 8
"""Records whose gradients exist at a time, and that are summed in float32 before float64."""

_CACHE = 2**20  # bytes of windows or gradients worked on at a time, about one core's cache
_INDEXED = 2**14  # numbers of a record's windows whose places are remembered
_WEIGHT_ONLY = (False, True, False)

# Fewer groups take another kernel, whose bits would tell how many other records there are
# (measured).
_LEAST_FOLDS = 4


@dataclass(frozen=True, slots=True)
class Convolution:
    """The geometry of a convolution; everything in it is public.

    Build it with `of` or `of_transposed` from the arguments of torch's functions.

    Args:
        weight_shape: (narrow channels, wide channels / groups, *kernel), as torch stores the
            weight.
        stride, dilation: one number per axis.
        padding: zeros before and after, per axis; they differ for "same" with an even kernel.
        groups: independent parts of the channels.
        transposed: whether the wide side is the output.
        output_padding: per axis; zeros unless transposed.

    >>> Convolution.of((8, 3, 4, 4), stride=(1, 1), padding="same").padding
    ((1, 2), (1, 2))
    """

    weight_shape: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]
    groups: int
    transposed: bool
    output_padding: tuple[int, ...]

    @classmethod
    def of(
        cls,
        weight_shape: Sequence[int],
        stride: Size = 1,
        padding: Size | Literal["same", "valid"] = 0,
        dilation: Size = 1,
        groups: int = 1,
    ) -> Convolution:
        """From what follows (input, weight, bias) in torch.conv1d to conv3d, in this order.

        torch has accepted them: nothing is checked again.
        """
        shape, axes = tuple(weight_shape), len(weight_shape) - 2
        gaps = _per_axis(dilation, axes)
        zeros = [0] * axes if isinstance(padding, str) else _per_axis(padding, axes)
        pairs = [(count, count) for count in zeros]

        if padding == "same":
            # As much as the window is longer than one place; the odd zero comes last, as in torch.
            reaches = [gap * (size - 1) for gap, size in zip(gaps, shape[2:], strict=True)]
            pairs = [(reach // 2, reach - reach // 2) for reach in reaches]

        return cls(shape, _per_axis(stride, axes), tuple(pairs), gaps, groups, False, (0,) * axes)

    @classmethod
    def of_transposed(
        cls,
        weight_shape: Sequence[int],
        stride: Size = 1,
        padding: Size = 0,
        output_padding: Size = 0,
        groups: int = 1,
        dilation: Size = 1,
    ) -> Convolution:
        """From what follows (input, weight, bias) in torch.conv_transpose1d to 3d, in this order.

        torch has accepted them: nothing is checked again.
        """
        axes = len(weight_shape) - 2
        return cls(
            tuple(weight_shape),
            _per_axis(stride, axes),
            tuple([(zeros, zeros) for zeros in _per_axis(padding, axes)]),
            _per_axis(dilation, axes),
            groups,
            True,
            _per_axis(output_padding, axes),
        )

    @property
    def window(self) -> int:
        """The numbers of one window in one group, p."""
        return math.prod(self.weight_shape[1:])

    def positions(self, wide_sizes: Sequence[int]) -> tuple[int, ...]:
        """Positions per axis of the narrow side.

        Their product is T, the terms of each number of a record's gradient.

        >>> Convolution.of((8, 3, 3), stride=2, padding=1).positions([9])
        (5,)
        """
        counts = []
        for axis, size in enumerate(wide_sizes):
            # A window reaches over the places of the kernel and the gaps between them.
            room = size - self.output_padding[axis] + sum(self.padding[axis])
            reach = self.dilation[axis] * (self.weight_shape[2 + axis] - 1) + 1
            counts.append((room - reach) // self.stride[axis] + 1)

        return tuple(counts)

    def sides(self, x: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        """The wide and the narrow side, detached, of an input and the gradient of its output.

        Args:
            x: (m, channels, *sizes); sensitive.
            g: (m, channels, *sizes) of the same dtype; sensitive.

        Raises:
            ParameterError: they do not belong together.
        """
        wide, narrow = (g.detach(), x.detach()) if self.transposed else (x.detach(), g.detach())
        fits = len(x) == len(g) and x.dtype == g.dtype and self._slides_over(wide)
        sizes = self.positions(wide.shape[2:]) if fits else ()

        if not fits or narrow.shape[1:] != (self.weight_shape[0], *sizes):
            # The number of records is sensitive and not shown.
            got = (
                f"records of {tuple(x.shape[1:])} in {x.dtype} and {tuple(g.shape[1:])} in "
                f"{g.dtype}, or unequal in number"
            )
            expected = f"(m, channels, *sizes), one dtype, input and output gradient of {self}"
            raise ParameterError(owner="Convolution", name="x, g", expected=expected, got=got)

        return wide, narrow

    def folded(self, x: Tensor, g: Tensor) -> Tensor:
        """(m, *weight_shape): gradients of all records in one call, each record a group of its own.

        The additions are the library's own. Arguments as for `sides`.

        >>> x, g = torch.ones(2, 1, 3), torch.ones(2, 1, 2)
        >>> Convolution.of((1, 1, 2)).folded(x, g).tolist()
        [[[[2.0, 2.0]]], [[[2.0, 2.0]]]]
        """
        self.sides(x, g)
        m, shape = len(x), self.weight_shape
        if m == 0:
            return x.new_zeros((0, *shape))

        folds = max(_LEAST_FOLDS, m)
        x, g = x.detach(), g.detach()

        if folds > m:  # the records again, until there are enough groups
            again = torch.arange(folds, device=x.device) % m
            x, g = x[again], g[again]

        # One image with the channels of all records, and as many groups more.
        x, g = (side.reshape(1, -1, *side.shape[2:]) for side in (x, g))

        return self._gradient(x, g, folds=folds).view(folds, *shape)[:m]

    def unfolded(self, x: Tensor, g: Tensor) -> Tensor:
        """(m, *weight_shape): windows copied out, then one product per record.

        The windows of as many records as stay in the cache are copied at a time.
        """
        wide, narrow = self.sides(x, g)
        out = self._room(x, len(x))
        self._fill(wide, narrow, out)

        return out.view(len(x), *self.weight_shape)

    def in_turn(
        self, x: Tensor, g: Tensor, microbatch: int = TOGETHER
    ) -> Iterator[tuple[slice, Tensor]]:
        """The gradients of `microbatch` records after the others, each overwritten by the next.

        Yields:
            Which records, and their gradients (microbatch or fewer, *weight_shape).
        """
        wide, narrow = self.sides(x, g)
        room = self._room(x, microbatch)
        for start in range(0, len(x), microbatch):
            part = slice(start, start + microbatch)
            out = room[: len(wide[part])]
            self._fill(wide[part], narrow[part], out)
            yield part, out.view(len(out), *self.weight_shape)

    def streamed(
        self, x: Tensor, g: Tensor, weights: Tensor, *, microbatch: int = TOGETHER
    ) -> Tensor:
        """weight_shape, float64: the weighted sum of gradients of which only a few exist at a time.

        Each record's gradient is rounded as in `unfolded`. Then at most `microbatch` records are
        summed in the dtype of x, and these sums in float64:
        `numerics.FloatSum(microbatch=microbatch, terms=1)`. A record with weight 0 contributes
        zeros, whatever it holds.

        Args:
            x: as for `sides`.
            g: as for `sides`.
            weights: (m,), of the dtype of x; sensitive.
            microbatch: most records summed in the dtype of x; public.
        """
        check.whole("Convolution.streamed", "microbatch", microbatch, least=1)
        total = x.new_zeros(math.prod(self.weight_shape), dtype=torch.float64)
        weights, summed = _checked(weights, x), x.new_empty(len(total))

        for part, gradients in self.in_turn(x, g, microbatch):
            rows = _without_zeros(gradients.flatten(1), weights[part])
            # Into existing memory: autocast would shorten the factors of a product with a new one.
            total += torch.mv(rows.t(), weights[part], out=summed)

        return total.view(self.weight_shape)

    def patches(self, wide: Tensor) -> Tensor:
        """(m, groups, T, p): the windows of the wide side, copied once (besides padding) or viewed.

        Windows lie in memory with positions last. Never write into the result.

        >>> Convolution.of((1, 1, 2)).patches(torch.tensor([[[1.0, 2.0, 3.0]]])).tolist()
        [[[[1.0, 2.0], [2.0, 3.0]]]]
        """
        if not self._slides_over(wide):  # else a window could reach into another record's memory
            raise ParameterError(
                owner="Convolution.patches",
                name="wide",
                expected=f"(m, channels, *sizes) for {self}",
                got=f"records of {tuple(wide.shape[1:])}",
            )

        # Padded once for all windows.
        sizes = self.positions(wide.shape[2:])
        if any(map(any, self.padding)):
            wide = pad(wide, [zeros for pair in reversed(self.padding) for zeros in pair])

        shape = (len(wide), self.groups, self.window, math.prod(sizes))

        if math.prod(shape[1:]) <= _INDEXED and wide.is_contiguous():
            # Small windows by their places: several times faster than to copy by strides.
            places = _places(self, tuple(wide.shape[1:]), sizes, wide.device)
            windows = wide.flatten(1).index_select(1, places).view(shape)
        else:
            windows = self._windows_of(wide, sizes).reshape(shape)

        return windows.transpose(2, 3)

    def _windows_of(self, wide: Tensor, sizes: Sequence[int]) -> Tensor:
        """(m, groups, channels of a group, *kernel, *positions): a view of the padded wide side."""
        channels, axes = self.weight_shape[1], wide.stride()[2:]
        shape = (len(wide), self.groups, channels, *self.weight_shape[2:], *sizes)
        # Along the kernel a window steps by the dilation, from position to position by the stride.
        inner = [gap * axis for gap, axis in zip(self.dilation, axes, strict=True)]
        outer = [step * axis for step, axis in zip(self.stride, axes, strict=True)]
        group = channels * wide.stride(1)

        return wide.as_strided(shape, (wide.stride(0), group, wide.stride(1), *inner, *outer))

    def _slides_over(self, wide: Tensor) -> bool:
        # Whether a tensor has the channels of the wide side, and room for a window.
        channels = self.weight_shape[1] * self.groups
        if wide.ndim != len(self.weight_shape) or wide.shape[1] != channels:
            return False

        return min(self.positions(wide.shape[2:])) >= 1

    def _room(self, x: Tensor, records: int) -> Tensor:
        # Memory for the gradients of so many records, (m, groups, channels, p).
        return x.new_empty((records, self.groups, self.weight_shape[0] // self.groups, self.window))

    def _fill(self, wide: Tensor, narrow: Tensor, out: Tensor) -> None:
        """Write gradients into `out` (m, groups, channels, p), as many records as stay in the cache
        at a time; at least two, see `product`.
        """
        positions = math.prod(self.positions(wide.shape[2:]))
        record_bytes = positions * self.window * self.groups * wide.element_size()
        step = max(2, _CACHE // record_bytes)

        for start in range(0, len(wide), step):
            part = slice(start, start + step)
            product(
                narrow[part].reshape(-1, out.shape[2], positions),
                self.patches(wide[part]).flatten(0, 1),
                out[part].view(-1, *out.shape[2:]),
            )

    def _gradient(self, x: Tensor, g: Tensor, *, folds: int) -> Tensor:
        """The weight gradient of a whole batch by torch's own function, with `folds` times the
        groups.
        """
        uneven = [(0, after - before) for before, after in self.padding]
        if any(map(any, uneven)):  # "same" with an even kernel: torch, too, pads first
            x = pad(x, [zeros for pair in reversed(uneven) for zeros in pair])

        # Of the weight only the shape is read.
        weight = x.new_empty((folds * self.weight_shape[0], *self.weight_shape[1:]))
        gradient: Tensor = torch.ops.aten.convolution_backward(
            g,
            x,
            weight,
            None,
            self.stride,
            [before for before, _ in self.padding],
            self.dilation,
            self.transposed,
            self.output_padding,
            folds * self.groups,
            _WEIGHT_ONLY,
        )[1]

        return gradient


def product(a: Tensor, b: Tensor, out: Tensor) -> Tensor:
    """Matrix products (n, i, k) of (n, i, j) and (n, j, k), into existing memory `out`.

    Into existing memory autocast shortens no factors. A single product may take another kernel than
    several, with other bits; so it is computed twice at once.
    """
    if len(a) != 1:
        return torch.bmm(a, b, out=out)

    pair = out.new_empty((2, *out.shape[1:]))
    torch.bmm(a.expand(2, -1, -1), b.expand(2, -1, -1), out=pair)

    return out.copy_(pair[:1])


@lru_cache(64)
def _places(
    how: Convolution, shape: tuple[int, ...], sizes: tuple[int, ...], device: torch.device
) -> Tensor:
    # Where the numbers of all windows of a record lie in its flat memory, in the order of
    # `patches`.
    numbers = torch.arange(math.prod(shape), device=device).view(1, *shape)
    places = how._windows_of(numbers, sizes).reshape(-1)  # noqa: SLF001  (the same module)
    return constant(places)


def _per_axis(size: Size, axes: int) -> tuple[int, ...]:
    # One number per axis; a single one counts for all, as in torch.
    sizes = tuple(size) if isinstance(size, Sequence) else (size,)
    return sizes * axes if len(sizes) == 1 else sizes


def _checked(weights: Tensor, x: Tensor) -> Tensor:
    if weights.shape != x.shape[:1] or weights.dtype != x.dtype:
        got = f"{weights.ndim} axes, {weights.dtype}, or another number of records"
        raise ParameterError(
            owner="Convolution", name="weights", expected=f"one {x.dtype} per record", got=got
        )

    return weights.detach()


def _without_zeros(rows: Tensor, weights: Tensor) -> Tensor:
    # Zeros where the weight is zero: zero times infinity is no zero (P13).
    dropped = weights == 0
    if not bool(dropped.any()):
        return rows

    return rows.masked_fill(dropped.unsqueeze(1), 0.0)
