"""Small models with batch normalisation, and their steps executed by the NumPy engine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

import discreet as dp
from discreet.training.engine import Engine
from discreet.training.passes.batch_norm import PrivateBatchNorm
from discreet.training.passes.contributions import Contributions


def loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Of a classifier."""
    x, y = batch
    return functional.cross_entropy(model(x), y, reduction="none")


def small_cnn(momentum: float | None = 0.1) -> Any:
    """Batch normalisation with positions and trained scales, and without both."""
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.BatchNorm2d(4, momentum=momentum),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(4 * 16, 5),
        nn.BatchNorm1d(5, affine=False, momentum=momentum),
        nn.ReLU(),
        nn.Linear(5, 3),
    )


def images(records: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """6 x 6, three classes."""
    random = torch.Generator().manual_seed(seed)
    return 2.0 * torch.randn(records, 1, 6, 6, generator=random) + 0.5, torch.randint(
        0, 3, (records,), generator=random
    )


def rows_of(found: Contributions, leaves: Mapping[str, int]) -> dict[str, Any]:
    """Per-record gradients as arrays, for the NumPy engine."""
    out = {}
    for leaf, size in leaves.items():
        rows = torch.zeros(found.records, size, dtype=torch.float64)
        for piece in found.pieces.get(leaf, ()):
            sizes, strides, offset = piece.region
            values = piece.factor.dense().values
            rows.as_strided((found.records, *sizes), (size, *strides), offset).add_(
                values.reshape(-1, *sizes)
            )
        out[leaf] = rows.numpy()
    return out


def records_of(engine: Engine, data: Any, count: int) -> dict[str, Any]:
    """Everything that `count` records contribute: gradients and private statistics."""
    gradients = {leaf: size for leaf, size in engine.leaves.items() if leaf.startswith("grad/")}
    pieces: list[dict[str, Any]] = []
    for found, statistics in engine.passes(loss, data, count, count):
        noted = {name: values.numpy().copy() for name, values in statistics.items()}
        nothing = {
            leaf: np.zeros((found.records, size)) for leaf, size in engine.batch_norm.leaves.items()
        }
        pieces.append(rows_of(found, gradients) | nothing | noted)
    return {leaf: np.concatenate([piece[leaf] for piece in pieces]) for leaf in engine.leaves}


def steps(
    model: nn.Module,
    data: tuple[Tensor, Tensor],
    mechanism: Any,
    *,
    batch: int,
    number: int,
    source: dp.randomness.Source | None = None,
) -> Iterator[tuple[PrivateBatchNorm, dp.aggregation.Release]]:
    """Private steps through the NumPy engine: sets gradients, moves the running statistics,
    yields.
    """
    norm = PrivateBatchNorm(model)
    engine = Engine(model, batch_norm=norm)
    records = len(data[0])
    sampler = dp.Sampler(dp.Poisson(batch / records), records=records, steps=number)
    plan = dp.Plan(sampler=sampler, mechanism=mechanism, leaves=engine.leaves)
    run = dp.Aggregator(plan, ledger=dp.Ledger.in_memory(), source=source)
    for sample in run.samples():
        index = torch.from_numpy(np.asarray(sample.indices).copy())
        rows = (
            records_of(engine, (data[0][index], data[1][index]), len(sample))
            if len(sample)
            else _none(engine)
        )
        released = run.release(sample, rows)
        for leaf, parameter in engine.parameters.items():
            parameter.grad = (
                torch.from_numpy(released.mean(leaf)).reshape(parameter.shape).to(parameter.dtype)
            )
        norm.apply({leaf: released.mean(leaf) for leaf in norm.leaves})
        yield norm, released


def _none(engine: Engine) -> dict[str, Any]:
    return {leaf: np.zeros((0, size)) for leaf, size in engine.leaves.items()}
