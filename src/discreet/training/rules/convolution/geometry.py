"""Per-record weight gradients of convolutions, 1d to 3d, grouped, dilated, transposed.

    dW[o, i, k] = sum_t n[o, t] w[i, s t + d k - e]        t positions, k places of the kernel, s stride, d dilation, e padding

n, the *narrow* side, has one vector per position; over w, the *wide* side, the kernel slides. For a
convolution n is the gradient of the output and w the input; for a transposed convolution the two
are exchanged, and nothing else changes.

    folded      one library call; the records become groups of one large convolution     few channels, large maps
    unfolded    windows of w copied out, then one product per record                     many channels
    streamed    as unfolded, but summed at once with given weights: never m gradients    the sum, after ghost norms

Norms without gradients ("ghost") are in `convolution_norms.py`. Padding here is with zeros: torch
itself pads for the other modes before it convolves.

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

__all__ = ["Convolution", "Size", "product"]

Size: TypeAlias = int | Sequence[int]
"""One number for all axes, or one per axis, as torch takes it."""

_TOGETHER = 8  # records summed in float32 before float64
_CACHE = 2**20  # bytes of windows or gradients worked on at a time, about one core's cache
_INDEXED = 2**14  # numbers of a record's windows whose places are remembered
_WEIGHT_ONLY = (False, True, False)
_MOST_AXES = 3
_LEAST_FOLDS = 4  # fewer groups take another kernel: a record's bits would tell how many others are there; measured


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
        """From what follows (input, weight, bias) in torch.conv1d, conv2d and conv3d, in the same
        order.
        """
        shape, axes = _weight_shape("Convolution.of", weight_shape)
        steps = _per_axis("stride", stride, axes, least=1)
        gaps = _per_axis("dilation", dilation, axes, least=1)
        if isinstance(padding, str):
            if padding not in ("same", "valid") or (padding == "same" and steps != (1,) * axes):
                expected = 'numbers, "valid", or, with stride 1, "same"'
                raise ParameterError(
                    owner="Convolution.of", name="padding", expected=expected, got=repr(padding)
                )
            total = [
                gap * (size - 1) if padding == "same" else 0
                for gap, size in zip(gaps, shape[2:], strict=True)
            ]
            pairs = tuple((zeros // 2, zeros - zeros // 2) for zeros in total)
        else:
            pairs = tuple((zeros, zeros) for zeros in _per_axis("padding", padding, axes, least=0))
        return cls(shape, steps, pairs, gaps, _groups(groups, shape), False, (0,) * axes)

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
        """From what follows (input, weight, bias) in torch.conv_transpose1d, 2d and 3d, in the same
        order.
        """
        shape, axes = _weight_shape("Convolution.of_transposed", weight_shape)
        pairs = tuple((zeros, zeros) for zeros in _per_axis("padding", padding, axes, least=0))
        steps, gaps = (
            _per_axis(name, size, axes, least=1)
            for name, size in (("stride", stride), ("dilation", dilation))
        )
        more = _per_axis("output_padding", output_padding, axes, least=0)
        return cls(shape, steps, pairs, gaps, _groups(groups, shape), True, more)

    @property
    def window(self) -> int:
        """p: numbers of one window in one group."""
        return math.prod(self.weight_shape[1:])

    def positions(self, wide_sizes: Sequence[int]) -> tuple[int, ...]:
        """Positions per axis of the narrow side; their product is T, the terms of each number of a
        record's gradient.

        >>> Convolution.of((8, 3, 3), stride=2, padding=1).positions([9])
        (5,)
        """
        kernel = self.weight_shape[2:]
        return tuple(
            (size - more + sum(zeros) - gap * (places - 1) - 1) // step + 1
            for size, more, zeros, gap, places, step in zip(
                wide_sizes,
                self.output_padding,
                self.padding,
                self.dilation,
                kernel,
                self.stride,
                strict=True,
            )
        )

    def sides(self, x: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        """(wide, narrow), detached, for an input x and the gradient g of its output; refused if
        they do not belong together.

        Args:
            x: (m, channels, *sizes); sensitive.
            g: (m, channels, *sizes) of the same dtype; sensitive.
        """
        wide, narrow = (g.detach(), x.detach()) if self.transposed else (x.detach(), g.detach())
        fits = self._slides_over(wide) and len(x) == len(g) and x.dtype == g.dtype
        if not fits or tuple(narrow.shape[1:]) != (
            self.weight_shape[0],
            *self.positions(wide.shape[2:]),
        ):
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
        same = torch.arange(folds, device=x.device) % m  # the records again until there are enough
        x, g = (side.detach() if folds == m else side.detach()[same] for side in (x, g))
        x, g = (side.reshape(1, -1, *side.shape[2:]) for side in (x, g))
        return self._gradient(x, g, folds=folds).view(folds, *shape)[:m]

    def unfolded(self, x: Tensor, g: Tensor) -> Tensor:
        """(m, *weight_shape): windows copied out, for as many records as stay in the cache, then
        one product per record.
        """
        wide, narrow = self.sides(x, g)
        out = x.new_empty((len(x), self.groups, self.weight_shape[0] // self.groups, self.window))
        for some in self.pieces(wide):
            self._products(wide[some], narrow[some], out[some])
        return out.view(len(x), *self.weight_shape)

    def in_turn(self, x: Tensor, g: Tensor) -> Iterator[Tensor]:
        """The gradients of a few records after the others, (few, *weight_shape); each is
        overwritten by the next.
        """
        wide, narrow = self.sides(x, g)
        room = x.new_empty(
            (_TOGETHER, self.groups, self.weight_shape[0] // self.groups, self.window)
        )
        for start in range(0, len(x), _TOGETHER):
            some, count = slice(start, start + _TOGETHER), min(_TOGETHER, len(x) - start)
            for piece in self.pieces(wide[some]):
                self._products(wide[some][piece], narrow[some][piece], room[:count][piece])
            yield room[:count].view(count, *self.weight_shape)

    def streamed(
        self, x: Tensor, g: Tensor, weights: Tensor, *, microbatch: int = _TOGETHER
    ) -> Tensor:
        """weight_shape, float64: the weighted sum of the records' gradients, of which only a few
        exist at a time.

        Each record's gradient is rounded as in `unfolded`. Then at most `microbatch` records are
        summed in the dtype of x, and
        these sums in float64: `numerics.FloatSum(microbatch=microbatch, terms=1)`.
        A record with weight 0 contributes zeros, whatever it holds.

        Args:
            x: as for `sides`.
            g: as for `sides`.
            weights: (m,), of the dtype of x; sensitive.
            microbatch: most records summed in the dtype of x; public.
        """
        microbatch = check.whole("Convolution.streamed", "microbatch", microbatch, least=1)
        wide, narrow = self.sides(x, g)
        total = x.new_zeros(math.prod(self.weight_shape), dtype=torch.float64)
        room = x.new_empty(
            (microbatch, self.groups, self.weight_shape[0] // self.groups, self.window)
        )
        weights, part = _checked(weights, x), x.new_empty(len(total))
        for start in range(0, len(x), microbatch):
            some = slice(start, start + microbatch)
            count = min(microbatch, len(x) - start)
            for piece in self.pieces(wide[some]):
                self._products(wide[some][piece], narrow[some][piece], room[:count][piece])
            gradients = _without_zeros(room[:count].flatten(1), weights[some])
            total += torch.mv(
                gradients.t(), weights[some], out=part
            )  # into given memory: no autocast
        return total.view(self.weight_shape)

    def patches(self, wide: Tensor) -> Tensor:
        """(m, groups, T, p): the windows of the wide side, copied once (besides padding), or a
        view.

        Windows lie in memory with positions last. Never write into the result.

        >>> Convolution.of((1, 1, 2)).patches(torch.tensor([[[1.0, 2.0, 3.0]]])).tolist()
        [[[[1.0, 2.0], [2.0, 3.0]]]]
        """
        if not self._slides_over(wide):  # else a window could reach into another record's memory
            expected, got = (
                f"(m, channels, *sizes) for {self}",
                f"records of {tuple(wide.shape[1:])}",
            )
            raise ParameterError(
                owner="Convolution.patches", name="wide", expected=expected, got=got
            )
        sizes = self.positions(wide.shape[2:])
        if any(zeros != (0, 0) for zeros in self.padding):
            wide = pad(wide, [zeros for pair in reversed(self.padding) for zeros in pair])
        shape = (len(wide), self.groups, self.window, math.prod(sizes))
        if (
            math.prod(shape[1:]) <= _INDEXED and wide.is_contiguous()
        ):  # several times faster than to copy by strides
            places = _places(self, tuple(wide.shape[1:]), sizes, wide.device)
            return wide.flatten(1).index_select(1, places).view(shape).transpose(2, 3)
        return self._windows_of(wide, sizes).reshape(shape).transpose(2, 3)

    def pieces(self, wide: Tensor) -> Iterator[slice]:
        """Slices of records whose windows stay in the cache together."""
        step = max(2, _CACHE // (self._windows(wide.shape[2:]) * wide.element_size()))
        return (slice(start, start + step) for start in range(0, len(wide), step))

    def _windows_of(self, wide: Tensor, sizes: Sequence[int]) -> Tensor:
        """(m, groups, channels of a group, *kernel, *positions): a view of the padded wide side."""
        m, channels, axes = len(wide), self.weight_shape[1], wide.stride()[2:]
        shape = (m, self.groups, channels, *self.weight_shape[2:], *sizes)
        inner = [gap * axis for gap, axis in zip(self.dilation, axes, strict=True)]
        outer = [step * axis for step, axis in zip(self.stride, axes, strict=True)]
        return wide.as_strided(
            shape, (wide.stride(0), channels * wide.stride(1), wide.stride(1), *inner, *outer)
        )

    def _slides_over(self, wide: Tensor) -> bool:
        """Whether a tensor has the channels of the wide side and room for a window."""
        if (
            wide.ndim != len(self.weight_shape)
            or wide.shape[1] != self.weight_shape[1] * self.groups
        ):
            return False
        return min(self.positions(wide.shape[2:])) >= 1

    def _windows(self, wide_sizes: Sequence[int]) -> int:
        """Numbers in all windows of a record."""
        return math.prod(self.positions(wide_sizes)) * self.window * self.groups

    def _products(self, wide: Tensor, narrow: Tensor, out: Tensor) -> None:
        """The gradients of a few records into `out` (m, groups, channels, p)."""
        m = len(wide)
        windows = self.patches(wide).flatten(0, 1)
        product(
            narrow.reshape(m * self.groups, out.shape[2], -1),
            windows,
            out.view(m * self.groups, *out.shape[2:]),
        )

    def _gradient(self, x: Tensor, g: Tensor, *, folds: int) -> Tensor:
        """The weight gradient of a whole batch by torch's own function, with `folds` times the
        groups.
        """
        if any(
            before != after for before, after in self.padding
        ):  # "same" with an even kernel: torch, too, pads first
            x = pad(
                x,
                [
                    zeros
                    for before, after in reversed(self.padding)
                    for zeros in (0, after - before)
                ],
            )
        unused = x.new_empty(
            (folds * self.weight_shape[0], *self.weight_shape[1:])
        )  # only its shape is read
        before = [zeros for zeros, _ in self.padding]
        how = (
            self.stride,
            before,
            self.dilation,
            self.transposed,
            self.output_padding,
            folds * self.groups,
        )
        gradient: Tensor = torch.ops.aten.convolution_backward(
            g, x, unused, None, *how, _WEIGHT_ONLY
        )[1]
        return gradient


def product(left: Tensor, right: Tensor, out: Tensor) -> Tensor:
    """Matrix products (n, a, b) of (n, a, c) and (n, c, b) into `out`: into given memory, so that
    no autocast shortens factors.

    A single product may take another kernel than one of several, with other bits; so it is computed
    twice at once.
    """
    if len(left) != 1:
        return torch.bmm(left, right, out=out)
    pair = out.new_empty((2, *out.shape[1:]))
    torch.bmm(left.expand(2, -1, -1), right.expand(2, -1, -1), out=pair)
    return out.copy_(pair[:1])


@lru_cache(64)
def _places(
    how: Convolution, shape: tuple[int, ...], sizes: tuple[int, ...], device: torch.device
) -> Tensor:
    """Where the numbers of all windows of a record lie in its flat memory, in the order of
    `patches`. Public.
    """
    numbers = torch.arange(math.prod(shape), device=device).view(1, *shape)
    return how._windows_of(numbers, sizes).reshape(-1)  # noqa: SLF001  (the same module)


def _weight_shape(owner: str, shape: Sequence[int]) -> tuple[tuple[int, ...], int]:
    """The shape as whole numbers, and the number of axes over which the kernel slides."""
    sizes = tuple(check.whole(owner, "weight_shape", size, least=1) for size in shape)
    if not 3 <= len(sizes) <= 2 + _MOST_AXES:
        raise ParameterError(
            owner=owner, name="weight_shape", expected="of 3, 4 or 5 axes", got=repr(sizes)
        )
    return sizes, len(sizes) - 2


def _per_axis(name: str, size: Size, axes: int, *, least: int) -> tuple[int, ...]:
    """One number per axis; a single one counts for all, as in torch."""
    sizes = tuple(size) if isinstance(size, Sequence) else (size,)
    numbers = tuple(check.whole("Convolution", name, number, least=least) for number in sizes)
    if len(numbers) not in (1, axes):
        raise ParameterError(
            owner="Convolution", name=name, expected=f"one number or {axes}", got=repr(numbers)
        )
    return numbers * axes if len(numbers) == 1 else numbers


def _groups(groups: int, shape: tuple[int, ...]) -> int:
    number = check.whole("Convolution", "groups", groups, least=1)
    if shape[0] % number:
        raise ParameterError(
            owner="Convolution", name="groups", expected=f"a divisor of {shape[0]}", got=str(number)
        )
    return number


def _checked(weights: Tensor, x: Tensor) -> Tensor:
    if weights.shape != x.shape[:1] or weights.dtype != x.dtype:
        got = f"{weights.ndim} axes, {weights.dtype}, or another number of records"
        raise ParameterError(
            owner="Convolution", name="weights", expected=f"one {x.dtype} per record", got=got
        )
    return weights.detach()


def _without_zeros(rows: Tensor, weights: Tensor) -> Tensor:
    """The rows, with zeros where the weight is zero: zero times infinity is no zero."""
    dropped = weights == 0
    if not bool(dropped.any()):
        return rows
    return rows.masked_fill(dropped.view(-1, *(1,) * (rows.ndim - 1)), 0.0)
