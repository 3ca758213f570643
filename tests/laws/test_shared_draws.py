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
from torch.utils.data import TensorDataset

import discreet as dp
from couplings.harness import summed, way_of
from couplings.scenes import FEATURES, Pair
from discreet.randomness import Source
from discreet.training import PrivateRun, augmented

PASS = 8  # records
STEPS = 6


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


def _sums(loss: Any, records: int, *, special: bool) -> tuple[list[Tensor], set[str]]:
    x = torch.ones(records + special, FEATURES)
    if special:
        x[0] = -100.0
    model = Pair()
    plan = dp.Plan(
        sampler=dp.Sampler(dp.Everything(), records=len(x), steps=STEPS),
        mechanism=dp.Groups({"grad/*": dp.Gaussian(1.0, 1e-9)}),
        adjacency=dp.Adjacency.ADD_OR_REMOVE,
    )
    source = Source.unsafe_test_key(bytes(range(32)))
    run = PrivateRun(model, plan, ledger=dp.Ledger.in_memory(), source=source, microbatch=PASS)
    sums, ways = [], set()
    for batch in run.batches(TensorDataset(x)):
        model.zero_grad()
        run.backward(loss, batch)
        sums.append(summed(model, plan.expected_batch_size))
        ways.add(way_of(run))
    return sums, ways


@pytest.mark.parametrize("name", LOSSES)
def test_t09_what_is_drawn_for_all_records_is_the_same_in_all_passes_of_a_step(name: str) -> None:
    """Two passes become three, and records move to another one."""
    without, ways = _sums(LOSSES[name], 2 * PASS, special=False)
    with_it, ways_with_it = _sums(LOSSES[name], 2 * PASS, special=True)
    assert ways | ways_with_it == {"fast"}
    moved = [float((first - second).norm()) for first, second in zip(without, with_it, strict=True)]
    assert max(moved) <= 1.001
    # All records of a step go by the same numbers, so that nothing cancels out.
    assert min(float(total.norm()) for total in without) > 2 * PASS - 0.1


def test_numbers_of_each_record_are_not_those_of_another_pass() -> None:
    """Were they, every sign would come twice, and the sums of signs would be multiples of four."""

    def loss(model: Any, batch: Any) -> Tensor:
        x = batch[0]
        out: Tensor = model(x) * _sign(torch.rand_like(x[:, 0]))
        return out

    sums, ways = _sums(loss, 2 * PASS, special=False)
    assert ways == {"fast"}
    assert {round(float(total.norm())) % 4 for total in sums} == {0, 2}
