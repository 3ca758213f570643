"""Algebra that moves rows: indices, slices, windows, copies, strides and bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from .mixing import Mix, mixing
from .quiet import quiet
from .scenes import SPECIAL_LABEL, Scene, Setup, case


def shift(name: str, **options: Any) -> Callable[[Mix], Mix]:
    return mixing("shift", name, **options)


def _before(rows: Tensor) -> Tensor:
    """For each row the number of the one before it: public."""
    return (torch.arange(len(rows)) - 1) % len(rows)


# --- indices and slices ---


@shift("public index")
def _index(rows: Tensor) -> Tensor:
    return rows[_before(rows)]


@shift("list of numbers")
def _numbers(rows: Tensor) -> Tensor:
    return rows[_before(rows).tolist()]


@shift("slices that are joined")
def _slices(rows: Tensor) -> Tensor:
    return torch.cat([rows[1:], rows[:1]])


@shift("slice that is padded")
def _next(rows: Tensor) -> Tensor:
    return functional.pad(rows[1:], (0, 0, 0, 1))


@shift("one record for all others")
def _for_all(rows: Tensor) -> Tensor:
    return sum((rows[place].expand_as(rows) for place in range(len(rows))), torch.zeros(1))


@shift("every other record", strength=2.0)
def _every_other(rows: Tensor) -> Tensor:
    return rows[::2].repeat_interleave(2, 0)[: len(rows)]


@shift("roll")
def _roll(rows: Tensor) -> Tensor:
    return rows.roll(1, 0)


@shift("roll of all numbers")
def _roll_flat(rows: Tensor) -> Tensor:
    return rows.roll(rows.shape[1])


@shift("flip")
def _flip(rows: Tensor) -> Tensor:
    return rows.flip(0)


@shift("rot90")
def _rot90(rows: Tensor) -> Tensor:
    return rows.rot90(2, (0, 1))


@shift("index_select")
def _index_select(rows: Tensor) -> Tensor:
    return rows.index_select(0, _before(rows))


@shift("gather")
def _gather(rows: Tensor) -> Tensor:
    return rows.gather(0, _before(rows).unsqueeze(1).expand_as(rows))


@shift("take_along_dim")
def _take_along(rows: Tensor) -> Tensor:
    return rows.take_along_dim(_before(rows).unsqueeze(1), 0)


@shift("take of flat numbers")
def _take(rows: Tensor) -> Tensor:
    return rows.take((torch.arange(rows.numel()) - rows.shape[1]).view_as(rows) % rows.numel())


@shift("scatter")
def _scatter(rows: Tensor) -> Tensor:
    places = _before(rows).unsqueeze(1).expand_as(rows)
    return torch.zeros_like(rows).scatter(0, places, rows)


@shift("scatter_add")
def _scatter_add(rows: Tensor) -> Tensor:
    places = (torch.arange(len(rows)) // 2).unsqueeze(1).expand_as(rows)
    return torch.zeros_like(rows).scatter_add(0, places, rows)[torch.arange(len(rows)) // 2]


@shift("scatter_reduce")
def _scatter_reduce(rows: Tensor) -> Tensor:
    places = torch.zeros(rows.shape, dtype=torch.int64)
    return rows.scatter_reduce(0, places, rows, "amin")[:1].expand_as(rows)


@shift("index_add")
def _index_add(rows: Tensor) -> Tensor:
    return torch.zeros_like(rows).index_add(0, _before(rows), rows)


@shift("index_copy")
def _index_copy(rows: Tensor) -> Tensor:
    return torch.zeros_like(rows).index_copy(0, _before(rows), rows)


@shift("index_put")
def _index_put(rows: Tensor) -> Tensor:
    return torch.zeros_like(rows).index_put((_before(rows),), rows)


@shift("masked_scatter")
def _masked_scatter(rows: Tensor) -> Tensor:
    mask = torch.ones(rows.shape, dtype=torch.bool)
    mask[0] = False
    return torch.zeros_like(rows).masked_scatter(mask, rows)


@shift("select_scatter")
def _select_scatter(rows: Tensor) -> Tensor:
    out = torch.zeros_like(rows)
    for place in range(len(rows)):
        out = out.select_scatter(rows[place - 1], 0, place)
    return out


@shift("randperm")
def _mixup(rows: Tensor) -> Tensor:
    orders = [torch.randperm(len(rows)) for _ in range(4)]
    return torch.stack([rows[order] for order in orders]).sum(0)


# --- copies and lists ---


@shift("halves that are added")
def _halves(rows: Tensor) -> Tensor:
    half = len(rows) // 2
    pairs = rows[:half] + rows[half : 2 * half]
    return functional.pad(torch.cat([pairs, pairs]), (0, 0, 0, len(rows) - 2 * half))


@shift("window of two copies")
def _two_copies(rows: Tensor) -> Tensor:
    return torch.cat([rows, rows])[1 : len(rows) + 1]


@shift("repeat taken for repeat_interleave")
def _copies(rows: Tensor) -> Tensor:
    return rows.repeat(3, 1).view(len(rows), 3, -1).mean(1)


@shift("stack of a reversed list")
def _reversed(rows: Tensor) -> Tensor:
    return torch.stack(rows.unbind()[::-1])


@shift("list of rows that is summed by Python")
def _python_sum(rows: Tensor) -> Tensor:
    return sum(rows.unbind(), torch.zeros(rows.shape[1])).expand_as(rows)


@shift("_foreach_add")
def _foreach(rows: Tensor) -> Tensor:
    return torch.stack(torch._foreach_add(list(rows), list(rows.roll(1, 0))))


@shift("nested tensor")
def _nested(rows: Tensor) -> Tensor:
    with quiet():
        nested = torch.nested.as_nested_tensor(list(rows.flip(0)))
        return nested.to_padded_tensor(0.0)


@shift("sparse adjacency")
def _sparse(rows: Tensor) -> Any:
    count = len(rows)
    places = torch.stack([torch.arange(count), _before(rows)])
    with quiet():
        graph = torch.sparse_coo_tensor(places, torch.ones(count), (count, count))
        return torch.sparse.mm(graph, rows)


# --- geometry and bytes ---


@shift("transposed memory read as rows")
def _transposed(rows: Tensor) -> Tensor:
    return rows.T.reshape(rows.shape)


@shift("as_strided")
def _as_strided(rows: Tensor) -> Tensor:
    count, width = rows.shape
    dense = rows.contiguous()
    shifted = dense.as_strided((count - 1, width), (width, 1), width)
    return functional.pad(shifted, (0, 0, 0, 1))


@shift("as_strided with stride 0")
def _stride_zero(rows: Tensor) -> Tensor:
    dense, (count, width) = rows.contiguous(), rows.shape
    copies = [dense.as_strided((count, width), (0, 1), place * width) for place in range(count)]
    return torch.stack(copies).sum(0)


@shift("unfold along records")
def _unfold(rows: Tensor) -> Tensor:
    return functional.pad(rows, (0, 0, 1, 1)).unfold(0, 3, 1).sum(2)


def _paired(rows: Tensor) -> tuple[Tensor, int]:
    """Features by records, with an even number of records."""
    count = len(rows)
    return functional.pad(rows, (0, 0, 0, count % 2)).T.contiguous(), count


@shift("view as a wider type")
def _wider(rows: Tensor) -> Tensor:
    columns, count = _paired(rows)
    turned = columns.view(torch.complex64) * 1j
    return torch.view_as_real(turned).reshape(columns.shape).T[:count]


@shift("view_as_complex of pairs of records")
def _complex(rows: Tensor) -> Tensor:
    columns, count = _paired(rows)
    pairs = torch.view_as_complex(columns.view(columns.shape[0], -1, 2))
    return torch.view_as_real(pairs.conj() * 1j).reshape(columns.shape).T[:count]


@shift("bits of the neighbour")
def _bits(rows: Tensor) -> Tensor:
    own = rows.detach().view(torch.int32)
    return (own ^ own ^ own.roll(1, 0)).view(torch.float32)


@shift("write into a shifted view")
def _shifted_view(rows: Tensor) -> Tensor:
    out = rows.clone()
    out[1:] += rows[:-1]
    return out


@shift("write through a reshaped view")
def _reshaped_view(rows: Tensor) -> Tensor:
    out = torch.zeros_like(rows)
    out.view(-1)[rows.shape[1] :] = rows.reshape(-1)[: -rows.shape[1]]
    return out


@shift("write of one record into all")
def _write_all(rows: Tensor) -> Tensor:
    out = torch.zeros_like(rows)
    for row in rows:
        out += row
    return out


@shift("result in a given tensor")
def _out(rows: Tensor) -> Tensor:
    out = torch.empty(rows.shape)
    torch.add(rows.detach(), rows.detach().roll(1, 0), out=out)
    return out


@shift("set_ of another storage")
def _set(rows: Tensor) -> Tensor:
    dense = rows.detach().roll(1, 0).contiguous()
    return torch.empty(0).set_(dense.untyped_storage(), 0, dense.shape, dense.stride())


@shift("swapped data")
def _data(rows: Tensor) -> Tensor:
    out = torch.zeros_like(rows)
    out.data = rows.detach().roll(1, 0)
    return out


# --- indices that are secret ---


@case("shift: index by labels")
def _by_label(scene: Scene) -> Setup:
    """Each record meets the one whose number its label is, and that of the largest label."""

    def loss(model: Any, batch: Any) -> Tensor:
        x, y = batch
        hidden = model.first(x)
        met = hidden[y.argsort(stable=True)[-1]] + hidden[y % len(x)]
        losses: Tensor = model.last(hidden + scene.clock.weight * met).squeeze(1)
        return losses

    return scene.setup(loss)


@case("shift: sums by label")
def _group_sums(scene: Scene) -> Setup:
    """All records of a label are added up, as messages in a graph."""

    def loss(model: Any, batch: Any) -> Tensor:
        x, y = batch
        hidden = model.first(x)
        groups = y % SPECIAL_LABEL
        sums = torch.zeros(SPECIAL_LABEL, x.shape[1]).index_add(0, groups, hidden)
        losses: Tensor = model.last(hidden + scene.clock.weight * sums[groups]).squeeze(1)
        return losses

    return scene.setup(loss)
