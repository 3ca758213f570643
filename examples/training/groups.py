"""Gradients, the training accuracy and the statistics of batch normalisation: groups of one plan,
one sample, one charge.

python examples/training/groups.py

A step releases all of them with noise. The adaptive group finds its clip norm while it trains. The
accuracy that is printed on the way, and that goes to groups.csv, is the private one: a curve of the
exact accuracy would be a release that nobody accounts for.
"""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import TensorDataset

import discreet as dp
from discreet import training
from discreet.recipes import plan_with_scaled_noise

EPSILON, DELTA = 3.0, 1e-5
MECHANISM = (
    dp.Groups(  # noise multipliers are proportions: how much of it the target allows is found below
        {
            "grad/first.*": dp.Gaussian(clip_norm=0.5, noise_multiplier=2.0),
            "grad/*": dp.AdaptiveClip(
                dp.Gaussian(clip_norm=1.0, noise_multiplier=1.0), quantile=0.5, count_noise_std=10.0
            ),
            "metric/accuracy": dp.Gaussian(clip_norm=1.0, noise_multiplier=12.0),
            "bn/*": dp.Gaussian(clip_norm=1.0, noise_multiplier=5.0),
        }
    )
)


class Network(nn.Module):
    """A small convolutional network with batch normalisation."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 16, 5)
        self.norm = nn.BatchNorm2d(16)
        self.last = nn.Linear(16 * 16, 10)

    def forward(self, images: Tensor) -> Tensor:
        """Scores of the ten digits."""
        out: Tensor = self.last(torch.tanh(self.norm(self.first(images))).flatten(1))
        return out


def digits() -> tuple[TensorDataset, TensorDataset]:
    """1437 images to train on, 360 to test on; 8 x 8 pixels from 0 to 1."""
    pixels, labels = (torch.from_numpy(part) for part in load_digits(return_X_y=True))
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    images = pixels.float().reshape(-1, 1, 8, 8) / 16.0
    return TensorDataset(images[order[:1437]], labels[order[:1437]]), TensorDataset(
        images[order[1437:]], labels[order[1437:]]
    )


def loss(model: nn.Module, batch: list[Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
    """Cross entropy of each record, and whether it was classified correctly."""
    images, labels = batch
    scores = model(images)
    right = (scores.argmax(1) == labels).float()
    return functional.cross_entropy(scores, labels, reduction="none"), {"metric/accuracy": right}


@torch.no_grad()
def accuracy(model: nn.Module, test: TensorDataset) -> float:
    """The part of the images that the model gets right; with the released statistics, as in
    training.
    """
    images, labels = test.tensors
    return float((model.eval()(images).argmax(1) == labels).float().mean())


def main() -> None:
    """Train, then test."""
    train, test = digits()
    model = Network()
    sampler = dp.Sampler(dp.Poisson(256 / len(train)), records=len(train), steps=120)
    plan = plan_with_scaled_noise(
        dp.Plan(sampler=sampler, mechanism=MECHANISM), epsilon=EPSILON, delta=DELTA
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, plan.steps)
    logs = [training.CsvLog("groups.csv")]
    with training.PrivateRun(
        model, plan, ledger="groups.ledger", statistics={"metric/accuracy": 1}, logs=logs
    ) as run:
        print(run.plan.explain())
        seen = 0.0
        for batch in run.batches(train):
            released = run.backward(loss, batch)
            optimizer.step()
            optimizer.zero_grad()
            scheduler.step()
            seen += float(released.mean("metric/accuracy")[0])
            if run.step % 20 == 0:
                print(
                    (
                        f"steps {run.step - 19:3} to {run.step:3}: private training accuracy "
                        f"{seen / 20:.0%}, "
                    ),
                    end="",
                )
                print(f"clip norm {run.state['grad/*']:.2f}")
                seen = 0.0
        print(f"\n{run.guarantee()}\n")
    print(f"test accuracy {accuracy(model, test):.1%}")


if __name__ == "__main__":
    main()
