"""Marks live as long as storages: what an earlier pass kept is refused in the next one, wherever it
was kept.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
import torch
from torch import Tensor

from discreet.errors import CoupledRecords
from discreet.training.separation.marks import (
    KEPT,
    forget,
    holds_records,
    mark_dataset,
    new_pass,
    preserved,
)
from discreet.training.separation.proof import Proof
from discreet.training.separation.states import OWN, PUBLIC, Mixed, Rows


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
