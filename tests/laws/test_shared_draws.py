"""What torch draws for all records of a pass is the same in all passes of a step: how records are
divided into passes depends on how many there are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from discreet.training import augmented
from support.neighbours import PASS, moved, released


def _sign(number: Tensor) -> Tensor:
    return (number < 0.5).float() * 2.0 - 1.0


def _number(model: Any, batch: Any) -> Tensor:
    out: Tensor = model(batch[0]) * _sign(torch.rand(()))
    return out


def _branch(model: Any, batch: Any) -> Tensor:
    out: Tensor = model(batch[0])
    return -out if torch.rand(1).item() < 0.5 else out


def _noise_on_weights(model: Any, batch: Any) -> Tensor:
    weight = model.first.weight * torch.randn_like(model.first.weight).sign()
    out: Tensor = model.last(functional.linear(batch[0], weight)).squeeze(1)
    return out


def _weights_dropped(model: Any, batch: Any) -> Tensor:
    weight = functional.dropout(model.first.weight, 0.5)
    out: Tensor = model.last(functional.linear(batch[0], weight)).squeeze(1)
    return out


def _permutation(model: Any, batch: Any) -> Tensor:
    out: Tensor = model(batch[0]) * (torch.randperm(2)[0] * 2.0 - 1.0)
    return out


def _as_long_as_a_pass(model: Any, batch: Any) -> Tensor:
    """An axis with as many entries as a pass has records, which are no records."""
    out: Tensor = model(batch[0]) * _sign(torch.empty(PASS, 1).uniform_()[0])
    return out


def _beside_numbers_of_each(model: Any, batch: Any) -> Tensor:
    x = batch[0]
    out: Tensor = model(x + 0.0 * torch.randn_like(x)) * _sign(torch.rand(()))
    return out


def _recomputed(model: Any, batch: Any) -> Tensor:
    def layer(x: Tensor) -> Tensor:
        out: Tensor = model.first(x) * _sign(torch.rand(()))
        return out

    hidden = checkpoint(layer, batch[0], use_reentrant=False)
    out: Tensor = model.last(hidden).squeeze(1)
    return out


def _flipped(batch: Any) -> Any:
    return [batch[0] * _sign(torch.rand(())), *batch[1:]]


LOSSES: dict[str, Callable[..., Any]] = {
    "a number": _number,
    "a branch": _branch,
    "noise on weights": _noise_on_weights,
    "weights dropped": _weights_dropped,
    "a permutation": _permutation,
    "as long as a pass": _as_long_as_a_pass,
    "beside numbers of each": _beside_numbers_of_each,
    "recomputed": _recomputed,
    "in an augmentation": augmented(lambda model, batch: model(batch[0]), _flipped, copies=2),
}


@pytest.mark.parametrize("name", LOSSES)
def test_t09_what_is_drawn_for_all_records_is_the_same_in_all_passes_of_a_step(name: str) -> None:
    """Two passes become three, and records move to another one."""
    distance, ways = moved(lambda: LOSSES[name])
    assert ways == {"fast"}
    assert distance <= 1.001


@pytest.mark.parametrize("name", LOSSES)
def test_all_records_of_a_step_go_by_the_same_numbers(name: str) -> None:
    """So that nothing cancels out."""
    sums, _ = released(LOSSES[name], 2 * PASS, special=False)
    assert min(float(total.norm()) for total in sums) > 2 * PASS - 0.1


def test_numbers_of_each_record_are_not_those_of_another_pass() -> None:
    """Were they, every sign would come twice, and the sums of signs would be multiples of four."""

    def loss(model: Any, batch: Any) -> Tensor:
        x = batch[0]
        out: Tensor = model(x) * _sign(torch.rand_like(x[:, 0]))
        return out

    sums, ways = released(loss, 2 * PASS, special=False)
    assert ways == {"fast"}
    assert {round(float(total.norm())) % 4 for total in sums} == {0, 2}
