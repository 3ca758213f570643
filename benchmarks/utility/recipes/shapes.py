"""MNIST and Fashion-MNIST: features in the axes of synthetic shapes, standardised and whitened
privately, a linear model.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import TensorDataset

import discreet as dp
from benchmarks.utility.accuracy import accuracy
from benchmarks.utility.data import load
from benchmarks.utility.grey import GreyFeatures
from benchmarks.utility.plain import PlainRun
from benchmarks.utility.recipe import Goal, Recipe
from discreet import features
from discreet.features import Standardisation
from discreet.plan import Target
from discreet.randomness import Source
from discreet.training import PrivateRun

__all__ = ["RECIPES"]

Floats = NDArray[np.floating]

PATCHES, IMAGES, AXES = 100, 4_000, 1_000
LOOKED_AT = (
    300  # axes, the strongest of synthetic images, whose second moments in the data are asked for
)
WEAK = 1.5e-3  # added to variances before they are divided by: axes below stay weak
MEAN_NOISE, COVARIANCE_NOISE = 48.0, 15.0  # both divided by epsilon
STEPS, CLIP_NORM, MOMENTUM = 300, 0.03, 0.9
PLAIN_RATE = 100.0


def rate(epsilon: float) -> float:
    """The learning rate. With the whole data in each step, noise in the weights grows with rate
    times steps alone.
    """
    return min(430.0 * epsilon, 780.0)


@dataclass(frozen=True, slots=True)
class Vectors:
    """Features of every image, labels, and the variance of each feature in synthetic images."""

    train: Floats
    train_labels: Tensor
    test: Floats
    test_labels: Tensor
    variances: NDArray[np.float64]


def prepare(folder: Path, data_set: str) -> Vectors:
    """Each image's features, which know synthetic images only."""
    arrays = load(folder, data_set)
    describe = GreyFeatures(28, patches=PATCHES, images=IMAGES, axes=AXES)

    def part(name: str) -> tuple[Floats, Tensor]:
        return describe(arrays[f"x_{name}"]), torch.from_numpy(arrays[f"y_{name}"]).long()

    return Vectors(*part("train"), *part("test"), describe.variances)


def loss(model: nn.Module, batch: list[Tensor]) -> Tensor:
    """Cross entropy of each record."""
    inputs, labels = batch
    return functional.cross_entropy(model(inputs), labels, reduction="none")


def train(
    prepared: Vectors, target: Target | None, ledger: Path, source: Source | None = None
) -> float:
    """Moments and strong directions by private queries, then gradient descent with noise; one
    budget.
    """
    records, dimension = prepared.train.shape
    programme = _programme(records, dimension, target)
    model = nn.Linear(
        dimension, 10, bias=False
    )  # classes are equally frequent; a bias would take its share of the clip norm
    nn.init.zeros_(model.weight)
    run: PrivateRun | PlainRun
    listed = dp.Budget(
        plans=programme
    )  # all that the data are asked is fixed before the first answer
    with (
        dp.Ledger.in_memory(budget=listed)
        if target is None
        else dp.Ledger.open(ledger, budget=listed) as book
    ):
        reduce = _reduction(prepared, programme, book)
        if target is None:
            run = PlainRun(model, batch_size=records, steps=STEPS)
        else:
            run = PrivateRun(
                model, programme["training"], ledger=book, source=source, label="training"
            )
        optimizer = torch.optim.SGD(
            model.parameters(),
            lr=PLAIN_RATE if target is None else rate(target.epsilon),
            momentum=MOMENTUM,
        )
        scheduler = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: 0.5 + 0.5 * math.cos(math.pi * step / STEPS)
        )
        with run:
            for batch in run.batches(
                TensorDataset(torch.from_numpy(reduce(prepared.train)), prepared.train_labels)
            ):
                run.backward(loss, batch)  # type: ignore[arg-type]
                optimizer.step()
                optimizer.zero_grad()
                scheduler.step()
    return accuracy(
        model, TensorDataset(torch.from_numpy(reduce(prepared.test)), prepared.test_labels)
    )


def _programme(records: int, dimension: int, target: Target | None) -> dp.Programme:
    """Everything that the training data are asked; without a target, statistics that are next to
    exact.
    """
    means, covariance = (
        (1e-3, 1e-3)
        if target is None
        else (MEAN_NOISE / target.epsilon, COVARIANCE_NOISE / target.epsilon)
    )
    programme = dp.Programme(
        {
            "moments": features.standardise_plan(
                records=records, dimension=dimension, noise_multiplier=means
            ),
            "covariance": features.whiten_plan(
                records=records, dimension=LOOKED_AT, noise_multiplier=covariance
            ),
            "training": dp.Plan.dpsgd(
                records=records,
                sampling_probability=1.0,
                steps=STEPS,
                clip_norm=CLIP_NORM,
                noise_multiplier=10.0,
            ),
        }
    )
    if target is None:
        return programme
    return programme.calibrated(epsilon=target.epsilon, delta=target.delta, scale=["training"])


def _reduction(
    prepared: Vectors, programme: dp.Programme, book: dp.Ledger
) -> Callable[[Floats], Floats]:
    """Rows to rows in the unit ball, around the mean, variances nearly equal, strong directions
    shrunk.
    """
    moments = features.standardise(
        prepared.train,
        plan=programme["moments"],
        ledger=book,
        reference=(0.0, np.sqrt(prepared.variances)),
    )
    centre = Standardisation(moments.mean, np.sqrt(moments.std**2 + WEAK))
    radius = math.sqrt(
        float(np.sum(moments.std**2 / centre.std**2))
    )  # root mean square norm, from released values
    inside = features.unit_ball(centre(prepared.train), radius=radius)
    strong = features.whiten(
        inside, plan=programme["covariance"], ledger=book, basis=np.arange(LOOKED_AT)
    )
    return lambda rows: features.unit_ball(
        strong(features.unit_ball(centre(rows), radius=radius)), radius=strong.norm
    )


def _recipe(data_set: str, goals: tuple[Goal, ...]) -> Recipe[Vectors]:
    return Recipe(
        name=data_set,
        data_set=data_set,
        model=(
            "Scattering and resemblance to 100 patches of synthetic shapes, standardised and "
            "whitened privately; linear."
        ),
        epsilons=(1.2, 3.0),
        goals=goals,
        tuned=(
            "features, learning rate and what is shrunk, at epsilon 1.2 and 3, for MNIST and "
            "Fashion-MNIST together, on the "
            "last 10,000 images of the training data; not charged."
        ),
        without_privacy=(
            "the same features and steps with exact statistics, another learning rate; no "
            "clipping, no noise. It is no upper "
            "bound: such a model fits its training data too well, which clipping and noise "
            "prevent; larger rates were worse."
        ),
        prepare=partial(prepare, data_set=data_set),
        train=train,
    )


RECIPES = (
    _recipe("mnist", (Goal(1.2, accuracy=0.984), Goal(3.0, accuracy=0.989))),
    _recipe("fashion-mnist", (Goal(1.2, accuracy=0.888), Goal(3.0, accuracy=0.900))),
)
