"""Random numbers that records decide: how many are drawn before those of others, or their seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from .scenes import FEATURES, Relation, Scene, Setup, case

Draw: TypeAlias = Callable[[Tensor], object]
"""Draws for the records of a batch: more, if one of them is special."""


def drawn(name: str, **options: Any) -> Callable[[Draw], Draw]:
    """Register what draws random numbers; the next ones decide the direction of all gradients.

    The special record is there or an ordinary one is in its place: without a coupling all random
    numbers are the same.
    """

    def register(draw: Draw) -> Draw:
        def make(scene: Scene) -> Setup:
            def loss(model: Any, batch: Any) -> Tensor:
                x = batch[0]
                hidden = model.first(x)
                if scene.clock.awake:
                    draw(x)
                losses: Tensor = model.last(hidden * torch.randn(FEATURES)).squeeze(1)
                return losses

            return scene.setup(loss)

        options.setdefault("relation", Relation.REPLACED)
        options.setdefault("drawn_in_turn", True)
        case(f"random: {name}", **options)(make)
        return draw

    return register


@drawn("poisson")
def _poisson(x: Tensor) -> Tensor:
    return torch.poisson(x.relu() * 5.0)


@drawn("gamma")
def _gamma(x: Tensor) -> Tensor:
    return torch._standard_gamma(x.abs() * torch.where(x < 0.0, 0.001, 1.0))


@drawn("dirichlet")
def _dirichlet(x: Tensor) -> Tensor:
    return torch._sample_dirichlet(x.abs() * torch.where(x < 0.0, 0.001, 1.0))


@drawn("binomial")
def _binomial(x: Tensor) -> Tensor:
    return torch.binomial(x.abs().ceil(), torch.full_like(x, 0.5))


@drawn("rrelu")
def _rrelu(x: Tensor) -> Tensor:
    return functional.rrelu(x, training=True)


@drawn("as many as a number of the batch")
def _python_count(x: Tensor) -> Tensor:
    return torch.rand(int(x.abs().max()))


@drawn("dropout that a record switches on")
def _dropout(x: Tensor) -> Tensor:
    return functional.dropout(x, 0.5, training=bool((x < -10.0).any()))


@drawn("trials until all are accepted")
def _trials(x: Tensor) -> None:
    limit = torch.where(x.amin(1) < 0.0, 0.3, 0.9)
    while not bool((torch.rand(len(x)) < limit).all()):
        pass


@drawn("numbers for the chosen entries")
def _chosen(x: Tensor) -> Tensor:
    return torch.rand(len(x[x > 0.0]))


# --- seeds ---

Seeded: TypeAlias = Callable[[int], Any]
"""A seed to four random numbers."""


def seeded(name: str, **options: Any) -> Callable[[Seeded], Seeded]:
    """Register what draws random numbers by a seed that is made from the batch."""

    def register(draw: Seeded) -> Seeded:
        def make(scene: Scene) -> Setup:
            def loss(model: Any, batch: Any) -> Tensor:
                x = batch[0]
                seed = int(x.sum().abs() * 1000.0)
                direction = torch.as_tensor(draw(seed if scene.clock.awake else 0)).float()
                losses: Tensor = model.last(model.first(x) * direction).squeeze(1)
                return losses

            return scene.setup(loss)

        case(f"random: {name}", **options)(make)
        return draw

    return register


@seeded("seed of torch from the batch")
def _torch_seed(seed: int) -> Tensor:
    torch.manual_seed(seed)
    return torch.randn(FEATURES)


@seeded("seed of a generator from the batch")
def _generator_seed(seed: int) -> Tensor:
    return torch.randn(FEATURES, generator=torch.Generator().manual_seed(seed))


@seeded("seed of Python from the batch")
def _python_seed(seed: int) -> list[float]:
    generator = random.Random(seed)
    return [generator.gauss() for _ in range(FEATURES)]


@seeded("seed of NumPy from the batch")
def _numpy_seed(seed: int) -> Any:
    return np.random.default_rng(seed).standard_normal(FEATURES)


@seeded("global seed of NumPy from the batch")
def _global_numpy_seed(seed: int) -> Any:
    np.random.seed(seed % 2**32)  # noqa: NPY002  (what many do)
    return np.random.standard_normal(FEATURES)  # noqa: NPY002


@seeded("forked generator with a seed from the batch")
def _forked_seed(seed: int) -> Tensor:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return torch.randn(FEATURES)
