"""Tables: embedding, embedding_bag, weight[ids].

For rows y_t = W[ids_t] with b_t the gradient of the loss by y_t, a record's gradient of the table
is

    dW = sum_t e_(ids_t) (s_t b_t)^T

with e_k unit vectors, and s_t the share of a row in a bag, 1 where there are no bags. It is zero
but for the rows that the record looked up, and is held as `Lookups`: ids and b_t, never one-hot
vectors. A row that a record looks up several times is merged before its norm is taken.

Legend: m records, T positions, E width of a table.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from discreet.training.factors.factors import Factor, Lookups, wide
from discreet.training.rules.call import Call, Make, Rule
from discreet.training.rules.copies import one_copy_each
from discreet.training.separation.states import OneByOne

__all__ = ["RULES", "embedding", "embedding_bag", "getitem"]


def embedding(call: Call) -> Tensor:
    """Rows of a table, looked up by the records' own ids: dW[k] = sum of b_t over ids_t = k."""
    weight, ids = call.get_all("weight", "indices")
    if call.get(3, "scale_grad_by_freq", default=False) or call.value(weight) is None:
        raise OneByOne(
            "an embedding that scales gradients by how often a row occurs among all records"
        )

    y = call.looked_up(weight, ids)

    return _looked_up(call, weight, ids, y, call.get(2, "padding_idx", -1))


def getitem(call: Call) -> Any:
    """weight[ids], for one tensor of ids: dW as for `embedding`."""
    weight, ids = call.args
    # A mask, a slice or a tuple of indices is something else, and so is a table of more axes.
    has_ids = isinstance(ids, Tensor) and ids.dtype in (torch.int64, torch.int32)
    if not has_ids or call.value(weight) is None or weight.ndim != 2:
        return one_copy_each(call)

    return _looked_up(call, weight, ids, call.plain(weight)[ids], -1)


def _looked_up(call: Call, weight: Tensor, ids: Tensor, y: Tensor, padding: int) -> Tensor:
    """Tap rows `y` of a table; the row `padding` gets no gradient, if it is not negative."""
    ids_mT = call.rows(ids).reshape(call.m, -1 if call.m else 0).long()
    # Indexing counts negative ids from the end; from here on they say that a row counts nowhere.
    ids_mT = torch.where(ids_mT < 0, ids_mT + weight.shape[0], ids_mT)
    if padding >= 0:
        ids_mT = torch.where(ids_mT == padding, -1, ids_mT)

    def make(gradient: Tensor) -> Factor:
        b_mTE = wide(call.rows(gradient, like=ids)).reshape(*ids_mT.shape, weight.shape[1])
        return Lookups(ids_mT, b_mTE, tuple(weight.shape))

    return call.tap(y, (call.value(weight), make))


def embedding_bag(call: Call) -> Any:
    """Sums and means of rows, one bag for each record: dW[k] = sum of s_t b over ids_t = k.

    b is the gradient by the record's bag; s_t is the row's own weight, 1 if it has none, over the
    number of rows for a mean.
    """
    weight, ids, offsets, by_frequency, mode, _, shares, one_more, padding = call.get_all(
        "weight", "indices", "offsets", "scale_grad_by_freq", "mode", "sparse",
        "per_sample_weights", "include_last_offset", "padding_idx",
    )  # fmt: skip
    value, rows, mode = call.value(weight), call.axes.get(id(ids)), mode or 0
    is_supported = mode in (0, 1) and call.value(shares) is None
    if value is None or rows is None or not is_supported:
        raise OneByOne(
            "an embedding bag of another kind than sums and means of the records' own rows"
        )

    if by_frequency or one_more:
        raise OneByOne(
            "an embedding bag with gradients scaled by frequency, or with one offset more than bags"
        )

    # The ids of all records stand one after the other, and offsets say where each begins.
    are_records = (
        call.axes.get(id(offsets)) is None,
        rows.outer == 1,
        offsets.shape[0] == call.m,
        shares is None or not shares.requires_grad,
    )
    if not all(are_records):
        raise OneByOne("an embedding bag whose bags are not the records")

    y, *details = torch.embedding_bag(
        call.plain(weight), ids, offsets, False, mode, False, shares, False, padding
    )
    make = _bags(weight, (ids, offsets, shares), mode, padding)

    return (call.tap(y, (value, make)), *details)


def _bags(
    weight: Tensor,
    where: tuple[Tensor, Tensor, Tensor | None],
    mode: int,
    padding: int | None,
) -> Make:
    """What makes the factor of a table from the gradient of one bag for each record.

    Args:
        weight: the table, (rows, E).
        where: ids of all records one after the other, where each record's begin, and shares.
        mode: 0 for sums, 1 for means.
        padding: a row that counts nowhere, or None.
    """
    ids, offsets, shares = where
    ends = torch.cat([offsets[1:], offsets.new_tensor([ids.shape[0]])])
    longest = int((ends - offsets).max()) if len(offsets) else 0
    # Bags of different lengths as one matrix, (m, T): what is beyond the end of a bag has id -1.
    place_mT = offsets.unsqueeze(1) + torch.arange(longest, device=ids.device)
    index_mT = place_mT.clamp(max=max(0, ids.shape[0] - 1))
    ids_mT = torch.where(place_mT < ends.unsqueeze(1), ids[index_mT].long(), -1)
    if padding is not None:
        ids_mT = torch.where(ids_mT == padding % weight.shape[0], -1, ids_mT)

    shares = torch.ones_like(ids, dtype=weight.dtype) if shares is None else shares
    share_mT = shares[index_mT]
    if mode == 1:
        # A mean is over the rows that count.
        share_mT = share_mT / (ids_mT >= 0).sum(1, keepdim=True).clamp(min=1)

    def make(gradient: Tensor) -> Factor:
        b_mE = wide(gradient)
        b_mTE = b_mE.unsqueeze(1) * share_mT.to(b_mE.dtype).unsqueeze(2)
        return Lookups(ids_mT, b_mTE, tuple(weight.shape))

    return make


RULES: dict[str, Rule] = {
    "__getitem__": getitem,
    "embedding": embedding,
    "embedding_bag": embedding_bag,
}
