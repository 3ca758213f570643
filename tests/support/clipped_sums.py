"""The sum that noise of clip norm 1 is added to, and by how much one record moves it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import discreet as dp
from discreet.mechanisms import Group
from discreet.training.clipping import Sums
from discreet.training.engine import Engine, Loss
from discreet.training.rounding.precision import most_spread

CLIP_NORM = 1.0
ROUNDING = 1e-5


def _inner(group: Group, positions: frozenset[int]) -> tuple[Group, float]:
    return group, most_spread(max(positions, default=1))


def clipped_sum(engine: Engine, loss: Loss, batch: Any, present: Tensor) -> Tensor:
    """The sum over the records that are present."""
    bound = dp.Groups({"*": dp.Gaussian(CLIP_NORM, 1.0)}).bind(engine.leaves)
    sums = Sums(bound, bound.initial_state, _inner, engine.device)
    for contributions, statistics in engine.passes(loss, batch, len(present), present):
        sums.add(contributions, statistics)
    (group,) = bound.groups(bound.initial_state)
    return torch.from_numpy(sums.flat(group).copy())


def moved_by(
    model: nn.Module, loss: Loss, batch: Any, row: int, count: int
) -> tuple[float, Engine]:
    """By how much the sum moves without one record, in clip norms;
    and the engine that computed it.
    """
    engine = Engine(model)
    all_present = torch.ones(count, dtype=torch.bool)
    whole = clipped_sum(engine, loss, batch, all_present)
    without = clipped_sum(
        engine, loss, _blank(batch, row), all_present & (torch.arange(count) != row)
    )
    return float((whole - without).norm()) / CLIP_NORM, engine


def _blank(batch: Any, row: int) -> Any:
    """The batch with zeros in one place, as padding has them."""
    if isinstance(batch, Tensor):
        return batch.index_fill(0, torch.tensor([row]), 0)
    return tuple(_blank(part, row) for part in batch)
