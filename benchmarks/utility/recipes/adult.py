"""Adult: logistic regression on categories, bins and some of their crosses, all of them public."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import TensorDataset

import discreet as dp
from benchmarks.utility.accuracy import accuracy
from benchmarks.utility.census import vectors
from benchmarks.utility.data import load
from benchmarks.utility.plain import PlainRun
from benchmarks.utility.recipe import Goal, Recipe
from discreet.plan import Target
from discreet.randomness import Source
from discreet.recipes import plan_with_scaled_noise
from discreet.training import PrivateRun, WeightAverage

__all__ = ["RECIPES"]

STEPS = 200  # each with all records
CLIP_NORM = 0.7
LEARNING_RATE, MOMENTUM = 10.0, 0.9


@dataclass(frozen=True, slots=True)
class People:
    """Vectors of length 1, and labels."""

    train: TensorDataset
    test: TensorDataset


def prepare(folder: Path) -> People:
    """Each line as a vector of its own."""
    lines = load(folder, "adult")

    def part(name: str) -> TensorDataset:
        rows, labels = vectors([str(line) for line in lines[name]])
        return TensorDataset(torch.from_numpy(rows), torch.from_numpy(labels))

    return People(part("train"), part("test"))


def loss(model: nn.Module, batch: list[Tensor]) -> Tensor:
    """Cross entropy of each record."""
    inputs, labels = batch
    return functional.cross_entropy(model(inputs), labels, reduction="none")


def train(
    prepared: People, target: Target | None, ledger: Path, source: Source | None = None
) -> float:
    """Gradient descent with momentum on all records at once, and the average of the later half of
    the weights.
    """
    inputs, _ = prepared.train.tensors
    model = nn.Linear(inputs.shape[1], 2, bias=False)
    nn.init.zeros_(model.weight)
    run: PrivateRun | PlainRun
    if target is None:
        run = PlainRun(model, batch_size=len(inputs), steps=STEPS)
    else:
        everything = dp.Sampler(dp.Everything(), records=len(inputs), steps=STEPS)
        plan = dp.Plan(
            sampler=everything, mechanism=dp.Groups({"grad/*": dp.Gaussian(CLIP_NORM, 1.0)})
        )
        plan = plan_with_scaled_noise(plan, epsilon=target.epsilon, delta=target.delta)
        run = PrivateRun(model, plan, ledger=ledger, source=source, label="adult")
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
    average = WeightAverage(model, start=STEPS // 2)
    with run:
        for batch in run.batches(prepared.train):
            run.backward(loss, batch)  # type: ignore[arg-type]
            optimizer.step()
            optimizer.zero_grad()
            average.update()
    average.copy_to(model)
    return accuracy(model, prepared.test)


RECIPES = (
    Recipe(
        name="adult",
        data_set="adult",
        model="Logistic regression on categories, bins and crosses with marriage; all records in "
        "every step, momentum, weights "
        "averaged over the later half.",
        epsilons=(0.25, 1.0),
        goals=(Goal(1.0, gap=0.005),),
        tuned="bins, crosses, weights of columns, steps, clip norm and learning rate, at epsilon "
        "1, on the last 6,561 training "
        "records; not charged.",
        without_privacy="the same columns, loop and averaging, without clipping and noise.",
        prepare=prepare,
        train=train,
    ),
)
