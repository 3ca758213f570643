"""CIFAR-10 from scratch: resemblance to patches of synthetic images, strong directions shrunk, a
linear model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
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
from benchmarks.utility.leaves import crops, dead_leaves
from benchmarks.utility.patches import PatchFeatures
from benchmarks.utility.plain import PlainRun
from benchmarks.utility.recipe import Goal, Recipe
from discreet import features
from discreet.features import Standardisation, Whitening
from discreet.plan import Target
from discreet.randomness import Source
from discreet.training import PrivateRun

__all__ = ["RECIPES"]

Floats = NDArray[np.float32]

LEAVES, PATCHES = 600, 128
DIRECTIONS, SHRUNK = (
    300,
    200,
)  # strongest of synthetic images: that are looked at in the data, and that are shrunk unseen
# epsilon; below it, statistics get more noise in proportion, and the learning rate falls with the
# root.
TUNED_AT = 3.0
MEAN_NOISE, COVARIANCE_NOISE, LEVEL = 15.0, 5.0, 0.004
PROBABILITY, STEPS, CLIP_NORM = 0.1638, 100, 0.5
LEARNING_RATE, MOMENTUM = 80.0, 0.9


@dataclass(frozen=True, slots=True)
class Vectors:
    """Features of every image, their labels, and orthonormal columns that hold what is strong in
    synthetic images.
    """

    train: Floats
    train_labels: Tensor
    test: Floats
    test_labels: Tensor
    basis: NDArray[np.float64]


def prepare(folder: Path) -> Vectors:
    """Each image's features, standardised and whitened by the statistics of synthetic images."""
    arrays = load(folder, "cifar10")
    leaves = dead_leaves(LEAVES)
    describe = PatchFeatures(leaves, patches=PATCHES)
    public = describe(crops(leaves, 32, 16)).numpy()
    spread = np.sqrt(public.var(0) + 0.05 * public.var(0).mean())
    standardise = Standardisation(public.mean(0), spread)
    values, basis = _principal(standardise(public), DIRECTIONS)
    whiten = Whitening(
        basis[:, :SHRUNK], np.sqrt(values[SHRUNK - 1] / values[:SHRUNK]), values[:SHRUNK], norm=1.0
    )

    def part(name: str) -> tuple[Floats, Tensor]:
        vectors = whiten(standardise(describe(arrays[f"x_{name}"]).numpy()))
        return vectors.astype(np.float32, copy=False), torch.from_numpy(arrays[f"y_{name}"]).long()

    return Vectors(*part("train"), *part("test"), basis)


def _principal(
    rows: NDArray[np.floating], count: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The largest eigenvalues of the second moments, and their vectors: by subspace iteration."""
    vectors = np.random.default_rng(0).normal(size=(rows.shape[1], count + 50)).astype(np.float32)
    for _ in range(3):
        vectors = np.linalg.qr(rows.T @ (rows @ vectors))[0]
    small = (rows @ vectors).astype(np.float64)
    values, turn = np.linalg.eigh(small.T @ small / len(rows))
    return values[::-1][:count], np.linalg.qr(vectors @ turn[:, ::-1][:, :count])[0].astype(
        np.float64
    )


def loss(model: nn.Module, batch: list[Tensor]) -> Tensor:
    """Cross entropy of each record."""
    inputs, labels = batch
    return functional.cross_entropy(model(inputs), labels, reduction="none")


def train(
    prepared: Vectors, target: Target | None, ledger: Path, source: Source | None = None
) -> float:
    """Means and strong directions by private queries, then DP-SGD; one budget."""
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
        vectors, test = _reduced(prepared, programme, book)
        if target is None:
            run = PlainRun(model, batch_size=round(PROBABILITY * records), steps=STEPS)
        else:
            run = PrivateRun(
                model, programme["training"], ledger=book, source=source, label="training"
            )
        rate = LEARNING_RATE * math.sqrt(_share(target))
        _descend(model, run, TensorDataset(torch.from_numpy(vectors), prepared.train_labels), rate)
    return accuracy(model, TensorDataset(torch.from_numpy(test), prepared.test_labels))


def _programme(records: int, dimension: int, target: Target | None) -> dp.Programme:
    """Everything that the training data are asked; without a target, statistics that are next to
    exact.
    """
    noise = 1e-3 if target is None else 1.0 / _share(target)
    programme = dp.Programme(
        {
            "means": features.standardise_plan(
                records=records, dimension=dimension, noise_multiplier=noise * MEAN_NOISE
            ),
            "covariance": features.whiten_plan(
                records=records, dimension=DIRECTIONS, noise_multiplier=noise * COVARIANCE_NOISE
            ),
            "training": dp.Plan.dpsgd(
                records=records,
                sampling_probability=PROBABILITY,
                steps=STEPS,
                clip_norm=CLIP_NORM,
                noise_multiplier=1.0,
            ),
        }
    )
    if target is None:
        return programme
    return programme.calibrated(epsilon=target.epsilon, delta=target.delta, scale=["training"])


def _share(target: Target | None) -> float:
    """Of the budget that the settings were made for; at most 1."""
    return 1.0 if target is None else min(1.0, target.epsilon / TUNED_AT)


def _reduced(
    prepared: Vectors, programme: dp.Programme, book: dp.Ledger
) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
    """Vectors in the unit ball, around their mean, with strong directions shrunk: those of
    training, and of the test.
    """
    dimension = prepared.train.shape[1]
    together = np.zeros(dimension, np.intp)  # one standard deviation for all coordinates
    centre = features.standardise(
        prepared.train, plan=programme["means"], ledger=book, groups=together
    )
    vectors = features.unit_ball(centre(prepared.train), radius=math.sqrt(dimension))
    strong = features.whiten(
        vectors, plan=programme["covariance"], ledger=book, basis=prepared.basis, level=LEVEL
    )
    test = features.unit_ball(centre(prepared.test), radius=math.sqrt(dimension))
    return features.unit_ball(strong(vectors), radius=strong.norm), features.unit_ball(
        strong(test), radius=strong.norm
    )


def _descend(
    model: nn.Module, run: PrivateRun | PlainRun, vectors: TensorDataset, rate: float
) -> None:
    """Momentum, and a learning rate that falls to zero."""
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=MOMENTUM)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0 - step / STEPS)
    with run:
        for batch in run.batches(vectors):
            run.backward(loss, batch)  # type: ignore[arg-type]
            optimizer.step()
            optimizer.zero_grad()
            scheduler.step()


RECIPES = (
    Recipe(
        name="cifar10",
        data_set="cifar10",
        model=(
            "Resemblance to 128 patches of synthetic images; private mean, strong directions "
            "shrunk; linear."
        ),
        epsilons=(3.0,),
        goals=(Goal(3.0, accuracy=0.70),),
        tuned=(
            "features, learning rate, steps, clip norm and what is shrunk, at epsilon 3, on the "
            "last 10,000 images of the "
            "training data; not charged."
        ),
        without_privacy=(
            "the same features, batches, steps and learning rate, with exact statistics; no "
            "clipping, no noise."
        ),
        prepare=prepare,
        train=train,
    ),
)
