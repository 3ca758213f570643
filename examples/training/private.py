"""Classify handwritten digits: `plain.py` is an ordinary training script, `private.py` the same
script with privacy.
"""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import TensorDataset

import discreet as dp
from discreet import training

EPOCHS, BATCH = 20, 256


def digits() -> tuple[TensorDataset, TensorDataset]:
    """1437 images to train on, 360 to test on; 8 x 8 pixels from 0 to 1."""
    pixels, labels = (torch.from_numpy(part) for part in load_digits(return_X_y=True))
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    images = pixels.float() / 16.0
    return TensorDataset(images[order[:1437]], labels[order[:1437]]), TensorDataset(
        images[order[1437:]], labels[order[1437:]]
    )


def loss(model: nn.Module, batch: list[Tensor]) -> Tensor:
    """Cross entropy."""
    images, labels = batch
    return functional.cross_entropy(model(images), labels, reduction="none")


@torch.no_grad()
def accuracy(model: nn.Module, test: TensorDataset) -> float:
    """The part of the images that the model gets right."""
    images, labels = test.tensors
    return float((model(images).argmax(1) == labels).float().mean())


def main() -> None:
    """Train, then test."""
    train, test = digits()
    model = nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10))
    plan = dp.Plan.dpsgd(
        records=1437, expected_batch_size=BATCH, epochs=EPOCHS, clip_norm=1, epsilon=3, delta=1e-5
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.4, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, plan.steps)
    with training.PrivateRun(model, plan, ledger="digits.ledger") as run:
        for batch in run.batches(train):
            run.backward(loss, batch)
            optimizer.step()
            optimizer.zero_grad()
            scheduler.step()
        print(run.guarantee())
    print(f"test accuracy {accuracy(model, test):.1%}")


if __name__ == "__main__":
    main()
