"""MNIST end to end: a small convolutional network with tanh, in the manner of tempered sigmoids
[PapernotEtAl2021].
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import TensorDataset

import discreet as dp
from benchmarks.utility.accuracy import accuracy
from benchmarks.utility.data import load
from benchmarks.utility.plain import PlainRun
from benchmarks.utility.recipe import Goal, Recipe
from discreet.plan import Target
from discreet.randomness import Source
from discreet.training import PrivateRun, WeightAverage

__all__ = ["RECIPES"]

PROBABILITY = 0.08  # about 4,800 records in a step
STEPS = 400
CLIP_NORM = 0.1
LEARNING_RATE, PLAIN_LEARNING_RATE = 25.0, 0.1  # the former at epsilon 3, less in proportion below
MOMENTUM = 0.9
AVERAGED = 0.25  # of the steps, the last


@dataclass(frozen=True, slots=True)
class Images:
    """Pictures and labels."""

    train: TensorDataset
    test: TensorDataset


def prepare(folder: Path) -> Images:
    """Each image with mean 0 and variance 1 of its own: a function of the record alone."""
    arrays = load(folder, "mnist")

    def part(name: str) -> TensorDataset:
        pixels = torch.from_numpy(arrays[f"x_{name}"]).float().unsqueeze(1)
        spread, mean = torch.std_mean(pixels, dim=(1, 2, 3), keepdim=True)
        return TensorDataset(
            (pixels - mean) / spread.clamp_min(1.0), torch.from_numpy(arrays[f"y_{name}"]).long()
        )

    return Images(part("train"), part("test"))


def network() -> nn.Module:
    """Two convolutions and one linear layer; 13,690 parameters. Channels last, which is faster."""
    model = nn.Sequential(
        nn.Conv2d(1, 16, 8, stride=2, padding=3),
        nn.Tanh(),
        nn.MaxPool2d(2, stride=1),
        nn.Conv2d(16, 32, 3, stride=2),
        nn.Tanh(),
        nn.MaxPool2d(2, stride=1),
        nn.Flatten(),
        nn.Linear(800, 10),
    )
    for layer in model:
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.xavier_normal_(layer.weight)
            nn.init.zeros_(layer.bias)  # type: ignore[arg-type]
    return model.to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]


def loss(model: nn.Module, batch: list[Tensor]) -> Tensor:
    """Cross entropy of each record."""
    images, labels = batch
    return functional.cross_entropy(model(images), labels, reduction="none")


def train(
    prepared: Images, target: Target | None, ledger: Path, source: Source | None = None
) -> float:
    """DP-SGD with momentum, a learning rate that falls as a cosine, and the average of the later
    weights.
    """
    model, records = network(), len(prepared.train)
    rate = PLAIN_LEARNING_RATE if target is None else LEARNING_RATE * min(1.0, target.epsilon / 3.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=MOMENTUM)
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: 0.5 + 0.5 * math.cos(math.pi * step / STEPS)
    )
    average = WeightAverage(model, start=round((1.0 - AVERAGED) * STEPS))
    run: PrivateRun | PlainRun
    if target is None:
        run = PlainRun(model, batch_size=round(PROBABILITY * records), steps=STEPS)
    else:
        plan = dp.Plan.dpsgd(
            records=records,
            sampling_probability=PROBABILITY,
            steps=STEPS,
            clip_norm=CLIP_NORM,
            epsilon=target.epsilon,
            delta=target.delta,
        )
        run = PrivateRun(model, plan, ledger=ledger, source=source, label="cnn")
    with run:
        for batch in run.batches(prepared.train):
            run.backward(loss, batch)  # type: ignore[arg-type]
            optimizer.step()
            optimizer.zero_grad()
            scheduler.step()
            average.update()
    average.copy_to(model)
    return accuracy(model, prepared.test)


RECIPES = (
    Recipe(
        name="cnn",
        data_set="mnist",
        model=(
            "Two convolutions with tanh and one linear layer, end to end; momentum, weights "
            "averaged over the last quarter."
        ),
        epsilons=(3.0,),
        goals=(Goal(3.0, accuracy=0.981),),
        tuned="network and learning rate, on the last 10,000 training images, in about thirty "
        "short trials at epsilon 3 or "
        "without noise. None of them is charged.",
        without_privacy=(
            "the same network, batches, steps and averaging, with another learning rate; no "
            "clipping, no noise."
        ),
        prepare=prepare,
        train=train,
    ),
)
