"""Released sums of two data sets that differ in one record, where a step takes several passes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import discreet as dp
from couplings.harness import summed, way_of
from couplings.scenes import FEATURES, Pair
from discreet.randomness import Source
from discreet.training import PrivateRun

PASS = 8  # records


def released(
    loss: Any,
    records: int,
    *,
    special: bool,
    steps: int = 6,
    make: Callable[[], nn.Module] = Pair,
) -> tuple[list[Tensor], set[str]]:
    """The sums of each step, with next to no noise, and the ways in which they were computed."""
    x = torch.ones(records + special, FEATURES)
    if special:
        x[0] = -100.0
    model = make()
    plan = dp.Plan(
        sampler=dp.Sampler(dp.Everything(), records=len(x), steps=steps),
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


def moved(make_loss: Callable[[], Any], **options: Any) -> tuple[float, set[str]]:
    """By how many clip norms one record more moves the sums of a step, at most: two passes become
    three; and the ways in which the steps were computed. Each run has a loss of its own.
    """
    without, ways = released(make_loss(), 2 * PASS, special=False, **options)
    with_it, ways_with_it = released(make_loss(), 2 * PASS, special=True, **options)
    pairs = zip(without, with_it, strict=True)
    return max(float((first - second).norm()) for first, second in pairs), ways | ways_with_it
