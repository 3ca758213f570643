"""Loops as people write them: gradient scalers, and transforms with public seeds."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import Dataset

from discreet.errors import DiscreetError
from discreet.randomness import Source

from . import harness
from .scenes import FEATURES, FRESH, Pair, Relation, Scene


def _weights_after(scaler: torch.amp.GradScaler | None) -> Tensor:
    """The weights after three private steps, with or without a gradient scaler."""
    scene = Scene.of(FRESH.clock(), Relation.ADDED, special=False)
    model = Pair()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def loss(own: Any, batch: Any) -> Tensor:
        losses: Tensor = own(batch[0])
        return losses if scaler is None else scaler.scale(losses)

    run = harness.begin(model, records=len(scene.x), steps=3)
    for batch in run.batches(scene.setup(loss).dataset):
        optimizer.zero_grad()
        run.backward(loss, batch)
        if scaler is None:
            optimizer.step()
        else:
            scaler.step(optimizer)
            scaler.update()
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def test_a_gradient_scaler_is_refused_or_makes_no_difference() -> None:
    """Records are clipped whatever they were multiplied by: dividing afterwards is too much."""
    plain = _weights_after(None)
    try:
        scaled = _weights_after(torch.amp.GradScaler("cpu"))
    except DiscreetError:
        return
    assert torch.allclose(plain, scaled, atol=1e-4)


# --- random transforms ---

DRAWS: dict[str, Callable[[], Any]] = {
    "torch": lambda: torch.randn(FEATURES),
    "NumPy": lambda: np.random.standard_normal(FEATURES),  # noqa: NPY002  (what transforms use)
    "Python": lambda: [random.gauss() for _ in range(FEATURES)],
}


class Transformed(Dataset[Any]):
    """Zeros, and random numbers of one kind."""

    def __init__(self, draw: Callable[[], Any]) -> None:
        self._draw = draw

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> Tensor:
        return torch.as_tensor(self._draw()).float() * torch.ones(FEATURES)


@pytest.mark.parametrize("kind", DRAWS)
def test_transforms_do_not_follow_public_seeds(kind: str) -> None:
    """Two runs after the same public seeds: who knows the seeds must not know the transforms."""
    batches = []
    for _ in range(2):
        torch.manual_seed(0)
        np.random.seed(0)  # noqa: NPY002  (as people do)
        random.seed(0)
        run = harness.begin(Pair(), records=6, steps=1, source=Source.system())
        batch = next(iter(run.batches(Transformed(DRAWS[kind]))))
        batches.append(batch.data.sort(0).values)
    equal = (batches[0] == batches[1]).all(1)
    assert not bool(equal.any())
