"""Marks live as long as storages: what an earlier pass kept is refused in the next one, wherever it
was kept. Whose number a view holds follows from bytes, for every view that torch can make.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from discreet.errors import CoupledRecords
from discreet.training.separation.marks import (
    KEPT,
    Memory,
    constant,
    forget,
    holds_records,
    is_constant,
    mark_dataset,
    memory_for,
    new_pass,
    preserved,
    seen_in,
)
from discreet.training.separation.proof import Proof
from discreet.training.separation.states import OWN, PUBLIC, Mixed, Rows, State

B, T, E = 3, 4, 2


def test_passes_have_numbers_of_their_own() -> None:
    first = new_pass()
    assert new_pass() > first > 0


def test_this_torch_keeps_marks() -> None:
    assert preserved()


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_who_asks_without_gradients_gets_the_same_answer(
    mode: Callable[[], AbstractContextManager[None]],
) -> None:
    preserved.cache_clear()
    with mode():
        assert preserved()


HOW: dict[str, Callable[[Tensor], Tensor]] = {
    "itself": lambda x: x,
    "detached": lambda x: x.detach(),
    "a view": lambda x: x[0, :1],
    "a sum": lambda x: x.sum(),
    "a copy": lambda x: x.clone(),
    "a parameter": lambda x: torch.nn.Parameter(x.detach().mean(0)),
}


@pytest.mark.parametrize("records", [1, 3])
@pytest.mark.parametrize("name", HOW)
def test_p09_what_a_pass_kept_is_refused_in_the_next(name: str, records: int) -> None:
    first = Proof(records)
    x = first.begin(torch.randn(records, 2), Rows(0))
    with first:
        kept = HOW[name](x)
    del x
    gc.collect()
    assert holds_records(kept)
    second = Proof(records)
    y = second.begin(torch.randn(records, 2), Rows(0))
    with second:
        joined = y.sum() + kept.sum()
        used = y * kept.mean()
    assert second.state(kept) is KEPT
    with pytest.raises(CoupledRecords, match="an earlier pass"):
        second.refuse_kept(second.state(joined))
    with pytest.raises(CoupledRecords, match="an earlier pass"):
        second.require_rows(used, Rows(0), "the loss")


def test_what_was_released_is_public_again() -> None:
    proof = Proof(1)
    x = proof.begin(torch.ones(1, 2), Rows(0))
    assert proof.state(x) is OWN
    forget(x)
    assert not holds_records(x)
    assert Proof(1).state(x) is PUBLIC


def test_a_pass_leaves_no_mark_of_records_on_constants() -> None:
    weight, proof = torch.ones(2), Proof(3)
    x = proof.begin(torch.ones(3, 2), Rows(0))
    with proof:
        _ = x * weight
    assert not holds_records(weight)
    assert Proof(3).state(weight) is PUBLIC


def test_memory_of_the_data_set_is_nobodys_own() -> None:
    data = torch.randn(10, 2)
    mark_dataset(data)
    for records in (1, 3):
        proof = Proof(records)
        x = proof.begin(data[:records], Rows(0))  # a sample of it is a copy
        with proof:
            sound, closure = x * 2, x - data.mean(0)
        assert not isinstance(proof.state(sound), Mixed)
        with pytest.raises(CoupledRecords, match="memory of the data set"):
            proof.require_rows(closure, Rows(0), "the loss")


# --- owners of bytes ---


def seen(view: Tensor, memory: Memory) -> State:
    return seen_in(
        memory, view.storage_offset(), tuple(view.shape), view.stride(), view.element_size()
    )


def of_rows(tensor: Tensor, rows: Rows) -> Memory:
    memory = memory_for(rows, tensor.stride(), tensor.element_size(), B)
    assert memory is not None
    return memory


BTE = torch.zeros(B, T, E)
VIEWS: list[tuple[Callable[[Tensor], Tensor], State | None]] = [
    (lambda x: x, Rows(0)),
    (lambda x: x.movedim(0, 1), Rows(1)),
    (lambda x: x.flatten(0, 1), Rows(0, inner=T)),
    (lambda x: x.flatten(), Rows(0, inner=T * E)),
    (lambda x: x[:, 0], Rows(0)),
    (lambda x: x[:, ::2, 1:], Rows(0)),
    (lambda x: x.unsqueeze(0).expand(5, B, T, E), Rows(1)),
    (lambda x: x[:, :0], PUBLIC),
    (lambda x: x[1], None),
    (lambda x: x[1:], None),
    (lambda x: x[::2], None),
    (lambda x: x.diagonal(0, 0, 1), None),
    (lambda x: x.flatten()[1:-1], None),
    (lambda x: x.view(B * T // 2, 2, E)[:, 0], Rows(0, inner=2)),
    (lambda x: x.as_strided((2, 2), (T * E, T * E)), None),
    (lambda x: x.as_strided((2 * B - 1,), (T * E // 2,)), None),
    (lambda x: x.unfold(0, 2, 1), None),
    (torch.view_as_complex, Rows(0)),
]


@pytest.mark.parametrize("number", range(len(VIEWS)))
def test_views_of_records_that_come_first(number: int) -> None:
    make, expected = VIEWS[number]
    found = seen(make(BTE), of_rows(BTE, Rows(0)))
    if expected is None:
        assert isinstance(found, Mixed)
    else:
        assert found == expected


def test_an_element_that_spans_two_records_belongs_to_none() -> None:
    """Two records of one float each, seen as a complex number."""
    x = torch.zeros(B, 1)
    memory = of_rows(x, Rows(0))
    wide = x.new_zeros(B + 1).as_strided((1, 2), (2, 1))
    assert isinstance(seen_in(memory, 0, (1,), (1,), 8), Mixed)
    assert isinstance(seen(wide, memory), Mixed)


def test_records_that_come_second_are_told_after_flattening() -> None:
    tbe = torch.zeros(T, B, E)
    memory = of_rows(tbe, Rows(1))
    assert seen(tbe, memory) == Rows(1)
    assert seen(tbe.flatten(0, 1), memory) == Rows(0, outer=T)
    assert seen(tbe[0], memory) == Rows(0)
    assert seen(tbe.permute(2, 1, 0), memory) == Rows(1)


def test_a_tensor_without_a_step_has_no_memory() -> None:
    assert memory_for(Rows(0), (0, 1), 4, B) is None
    assert Memory.of(8, B) is Memory.of(8, B)


@settings(max_examples=300, deadline=None)
@given(
    step=st.integers(1, 5),
    offset=st.integers(0, 12),
    axes=st.lists(st.tuples(st.integers(1, 7), st.integers(0, 16)), min_size=1, max_size=3),
)
def test_p12_a_claim_is_true_of_every_byte(
    step: int, offset: int, axes: list[tuple[int, int]]
) -> None:
    """Against the definition: the element at byte p belongs to record (p // step) mod B, and so do
    all of its bytes.
    """
    itemsize = 2
    sizes, strides = (tuple(numbers) for numbers in zip(*axes, strict=True))
    state = seen_in(Memory.of(step, B), offset, sizes, strides, itemsize)
    if isinstance(state, Mixed):
        return
    assert isinstance(state, Rows)
    assert sizes[state.dim] == state.fold * B
    for place in torch.cartesian_prod(*map(torch.arange, sizes)).reshape(-1, len(sizes)).tolist():
        start = (
            offset + sum(index * stride for index, stride in zip(place, strides, strict=True))
        ) * itemsize
        owners = {byte // step % B for byte in range(start, start + itemsize)}
        assert owners == {place[state.dim] // state.inner % B}


def test_constants_of_the_library_are_told_by_their_memory() -> None:
    table = constant(torch.arange(6))
    assert is_constant(table[2:].untyped_storage())
    assert not is_constant(torch.arange(6).untyped_storage())
