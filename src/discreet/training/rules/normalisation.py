"""Layers that normalise within a record: layer, RMS, group and instance normalisation; batch
normalisation with fixed statistics.

All of them are y = xhat * w + c, number by number, with xhat normalised from the record alone. With
b the gradient of the loss by y, a record's own gradients are

    dw = sum_t b_t * xhat_t        dc = sum_t b_t

over the positions t that share a scale: positions of layer and RMS normalisation, places of a
channel in the others.

Legend: m records, C channels, S places of a channel.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from discreet.training.factors.factors import Dense, Factor, wide
from discreet.training.rules.call import Call, Rule
from discreet.training.separation.states import OneByOne, Rows

__all__ = ["RULES", "channel_norm", "group_norm", "layer_norm", "rms_norm"]


def layer_norm(call: Call) -> Tensor:
    """y = xhat * w + c over the last axes, xhat = (x - mean) / std: dw = sum_t b_t * xhat_t."""
    x, shape, weight, bias = call.get_all("input", "normalized_shape", "weight", "bias")
    _check_axis(call, x, shape, "layer")
    y, mean, scale = torch.native_layer_norm(
        x, list(shape), call.plain(weight), call.plain(bias), call.get(4, "eps", 1e-5)
    )
    flat = x.detach()

    # xhat is computed again from the statistics that torch returns: it is not stored.
    def of_weight(gradient: Tensor) -> Factor:
        normal = (wide(flat) - mean) * scale
        return _over_positions(call, x, normal.mul_(wide(gradient)), weight)

    def of_bias(gradient: Tensor) -> Factor:
        return _over_positions(call, x, wide(gradient), bias)

    return call.tap(y, (call.value(weight), of_weight), (call.value(bias), of_bias))


def rms_norm(call: Call) -> Tensor:
    """y = xhat * w over the last axes, xhat = x / rms(x): dw = sum_t b_t * xhat_t."""
    x, shape, weight, epsilon = call.get_all("input", "normalized_shape", "weight", "eps")
    _check_axis(call, x, shape, "RMS")
    y = torch.rms_norm(x, shape, call.plain(weight), epsilon)
    flat = x.detach()

    def of_weight(gradient: Tensor) -> Factor:
        # torch returns no statistics here: they are computed again.
        rows = wide(flat)
        least = torch.finfo(flat.dtype).eps if epsilon is None else epsilon
        mean_squares = rows.square().mean(tuple(range(-len(shape), 0)), keepdim=True)
        normal = rows * torch.rsqrt(mean_squares + least)

        return _over_positions(call, x, normal.mul_(wide(gradient)), weight)

    return call.tap(y, (call.value(weight), of_weight))


def _check_axis(call: Call, x: Tensor, shape: Any, kind: str) -> None:
    axis = call.axes[id(x)]
    if axis is None or not 0 <= axis.dim < x.ndim - len(shape):
        raise OneByOne(f"{kind} normalisation over the record axis")


def _over_positions(call: Call, x: Tensor, values: Tensor, weight: Tensor) -> Factor:
    # The sum over t: of each record the numbers that share an entry of the weight.
    rows, shape = call.rows(values, like=x), tuple(weight.shape)
    positions = rows.numel() // max(1, call.m * math.prod(shape))
    return Dense(rows.reshape(call.m, positions, *shape).sum(1))


def group_norm(call: Call) -> Tensor:
    """y = xhat * w + c, one w and c for each channel: dw_C = sum_S b_CS xhat_CS, dc_C = sum_S b_CS.

    Both come from one call of torch's own backward, in which the records are folded into the
    channels: what it adds up over a batch of one are then the sums of single records.
    """
    x, groups, weight, bias = call.get_all("input", "num_groups", "weight", "bias")
    if call.axes[id(x)] != Rows(0):
        raise OneByOne("group normalisation of something else than (records, channels, ...)")

    m, channels = x.shape[:2]
    places, epsilon = x.shape[2:].numel(), call.get(4, "eps", 1e-5)
    sizes = (m, channels, places, groups)
    y, mean, scale = torch.native_group_norm(
        x.contiguous(), call.plain(weight), call.plain(bias), *sizes, epsilon
    )
    flat = x.detach()
    sums: list[Tensor] = []  # dw and dc, (m, C) each

    def summed(gradient: Tensor, which: int) -> Factor:
        # torch's function does not take an empty batch.
        if not m:
            return Dense(wide(flat.new_zeros(0, channels)))

        if not sums:
            _, *sums[:] = torch.ops.aten.native_group_norm_backward(
                wide(gradient).contiguous().view(1, m * channels, places),
                wide(flat).reshape(1, m * channels, places),
                wide(mean).view(1, -1),
                wide(scale).view(1, -1),
                wide(flat).new_ones(m * channels),
                1,
                m * channels,
                places,
                m * groups,
                [False, True, True],
            )

        return Dense(wide(sums[which].view(m, channels)))

    return call.tap(
        y,
        (call.value(weight), lambda g: summed(g, 0)),
        (call.value(bias), lambda g: summed(g, 1)),
    )


def channel_norm(call: Call) -> Tensor:
    """Instance or batch normalisation, then xhat * w + c with one w and c for each channel.

    Each record has its own copy of w and c, whose gradients are dw = sum_S b_S xhat_S and
    dc = sum_S b_S. Batch normalisation has fixed statistics here: with those of the batch records
    are coupled, and the proof has refused the pass before.
    """
    x, weight, bias = call.get_all("input", "weight", "bias")
    if call.axes[id(x)] != Rows(0):
        raise OneByOne("normalisation of something else than (records, channels, ...)")

    normal: Tensor = call.func(x, None, None, *call.args[3:])
    ones = (1,) * (normal.ndim - 2)

    for tensor, join in ((weight, torch.mul), (bias, torch.add)):
        if tensor is None:
            continue

        # A frozen scale is the same for all records, and needs no copies.
        value, shape = call.value(tensor), (tensor.shape[0], *ones)
        copies = tensor.view(1, *shape) if value is None else call.copies(value, 0, shape)
        normal = join(normal, copies)

    return normal


RULES: dict[str, Rule] = {
    "batch_norm": channel_norm,
    "group_norm": group_norm,
    "instance_norm": channel_norm,
    "layer_norm": layer_norm,
    "rms_norm": rms_norm,
}
