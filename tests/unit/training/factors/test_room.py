"""Memory for gradients of single records is used again, erased, and never twice at once."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from discreet.training.factors import room
from discreet.training.factors.room import KeptMemory, fresh

LIKE = torch.zeros(1)
SIZES = (2, room._LEAST // 8)  # of float32: the least that is kept


def filled(tensor: Tensor) -> int:
    """Fill a tensor with numbers; where it lies."""
    tensor.fill_(7.0)
    return tensor.data_ptr()


def test_memory_is_used_again_once_it_was_erased() -> None:
    memory = KeptMemory()
    first = filled(memory.take(LIKE, SIZES))
    memory.erase()
    again = memory.take(LIKE, (SIZES[1], 2))
    assert again.data_ptr() == first
    assert bool(again.isnan().all())


def test_whoever_holds_a_tensor_in_it_finds_nothing() -> None:
    memory = KeptMemory()
    taken = [memory.take(LIKE, SIZES) for _ in range(3)]
    for tensor in taken:
        tensor.fill_(7.0)
    memory.erase()
    assert all(bool(tensor.isnan().all()) for tensor in taken)


def test_no_memory_is_taken_twice_before_it_was_erased() -> None:
    memory = KeptMemory()
    for _ in range(3):
        taken = [memory.take(LIKE, SIZES) for _ in range(4)]
        assert len({tensor.data_ptr() for tensor in taken}) == 4
        memory.erase()


def test_memory_has_the_dtype_that_is_asked_for() -> None:
    memory = KeptMemory()
    memory.take(LIKE, SIZES)
    memory.erase()
    assert memory.take(LIKE.double(), SIZES).dtype == torch.float64


def test_what_a_pass_did_not_take_is_given_back() -> None:
    """Wrong: memory of every size that a pass ever had."""
    memory = KeptMemory()
    for size in range(1, 20):
        memory.take(LIKE, (size, *SIZES))
        memory.erase()
    assert memory._bytes == 19 * room._LEAST
    memory.erase()
    assert memory._bytes == 0


def test_no_more_is_kept_than_the_limit() -> None:
    memory = KeptMemory()
    memory.limit = 2 * room._LEAST
    for _ in range(2):
        taken = [memory.take(LIKE, SIZES) for _ in range(5)]
        assert len(memory._taken) == 2
        assert [tuple(tensor.shape) for tensor in taken] == [SIZES] * 5
        memory.erase()


@pytest.mark.parametrize("take", [KeptMemory().take, fresh])
def test_small_memory_is_new(take: room.Take) -> None:
    assert take(LIKE, (3, 2)).shape == (3, 2)
    assert take(LIKE, (0, 2)).shape == (0, 2)


def test_memory_is_marked_before_anything_lies_in_it() -> None:
    marked: list[Tensor] = []
    memory = KeptMemory(marked.append)
    taken = memory.take(LIKE, SIZES)
    memory.erase()
    memory.take(LIKE, SIZES)
    assert [tensor.data_ptr() for tensor in marked] == [taken.data_ptr()]
