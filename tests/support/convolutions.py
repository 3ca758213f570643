"""Convolutions as users call them, with data, and the truth by a loop over batches of one."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from discreet.training.rules.convolution.geometry import Convolution

PLAIN: dict[int, Callable[..., Tensor]] = {
    1: functional.conv1d,
    2: functional.conv2d,
    3: functional.conv3d,
}
TRANSPOSED: dict[int, Callable[..., Tensor]] = {
    1: functional.conv_transpose1d,
    2: functional.conv_transpose2d,
    3: functional.conv_transpose3d,
}
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}


@dataclass(frozen=True)
class Case:
    """A convolution as a user calls it, with data."""

    arguments: dict[str, Any]
    transposed: bool
    weight: Tensor
    x: Tensor
    g: Tensor

    @property
    def how(self) -> Convolution:
        """What is tested."""
        make = Convolution.of_transposed if self.transposed else Convolution.of
        return make(self.weight.shape, **self.arguments)

    def run(self, x: Tensor, weight: Tensor) -> Tensor:
        """What the user calls."""
        call = (TRANSPOSED if self.transposed else PLAIN)[self.weight.ndim - 2]
        with (
            warnings.catch_warnings()
        ):  # torch warns once of the copy that "same" takes with an even kernel
            warnings.simplefilter("ignore", UserWarning)
            return call(x, weight, None, **self.arguments)

    def by_loop(self) -> Tensor:
        """The oracle: one record at a time, by autograd."""
        rows = []
        for i in range(len(self.x)):
            weight = self.weight.clone().requires_grad_()
            (row,) = torch.autograd.grad(
                self.run(self.x[i : i + 1], weight), weight, self.g[i : i + 1]
            )
            rows.append(row)
        return torch.stack(rows) if rows else self.weight.new_zeros((0, *self.weight.shape))


def per_axis(axes: int, least: int, most: int) -> st.SearchStrategy[int | tuple[int, ...]]:
    """One number, a single one in a tuple, or one per axis."""
    number = st.integers(least, most)
    return st.one_of(number, st.tuples(number), st.tuples(*[number] * axes))


def strided(draw: st.DrawFn, tensor: Tensor) -> Tensor:
    """The same numbers in another layout."""
    layout = draw(st.sampled_from(["as is", "last axis first", "every second", "expanded records"]))
    if layout == "last axis first":
        return tensor.transpose(1, -1).contiguous().transpose(1, -1)
    if layout == "every second":
        return torch.repeat_interleave(tensor, 2, dim=-1)[..., ::2]
    if layout == "expanded records" and len(tensor):
        return tensor[:1].expand_as(tensor)
    return tensor


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Any geometry, layout and dtype; none to seven records."""
    axes = draw(st.sampled_from([1, 1, 2, 2, 3]))
    reverse = draw(st.booleans())
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    first, second = (
        groups * draw(st.integers(1, 3)),
        draw(st.sampled_from([1, 1, 2, 3])),
    )  # with 1 also depthwise
    kernel = draw(st.tuples(*[st.integers(1, 4)] * axes))
    dtype = draw(st.sampled_from([torch.float32, torch.float64]))
    arguments: dict[str, Any] = {"groups": groups, "dilation": draw(per_axis(axes, 1, 2))}
    if not reverse and draw(st.booleans()):
        arguments["padding"] = draw(st.sampled_from(["same", "valid"]))
        arguments["stride"] = 1 if arguments["padding"] == "same" else draw(per_axis(axes, 1, 3))
    else:
        arguments |= {"padding": draw(per_axis(axes, 0, 2)), "stride": draw(per_axis(axes, 1, 3))}
    wide = [(size - 1) * 2 + draw(st.integers(1, 5)) for size in kernel]
    if reverse:
        wide = [draw(st.integers(5, 7)) for _ in kernel]  # at least 5: padding cuts 2 off each side
        step = max_of(arguments["stride"], arguments["dilation"], axes)
        arguments["output_padding"] = draw(st.tuples(*[st.integers(0, most - 1) for most in step]))
    m = draw(st.sampled_from([0, 1, 2, 3, 7]))
    torch.manual_seed(draw(st.integers(0, 2**31)))
    weight = torch.randn(first, second, *kernel, dtype=dtype)
    x = strided(draw, torch.randn(m, first if reverse else second * groups, *wide, dtype=dtype))
    case = Case(arguments, reverse, weight, x, x)
    one = torch.zeros(1, *x.shape[1:], dtype=dtype)
    g = torch.randn(m, *case.run(one, weight).shape[1:], dtype=dtype)
    return replace(case, g=strided(draw, g))


def max_of(stride: int | tuple[int, ...], dilation: int | tuple[int, ...], axes: int) -> list[int]:
    """Output padding must be below the larger of stride and dilation."""
    both = [
        (size,) * axes if isinstance(size, int) else size * (axes // len(size))
        for size in (stride, dilation)
    ]
    return [max(pair) for pair in zip(*both, strict=True)]


def close(found: Tensor, truth: Tensor, terms: Tensor | None = None) -> None:
    """Equal up to rounding, relative to the largest number of the truth."""
    assert found.shape == truth.shape
    tolerance = TOLERANCE[truth.dtype]
    scale = float((truth if terms is None else terms).abs().max()) if truth.numel() else 1.0
    assert torch.allclose(
        found.to(truth.dtype), truth, rtol=tolerance, atol=tolerance * max(scale, 1e-3)
    ), (found, truth)
