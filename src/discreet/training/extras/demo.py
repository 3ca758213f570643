"""The demonstration: handwritten digits by a linear model on fixed features.

scikit-learn's digits are public, and so is everything that was chosen by looking at them: features,
learning rate, clip norm, number of steps. On private data each such look would be a release of its
own.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import TensorDataset

from discreet.errors import ModelError
from discreet.features.rowwise import own_product
from discreet.plan import Plan
from discreet.randomness import Source
from discreet.training.extras.averaging import WeightAverage
from discreet.training.run import PrivateRun
from discreet.training.shown.logs import Log
from discreet.units import Guarantee

__all__ = [
    "RECORDS",
    "STATISTIC",
    "Digits",
    "accuracy",
    "features",
    "load_digits",
    "train",
    "train_without_privacy",
]

# Of the 1797 digits; the other 360 are for testing.
RECORDS = 1437
STATISTIC = "metric/accuracy"
_CLASSES = 10
_DIRECTIONS = 12
_WAVES, _WIDTH = 1000, 0.35
_LEARNING_RATE = 150.0


@dataclass(frozen=True, slots=True)
class Digits:
    """Features and labels, split for good."""

    train: TensorDataset
    test: TensorDataset


def load_digits() -> Digits:
    """The digits of scikit-learn; which of them are for testing is fixed and public.

    Raises:
        ModelError: scikit-learn is not installed.
    """
    try:
        from sklearn.datasets import load_digits  # noqa: PLC0415  (only the demo needs it)
    except ImportError:
        raise ModelError(
            expected="scikit-learn, whose digits the demo uses",
            got="an installation without it",
            do="Install it: pip install 'discreet[demo,torch]'.",
        ) from None

    images, labels = load_digits(return_X_y=True)
    # A fixed shuffle: which digits are for testing is the same in every run.
    order = np.random.default_rng(0).permutation(len(labels))
    inputs, targets = torch.from_numpy(features(images)[order]), torch.from_numpy(labels[order])

    return Digits(
        TensorDataset(inputs[:RECORDS], targets[:RECORDS]),
        TensorDataset(inputs[RECORDS:], targets[RECORDS:]),
    )


def features(images: NDArray[np.float64]) -> NDArray[np.float32]:
    """Random waves of an image and of its eight shifts by a pixel, averaged. Length 1.

    Rows of similar digits have a large scalar product, others one near 0: a linear model then
    separates them with short weights, which is what noise leaves intact. Each row is a function of
    its own image alone.

    Args:
        images: n x 64, from 0 to 16.
    """
    padded = np.pad(images.reshape(-1, 8, 8), ((0, 0), (1, 1), (1, 1)))
    waves = [_waves(_edges(moved)) for moved in _windows(padded, 8)]
    return _unit(np.mean(waves, axis=0)).astype(np.float32)


def _windows(images: NDArray[np.float64], size: int) -> list[NDArray[np.float64]]:
    # All squares of so many pixels in images (..., height, width), row by row.
    places = range(images.shape[-1] - size + 1)
    corners = itertools.product(places, places)
    return [images[..., row : row + size, column : column + size] for row, column in corners]


def _edges(pixels: NDArray[np.float64]) -> NDArray[np.float64]:
    """Pixels, and how strongly edges run in 12 directions in 25 parts of the image. Length 1."""
    # Slopes by central differences; what counts for a direction is the slope along it, if positive.
    padded = np.pad(pixels / 16.0, ((0, 0), (1, 1), (1, 1)))
    across = padded[:, 1:-1, 2:] - padded[:, 1:-1, :-2]
    down = padded[:, 2:, 1:-1] - padded[:, :-2, 1:-1]
    angles = 2.0 * np.pi * np.arange(_DIRECTIONS) / _DIRECTIONS
    slopes = [np.cos(angle) * across + np.sin(angle) * down for angle in angles]
    edges = np.stack([np.maximum(0.0, slope) for slope in slopes], axis=1)

    # Averages over 25 squares of 4 by 4 pixels, which overlap.
    means = [square.mean(axis=(2, 3)) for square in _windows(edges, 4)]
    strengths = np.sqrt(np.concatenate(means, axis=1) + 1e-3)
    centred = _unit(strengths - strengths.mean(axis=1, keepdims=True))

    return _unit(np.concatenate([_unit(pixels.reshape(-1, 64) - 5.0), centred], axis=1))


def _waves(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """The random Fourier features of [RahimiRecht2007].

    A row for a times a row for b is about exp(-|a - b|^2 / (2 width^2)).
    """
    directions = np.random.default_rng(0).standard_normal((rows.shape[1], _WAVES))
    # Row by row, so that a row's bits do not depend on the other rows; directions of length 1.
    lengths = np.linalg.norm(directions, axis=0)
    angles = own_product(rows, directions / lengths) * (lengths / _WIDTH)

    return np.asarray(np.concatenate([np.cos(angles), np.sin(angles)], axis=1) / np.sqrt(_WAVES))


def _unit(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.maximum(lengths, 1e-12))


def train(
    digits: Digits,
    plan: Plan,
    *,
    ledger: str | os.PathLike[str],
    label: str,
    logs: Sequence[Log] = (),
    source: Source | None = None,
) -> tuple[nn.Module, Guarantee]:
    """Train by DP-SGD; the model is the average over the later half of the released steps.

    Args:
        digits: data.
        plan: for `RECORDS` records, with groups for "grad/*" and `STATISTIC`.
        ledger: path.
        label: of the run.
        logs: see only what is released.
        source: of noise, for tests.

    Returns:
        The model, and the guarantee of the ledger.
    """
    # The average starts at half of the steps, when the weights have come near; a public number.
    model = _model(digits)
    average = WeightAverage(model, start=plan.steps // 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=_LEARNING_RATE)

    with PrivateRun(
        model, plan, ledger=ledger, statistics={STATISTIC: 1}, logs=logs, label=label, source=source
    ) as run:
        for batch in run.batches(digits.train):
            run.backward(_loss, batch)
            optimizer.step()
            optimizer.zero_grad()
            average.update()

        average.copy_to(model)
        return model, run.guarantee()


def train_without_privacy(digits: Digits, *, steps: int, batch_size: int) -> nn.Module:
    """Train the model by an ordinary loop: no clipping, no noise, as many steps and records."""
    model = _model(digits)
    average = WeightAverage(model, start=steps // 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=_LEARNING_RATE)
    inputs, targets = digits.train.tensors
    shuffle = torch.Generator().manual_seed(0)

    for _ in range(steps):
        chosen = torch.randperm(len(targets), generator=shuffle)[:batch_size]
        loss = functional.cross_entropy(model(inputs[chosen]), targets[chosen])
        torch.autograd.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        average.update()

    average.copy_to(model)

    return model


@torch.no_grad()
def accuracy(model: nn.Module, digits: Digits) -> float:
    """The share of test images that the model gets right."""
    inputs, targets = digits.test.tensors
    return float((model(inputs).argmax(1) == targets).double().mean())


def _model(digits: Digits) -> nn.Module:
    # From zero, so that nothing is random but samples and noise.
    model = nn.Linear(digits.train.tensors[0].shape[1], _CLASSES, bias=False)
    nn.init.zeros_(model.weight)
    return model


def _loss(model: nn.Module, batch: Sequence[Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
    """One loss for each record, and whether it was right, which is released with noise only."""
    inputs, targets = batch
    scores = model(inputs)
    losses = functional.cross_entropy(scores, targets, reduction="none")

    return losses, {STATISTIC: (scores.argmax(1) == targets).float()}
