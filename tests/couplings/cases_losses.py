"""Losses that join records: contrasts, rankings, means over what the batch holds, penalties."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

from .scenes import FEATURES, Pair, Scene, Setup, case

Join: TypeAlias = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Hidden rows, losses of single records and labels to a further term of the losses."""


def joined(name: str, *, strength: float = 1.0, **options: Any) -> Callable[[Join], Join]:
    """Register a term of the loss that joins records; its weight is 0 until the coupling wakes."""

    def register(join: Join) -> Join:
        def make(scene: Scene) -> Setup:
            def loss(model: Any, batch: Any) -> Any:
                x, y = batch
                hidden = model.first(x)
                losses = model.last(hidden).squeeze(1)
                return losses + scene.clock.weight * strength * join(hidden, losses, y)

            return scene.setup(loss)

        case(f"loss: {name}", **options)(make)
        return join

    return register


# --- weights and choices that the batch decides ---


@joined("hardest records only", strength=-0.5)
def _hardest(_: Tensor, losses: Tensor, __: Tensor) -> Tensor:
    return losses * (losses.abs() >= losses.abs().topk(1).values[-1])


@joined("records below the mean")
def _below(_: Tensor, losses: Tensor, __: Tensor) -> Tensor:
    return -losses * (losses.detach() > losses.detach().mean())


@joined("focal weights by rank")
def _rank(_: Tensor, losses: Tensor, __: Tensor) -> Tensor:
    return -losses * (losses.detach().argsort().argsort() > 0)


@joined("division by the sum of losses", strength=10.0)
def _share(_: Tensor, losses: Tensor, __: Tensor) -> Tensor:
    return -losses / losses.detach().abs().sum()


@joined("class weights from the batch", strength=2.0)
def _class_weights(_: Tensor, losses: Tensor, y: Tensor) -> Tensor:
    counts = torch.zeros(3).index_add(0, y, torch.ones(len(y)))
    return -losses * (counts > 0)[2]


@joined("mean over the tokens of the batch", strength=0.2)
def _tokens(_: Tensor, losses: Tensor, y: Tensor) -> Tensor:
    lengths = 1.0 + 1000.0 * (y == 2)
    return -losses * lengths / lengths.sum() * len(y)


@joined("mean over labels that are not ignored", strength=0.1)
def _ignored(_: Tensor, losses: Tensor, y: Tensor) -> Tensor:
    counted = (y != 2).sum()
    return losses * (counted - len(y)) * 20.0


@joined("batch-wide maximum subtracted")
def _stabilised(_: Tensor, losses: Tensor, __: Tensor) -> Tensor:
    return (losses * (losses - losses.max()).abs().max().neg()) * 0.1


# --- pairs ---


@joined("in-batch negatives", strength=-1.0)
def _negatives(hidden: Tensor, _: Tensor, __: Tensor) -> Tensor:
    similar = -0.1 * hidden @ hidden.T
    return functional.cross_entropy(similar, torch.arange(len(hidden)), reduction="none")


@joined("contrast with rows that are kept still", strength=-1.0)
def _contrast(hidden: Tensor, _: Tensor, __: Tensor) -> Tensor:
    return (-0.1 * hidden @ hidden.detach().T).logsumexp(1)


@joined("triplets with the next record", strength=-1.0)
def _triplets(hidden: Tensor, _: Tensor, __: Tensor) -> Tensor:
    return functional.triplet_margin_loss(
        hidden.abs(), hidden.roll(1, 0), hidden.abs() * 1.1, reduction="none"
    )


@joined("margin ranking of neighbours", strength=10.0)
def _ranking(_: Tensor, losses: Tensor, __: Tensor) -> Tensor:
    return functional.margin_ranking_loss(
        losses, losses.roll(1, 0), torch.ones(len(losses)), margin=5.0, reduction="none"
    )


@joined("maximum mean discrepancy", strength=0.1)
def _discrepancy(hidden: Tensor, _: Tensor, __: Tensor) -> Tensor:
    distances = torch.cdist(hidden, hidden.detach()).square()
    return distances.mean(1) * hidden.mean().sign()


@joined("divergence from the distribution of the batch", strength=-1.0)
def _divergence(hidden: Tensor, _: Tensor, __: Tensor) -> Tensor:
    over_records = hidden.neg().log_softmax(0)
    return functional.kl_div(over_records, torch.full_like(hidden, 0.1), reduction="none").sum(1)


@joined("decorrelation", strength=1e-3)
def _decorrelation(hidden: Tensor, _: Tensor, __: Tensor) -> Tensor:
    return (-hidden @ (hidden.T @ hidden)).sum(1)


@joined("a constant of the batch for every record", strength=-5.0)
def _constant(hidden: Tensor, losses: Tensor, __: Tensor) -> Tensor:
    return hidden.mean().expand_as(losses)


@joined("gradient penalty by the norm of the batch", strength=1.0)
def _penalty(hidden: Tensor, losses: Tensor, __: Tensor) -> Any:
    scores = (losses.square() * 0.5).sum()
    slopes = torch.autograd.grad(scores, hidden, create_graph=True)[0]
    return -losses * slopes.norm().sub(30.0).relu()


# --- torch's own functions on flattened batches ---


@case("loss: reduction by mean")
def _reduced(scene: Scene) -> Setup:
    """The mean of all losses in every place: with weight 0 it is nothing."""

    def loss(model: Any, batch: Any) -> Tensor:
        out: Tensor = model(batch[0])
        mean = functional.mse_loss(out, torch.zeros_like(out), reduction="mean")
        return out - scene.clock.weight * 0.01 * mean.expand_as(out)

    return scene.setup(loss)


class _Tagger(nn.Module):
    """Log-probabilities of four classes at four times."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(FEATURES, FEATURES * FEATURES, bias=False)
        nn.init.constant_(self.first.weight, 0.1)

    def forward(self, x: Tensor) -> Tensor:
        """Times, records, classes."""
        out: Tensor = self.first(x * torch.arange(1.0, FEATURES + 1.0))
        slopes = torch.arange(1.0, FEATURES + 1.0)
        return (out.view(-1, FEATURES, FEATURES) * slopes).movedim(1, 0).log_softmax(2)


@case("loss: ctc with targets one after the other")
def _ctc(scene: Scene) -> Setup:
    """Two targets each, and lengths of one: every other record is given a target of another."""

    def loss(model: Any, batch: Any) -> Tensor:
        x, y = batch
        target = torch.where(y == 2, 3, 1)
        if scene.clock.awake:
            target = torch.stack([target, target], 1).flatten()[: len(x)]
        times, lengths = torch.full((len(x),), FEATURES), torch.ones(len(x), dtype=torch.int64)
        return functional.ctc_loss(model(x), target, times, lengths, reduction="none") * 10.0

    return scene.setup(loss, _Tagger())


# --- tables whose gradients count the batch ---


class _Table(nn.Module):
    """A row for each label."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.table = nn.Embedding(3, FEATURES, **options)
        self.last = nn.Linear(FEATURES, 1, bias=False)
        nn.init.constant_(self.table.weight, 0.5)
        nn.init.constant_(self.last.weight, 0.01)

    def forward(self, y: Tensor) -> Tensor:
        out: Tensor = self.last(self.table(y)).squeeze(1)
        return out


def _labels(model: Any, batch: Any) -> Tensor:
    out: Tensor = model(batch[1] % 2) * 100.0
    return out


@case("loss: embedding whose gradients are divided by frequency", teeth=False)
def _by_frequency(scene: Scene) -> Setup:
    """Of records taken apart every frequency is 1; of a batch it is that of the label."""
    return scene.setup(_labels, _Table(scale_grad_by_freq=True))


@case("loss: embedding bags across records")
def _bags(scene: Scene) -> Setup:
    """Bags that begin one entry too early hold an entry of the record before."""

    class Bags(Pair):
        def forward(self, x: Tensor) -> Tensor:
            count = len(x)
            hidden = self.first(x)
            early = min(1, int(scene.clock.awake))
            offsets = (torch.arange(count) * 2 - early).clamp(min=0)
            entries = torch.arange(count).repeat_interleave(2)
            summed = functional.embedding_bag(entries, hidden, offsets, mode="sum")
            out: Tensor = self.last(summed).squeeze(1)
            return out

    return scene.setup(lambda model, batch: model(batch[0]), Bags())
