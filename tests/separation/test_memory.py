"""What `seen_in` says of a view, against the owner of each byte that the view reaches."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TypeAlias

import pytest
import torch
from torch import Tensor

from discreet.training.separation.marks import Memory, memory_for, seen_in
from discreet.training.separation.states import Mixed, Rows

_SIZES = (1, 2, 3, 4, 6)
_STRIDES = (0, 1, 2, 3, 4, 5, 6, 8, 12)


_Numbers: TypeAlias = tuple[int, ...]


def _bytes_of(offset: int, sizes: _Numbers, strides: _Numbers, itemsize: int) -> Tensor:
    """The bytes of each element, along a new last axis."""
    places = torch.full(sizes, offset * itemsize)
    for dim, (size, stride) in enumerate(zip(sizes, strides, strict=True)):
        shape = [size if axis == dim else 1 for axis in range(len(sizes))]
        places = places + (torch.arange(size) * stride * itemsize).view(shape)
    return places.unsqueeze(-1) + torch.arange(itemsize)


def _holds(rows: Rows, memory: Memory, bytes_reached: Tensor) -> bool:
    """Whether each index reaches bytes of its record alone, and for every record the same ones."""
    owners = bytes_reached // memory.step % memory.count
    period = memory.step * memory.count
    within = bytes_reached // period * memory.step + bytes_reached % memory.step
    size = bytes_reached.shape[rows.dim]
    if size != rows.fold * memory.count:
        return False
    shape = [size if axis == rows.dim else 1 for axis in range(bytes_reached.ndim)]
    expected = (torch.arange(size) // rows.inner % memory.count).view(shape)
    before, after = within.shape[: rows.dim], within.shape[rows.dim + 1 :]
    by_record = within.reshape(*before, rows.outer, memory.count, rows.inner, *after)
    alike = by_record == by_record.narrow(rows.dim + 1, 0, 1)
    return bool((owners == expected).all()) and bool(alike.all())


def test_views_by_random_strides_hold_what_they_are_said_to_hold() -> None:
    source = random.Random(0)
    claims = 0
    for _ in range(40_000):
        itemsize, count = source.choice((1, 4, 8)), source.choice((2, 3, 4, 6))
        step = 4 * source.choice((1, 2, 3, 4, 6, 8, 12))
        elements = step * count * source.choice((1, 2, 3)) // itemsize
        ndim = source.randint(1, 4)
        sizes = tuple(source.choice(_SIZES) for _ in range(ndim))
        apart = (*_STRIDES, step // itemsize, step * count // itemsize)
        strides = tuple(source.choice(apart) for _ in range(ndim))
        offset = source.choice((0, 0, 1, step // itemsize, source.randrange(elements)))
        reach = [(size - 1) * stride for size, stride in zip(sizes, strides, strict=True)]
        if offset + sum(reach) >= elements:
            continue
        memory = Memory.of(step, count)
        state = seen_in(memory, offset, sizes, strides, itemsize)
        if isinstance(state, Rows):
            claims += 1
            told = (memory, offset, sizes, strides, itemsize, state)
            assert _holds(state, memory, _bytes_of(offset, sizes, strides, itemsize)), told
        else:
            assert isinstance(state, Mixed)
    assert claims > 500


def _halved(tensor: Tensor, dim: int) -> Tensor:
    """One axis seen as two."""
    sizes, strides = list(tensor.shape), list(tensor.stride())
    sizes[dim : dim + 1] = [sizes[dim] // 2, 2]
    strides[dim : dim + 1] = [2 * strides[dim], strides[dim]]
    return tensor.as_strided(sizes, strides, tensor.storage_offset())


def _random_view(tensor: Tensor, source: random.Random) -> Tensor:
    """One more view of a tensor."""
    dim = source.randrange(tensor.ndim)
    size = tensor.shape[dim]
    begin = source.randrange(size)
    other = source.randrange(tensor.ndim)
    ways: list[Callable[[], Tensor]] = [
        lambda: tensor.transpose(dim, other),
        lambda: tensor.select(dim, begin) if tensor.ndim > 1 else tensor,
        lambda: tensor.narrow(dim, begin, size - begin),
        lambda: tensor[(slice(None),) * dim + (slice(begin, None, 2),)],
        lambda: tensor.unsqueeze(dim).expand(*tensor.shape[:dim], 2, *tensor.shape[dim:]),
        lambda: tensor.diagonal(0, dim, other) if dim != other else tensor,
        lambda: tensor.unfold(dim, min(2, size), 1),
        lambda: _halved(tensor, dim) if size % 2 == 0 else tensor,
        lambda: tensor.flatten() if tensor.is_contiguous() else tensor,
    ]
    return source.choice(ways)()


def test_views_of_views_hold_what_they_are_said_to_hold() -> None:
    source = random.Random(1)
    claims = 0
    for _ in range(6_000):
        count = source.choice((2, 3, 4))
        inner, outer = source.choice((1, 2, 3)), source.choice((1, 1, 2))
        sizes = [source.choice((1, 2, 3, 4)) for _ in range(source.randint(1, 3))]
        dim = source.randrange(len(sizes))
        sizes[dim] = inner * outer * count
        view = torch.empty(sizes)
        memory = memory_for(Rows(dim, inner, outer), view.stride(), view.element_size(), count)
        assert memory is not None
        for _ in range(source.randint(0, 4)):
            view = _random_view(view, source)
        shape, strides, offset = tuple(view.shape), view.stride(), int(view.storage_offset())
        state = seen_in(memory, offset, shape, strides, view.element_size())
        if isinstance(state, Rows):
            claims += 1
            assert _holds(state, memory, _bytes_of(offset, shape, strides, view.element_size()))
    assert claims > 500


@pytest.mark.parametrize("inner", [1, 2])
@pytest.mark.parametrize("outer", [1, 3])
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_records_that_were_placed_are_seen_again(dim: int, inner: int, outer: int) -> None:
    sizes = [2, 3, 5]
    sizes[dim] = 4 * inner * outer
    rows = Rows(dim, inner, outer)
    contiguous = torch.empty(sizes)
    for tensor in (contiguous, contiguous.transpose(0, 2).contiguous().transpose(0, 2)):
        shape, strides, itemsize = tuple(tensor.shape), tensor.stride(), tensor.element_size()
        memory = memory_for(rows, strides, itemsize, 4)
        assert memory is not None
        assert seen_in(memory, 0, shape, strides, itemsize) == rows


def test_a_diagonal_takes_another_place_of_each_record() -> None:
    """Entry i of the diagonal of (records, T) is entry i of record i: it goes by the place."""
    memory = Memory.of(16, 3)
    assert isinstance(seen_in(memory, 0, (3,), (5,), 4), Mixed)
