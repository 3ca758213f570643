"""Tables: embedding, embedding_bag, weight[ids]. Repeated rows are merged before the norm; never
one-hot.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from discreet.training.factors.factors import Factor, Rows, wide
from discreet.training.rules.call import Call
from discreet.training.rules.copies import one_copy_each
from discreet.training.separation.states import OneByOne

__all__ = ["embedding", "embedding_bag", "getitem"]


def embedding(call: Call) -> Tensor:
    """Rows of a table, looked up by the records' own ids."""
    weight, ids, padding = (
        call.get(0, "weight"),
        call.get(1, "indices"),
        call.get(2, "padding_idx", -1),
    )
    if call.get(3, "scale_grad_by_freq", default=False) or call.value(weight) is None:
        raise OneByOne(
            "an embedding that scales gradients by how often a row occurs among all records"
        )
    y = torch.embedding(call.plain(weight), ids)
    return _looked_up(call, weight, ids, y, padding)


def getitem(call: Call) -> Any:
    """weight[ids], for one tensor of ids."""
    weight, ids = call.args
    value = call.value(weight)
    if (
        value is None
        or not isinstance(ids, Tensor)
        or ids.dtype not in (torch.int64, torch.int32)
        or weight.ndim != 2
    ):
        return one_copy_each(call)
    ids = torch.where(ids < 0, ids + weight.shape[0], ids)
    y = call.plain(weight)[ids]
    return _looked_up(call, weight, call.args[1], y, -1)


def _looked_up(call: Call, weight: Tensor, ids: Tensor, y: Tensor, padding: int) -> Tensor:
    places = call.rows(ids).reshape(call.m, -1 if call.m else 0).long()
    places = torch.where(places < 0, places + weight.shape[0], places)
    if padding >= 0:
        places = torch.where(places == padding, -1, places)

    def make(gradient: Tensor) -> Factor:
        return Rows(
            places,
            wide(call.rows(gradient, like=ids)).reshape(*places.shape, weight.shape[1]),
            tuple(weight.shape),
        )

    return call.tap(y, (call.value(weight), make))


def embedding_bag(call: Call) -> Any:
    """Sums and means of rows, one bag for each record."""
    weight, ids = call.get(0, "weight"), call.get(1, "indices")
    offsets, mode = call.get(2, "offsets"), call.get(4, "mode", 0)
    own, padding = call.get(6, "per_sample_weights"), call.get(8, "padding_idx")
    value = call.value(weight)
    flat = call.axes.get(id(ids))
    if value is None or mode not in (0, 1) or call.value(own) is not None or flat is None:
        raise OneByOne(
            "an embedding bag of another kind than sums and means of the records' own rows"
        )
    if call.get(3, "scale_grad_by_freq", default=False) or call.get(
        7, "include_last_offset", default=False
    ):
        raise OneByOne(
            "an embedding bag with gradients scaled by frequency, or with one offset more than bags"
        )
    in_order = call.axes.get(id(offsets)) is None and flat.outer == 1
    if not in_order or offsets.shape[0] != call.m or (own is not None and own.requires_grad):
        raise OneByOne("an embedding bag whose bags are not the records")
    y, *rest = torch.embedding_bag(
        call.plain(weight), ids, offsets, False, mode, False, own, False, padding
    )
    return (call.tap(y, (value, _bags(call, weight, (ids, offsets, own), mode, padding))), *rest)


def _bags(
    call: Call,
    weight: Tensor,
    where: tuple[Tensor, Tensor, Tensor | None],
    mode: int,
    padding: int | None,
) -> Any:
    ids, offsets, own = where
    ends = torch.cat([offsets[1:], offsets.new_tensor([ids.shape[0]])])
    sizes = ends - offsets
    longest = int(sizes.max()) if call.m else 0
    place = offsets.unsqueeze(1) + torch.arange(longest, device=ids.device)
    present = place < ends.unsqueeze(1)
    index = place.clamp(max=max(0, ids.shape[0] - 1))
    places = torch.where(present, ids[index].long(), -1)
    if padding is not None:
        places = torch.where(places == padding % weight.shape[0], -1, places)
    scale = torch.ones_like(places, dtype=weight.dtype) if own is None else own[index]
    if mode == 1:
        scale = scale / (places >= 0).sum(1, keepdim=True).clamp(min=1)

    def make(gradient: Tensor) -> Factor:
        b_mTE = wide(gradient).unsqueeze(1) * scale.to(wide(gradient).dtype).unsqueeze(2)
        return Rows(places, b_mTE, tuple(weight.shape))

    return make
