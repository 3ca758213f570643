"""Layers that normalise within a record: layer, RMS, group and instance normalisation; batch
normalisation in eval mode.

Legend: m records, T positions, d width, C channels, S places of a channel.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from discreet.training.factors.factors import Dense, Factor, wide
from discreet.training.rules.call import Call
from discreet.training.separation.states import OneByOne

__all__ = ["batch_norm", "group_norm", "instance_norm", "layer_norm", "rms_norm"]


def layer_norm(call: Call) -> Tensor:
    """y = xhat * weight + bias over the last axes."""
    x, shape, weight, bias = (
        call.get(i, name) for i, name in enumerate(("input", "normalized_shape", "weight", "bias"))
    )
    epsilon = call.get(4, "eps", 1e-5)
    axis = call.axes[id(x)]
    if axis is None or not 0 <= axis.dim < x.ndim - len(shape):
        raise OneByOne("layer normalisation over the record axis")
    y, mean, scale = torch.native_layer_norm(
        x, list(shape), call.plain(weight), call.plain(bias), epsilon
    )
    flat = x.detach()

    def of_weight(gradient: Tensor) -> Factor:
        normal = (wide(flat) - mean) * scale
        return _over_positions(call, x, normal.mul_(wide(gradient)), tuple(weight.shape))

    def of_bias(gradient: Tensor) -> Factor:
        return _over_positions(call, x, wide(gradient), tuple(bias.shape))

    return call.tap(y, (call.value(weight), of_weight), (call.value(bias), of_bias))


def rms_norm(call: Call) -> Tensor:
    """y = x / rms(x) * weight over the last axes."""
    x, shape, weight, epsilon = (
        call.get(i, name) for i, name in enumerate(("input", "normalized_shape", "weight", "eps"))
    )
    axis = call.axes[id(x)]
    if axis is None or not 0 <= axis.dim < x.ndim - len(shape):
        raise OneByOne("RMS normalisation over the record axis")
    y = torch.rms_norm(x, shape, call.plain(weight), epsilon)
    flat = x.detach()

    def of_weight(gradient: Tensor) -> Factor:
        rows = wide(flat)
        least = torch.finfo(flat.dtype).eps if epsilon is None else epsilon
        normal = rows * torch.rsqrt(
            rows.square().mean(tuple(range(-len(shape), 0)), keepdim=True) + least
        )
        return _over_positions(call, x, normal.mul_(wide(gradient)), tuple(weight.shape))

    return call.tap(y, (call.value(weight), of_weight))


def _over_positions(call: Call, x: Tensor, values: Tensor, shape: tuple[int, ...]) -> Factor:
    rows = call.rows(values, like=x)
    return Dense(
        rows.reshape(call.m, rows.numel() // max(1, call.m * math.prod(shape)), *shape).sum(1)
    )


def group_norm(call: Call) -> Tensor:
    """y = xhat * weight + bias, one weight for each channel: the batch is folded into the groups of
    torch's own backward.
    """
    x, groups, weight, bias = (
        call.get(i, name) for i, name in enumerate(("input", "num_groups", "weight", "bias"))
    )
    axis = call.axes[id(x)]
    if axis is None or (axis.dim, axis.fold) != (0, 1):
        raise OneByOne("group normalisation of something else than (records, channels, ...)")
    m, channels = x.shape[:2]
    places = x.shape[2:].numel()
    y, mean, scale = torch.native_group_norm(
        x.contiguous(),
        call.plain(weight),
        call.plain(bias),
        m,
        channels,
        places,
        groups,
        call.get(4, "eps", 1e-5),
    )
    flat = x.detach()
    sums: list[tuple[Tensor, Tensor]] = []  # both gradients come from one backward

    def both(gradient: Tensor) -> tuple[Tensor, Tensor]:
        if not sums and m:
            found = torch.ops.aten.native_group_norm_backward(
                wide(gradient).contiguous().view(1, m * channels, places), wide(flat).reshape(1, m * channels, places),
                wide(mean).view(1, -1), wide(scale).view(1, -1), wide(flat).new_ones(m * channels),
                1, m * channels, places, m * groups, [False, True, True],
            )  # fmt: skip
            sums.append((found[1].view(m, channels), found[2].view(m, channels)))
        return sums[0] if m else (flat.new_zeros(0, channels), flat.new_zeros(0, channels))

    return call.tap(
        y,
        (call.value(weight), lambda g: Dense(wide(both(g)[0]))),
        (call.value(bias), lambda g: Dense(wide(both(g)[1]))),
    )


def instance_norm(call: Call) -> Tensor:
    """Normalised channel by channel, then scaled."""
    x, weight, bias = (call.get(i, name) for i, name in enumerate(("input", "weight", "bias")))
    if not call.get(5, "use_input_stats", default=True):
        return _scaled(call, torch.instance_norm(x, None, None, *call.args[3:]), weight, bias)
    y = torch.instance_norm(x, None, None, *call.args[3:])
    return _scaled(call, y, weight, bias)


def batch_norm(call: Call) -> Tensor:
    """With fixed statistics a scaled channel; with those of the batch, records are coupled, and the
    pass before has refused.
    """
    x, weight, bias = (call.get(i, name) for i, name in enumerate(("input", "weight", "bias")))
    return _scaled(call, torch.batch_norm(x, None, None, *call.args[3:]), weight, bias)


def _scaled(call: Call, normal: Tensor, weight: Any, bias: Any) -> Tensor:
    """normal * weight + bias, one for each channel of (records, channels, ...)."""
    axis = call.axes[id(call.get(0, "input"))]
    if axis is None or (axis.dim, axis.fold) != (0, 1):
        raise OneByOne("normalisation of something else than (records, channels, ...)")
    ones = (1,) * (normal.ndim - 2)
    for value, join in ((weight, torch.mul), (bias, torch.add)):
        if value is not None:
            known = call.value(value)
            shape = (value.shape[0], *ones)
            normal = join(
                normal, value.view(1, *shape) if known is None else call.copies(known, 0, shape)
            )
    return normal
