"""IMDb: a bag of hashed words, weighted by how rare each is; that, too, is a private query."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import TensorDataset

import discreet as dp
from benchmarks.utility.data import load
from benchmarks.utility.plain import PlainRun
from benchmarks.utility.recipe import Goal, Recipe
from benchmarks.utility.words import bags
from discreet.plan import Target
from discreet.randomness import Source
from discreet.training import PrivateRun, WeightAverage

__all__ = ["RECIPES"]

BUCKETS, LENGTH = 2**16, 320
STEPS = 40  # each with all records
CLIP_NORM = 0.2
LEARNING_RATE, PLAIN_LEARNING_RATE = 800.0, 800.0
COUNT_NOISE = 8.0  # noise multiplier of the counts, and half the smallest count that is believed
WORDS = 144.0  # different words of a typical review


@dataclass(frozen=True, slots=True)
class Reviews:
    """Hashed words, which places are taken, and whether the review is good."""

    train: TensorDataset
    test: TensorDataset


def prepare(folder: Path) -> Reviews:
    """Each review as a bag. The file has the four parts of the data set in order: test, train
    (bad), test, train (good).
    """
    rows = [json.loads(str(row)) for row in load(folder, "imdb")["rows"]]
    quarter = len(rows) // 4

    def part(first: int) -> TensorDataset:
        chosen = [
            row
            for start in (first, first + 2)
            for row in rows[start * quarter : (start + 1) * quarter]
        ]
        words, taken = bags([row["t"] for row in chosen], buckets=BUCKETS, length=LENGTH)
        labels = torch.tensor([float(row["s"]) for row in chosen])
        return TensorDataset(torch.from_numpy(words), torch.from_numpy(taken), labels)

    return Reviews(part(1), part(0))


def loss(model: nn.Module, batch: list[Tensor]) -> Tensor:
    """Cross entropy of each review."""
    words, weights, labels = batch
    scores = model(words, per_sample_weights=weights).squeeze(1)
    return functional.binary_cross_entropy_with_logits(scores, labels, reduction="none")


def presence(model: nn.Module, batch: list[Tensor]) -> Tensor:
    """The score itself, of the bag at length 1: its gradient is that bag, so that a step on all
    records counts words.
    """
    words, taken, _ = batch
    scores: Tensor = model(words, per_sample_weights=functional.normalize(taken))
    return scores.squeeze(1)


def train(
    prepared: Reviews, target: Target | None, ledger: Path, source: Source | None = None
) -> float:
    """Counts of words, then gradient descent on all records at once, and the average of the later
    half of the weights.
    """
    records = len(prepared.train)
    counting, model = bag(), bag()
    if target is None:
        counts = counted(counting, PlainRun(counting, batch_size=records, steps=1), prepared.train)
        rarity = rarity_of(counts, records, least=1.0)
        descend(
            model,
            PlainRun(model, batch_size=records, steps=STEPS),
            weighted(prepared.train, rarity),
        )
    else:
        looking, training = plan(records, 1, 1.0, COUNT_NOISE), plan(records, STEPS, CLIP_NORM, 1.0)
        programme = dp.Programme({"words": looking, "training": training})
        programme = programme.calibrated(
            epsilon=target.epsilon, delta=target.delta, scale=["training"]
        )
        with dp.Ledger.open(
            ledger, budget=dp.Budget(plans=programme)
        ) as book:  # both are fixed before the first answer
            run = PrivateRun(
                counting, programme["words"], ledger=book, label="words"
            )  # a source serves one run only
            rarity = rarity_of(
                counted(counting, run, prepared.train), records, least=2.0 * COUNT_NOISE
            )
            run = PrivateRun(
                model, programme["training"], ledger=book, source=source, label="training"
            )
            descend(model, run, weighted(prepared.train, rarity))
    return accuracy(model, weighted(prepared.test, rarity))


def plan(records: int, steps: int, clip_norm: float, noise_multiplier: float) -> dp.Plan:
    """All records in every step."""
    sampler = dp.Sampler(dp.Everything(), records=records, steps=steps)
    return dp.Plan(
        sampler=sampler, mechanism=dp.Groups({"grad/*": dp.Gaussian(clip_norm, noise_multiplier)})
    )


def bag() -> nn.EmbeddingBag:
    """One weight for each bucket; the score of a review is the weighted sum."""
    model = nn.EmbeddingBag(BUCKETS, 1, mode="sum")
    nn.init.zeros_(model.weight)
    return model


def counted(model: nn.EmbeddingBag, run: PrivateRun | PlainRun, reviews: TensorDataset) -> Tensor:
    """How many reviews have a word of each bucket, each review with weight 1 / sqrt(its different
    words).
    """
    with run:
        for batch in run.batches(reviews):
            run.backward(presence, batch)  # type: ignore[arg-type]
    gradient = model.weight.grad
    return torch.zeros(BUCKETS) if gradient is None else gradient.squeeze(1) * len(reviews)


def rarity_of(counts: Tensor, records: int, least: float) -> Tensor:
    """log(records / reviews with the word), from 0.05 on; smaller counts than `least` are taken for
    `least`.
    """
    return torch.log(records / (math.sqrt(WORDS) * counts.clamp_min(least))).clamp_min(0.05)


def weighted(reviews: TensorDataset, rarity: Tensor) -> TensorDataset:
    """Bags of length 1 in which rare words weigh more."""
    words, taken, labels = reviews.tensors
    return TensorDataset(words, functional.normalize(taken * rarity[words]), labels)


def descend(model: nn.EmbeddingBag, run: PrivateRun | PlainRun, reviews: TensorDataset) -> None:
    """Gradient descent; the model ends as the average over the later half of the steps."""
    rate = PLAIN_LEARNING_RATE if isinstance(run, PlainRun) else LEARNING_RATE
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    average = WeightAverage(model, start=STEPS // 2)
    with run:
        for batch in run.batches(reviews):
            run.backward(loss, batch)  # type: ignore[arg-type]
            optimizer.step()
            optimizer.zero_grad()
            average.update()
    average.copy_to(model)


@torch.no_grad()
def accuracy(model: nn.EmbeddingBag, reviews: TensorDataset) -> float:
    """The share of reviews whose score has the right sign."""
    words, weights, labels = reviews.tensors
    return float(
        ((model(words, per_sample_weights=weights).squeeze(1) > 0) == (labels > 0.5))
        .double()
        .mean()
    )


RECIPES = (
    Recipe(
        name="imdb",
        data_set="imdb",
        model="Different words hashed into 65,536 buckets, weighted by rarity (private counts), "
        "one weight for each bucket; "
        "all records in every step, weights averaged over the later half.",
        epsilons=(3.0,),
        goals=(Goal(3.0, gap=0.04),),
        tuned="buckets, weighting, noise of the counts, steps, clip norm and learning rate, at "
        "epsilon 3, on the last 2,500 "
        "training reviews of each class; not charged.",
        without_privacy=(
            "the same bags with exact counts and the same loop, without clipping and noise."
        ),
        prepare=prepare,
        train=train,
    ),
)
