"""The share of records that a model gets right."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.data import TensorDataset

__all__ = ["accuracy"]


@torch.no_grad()
def accuracy(model: nn.Module, test: TensorDataset, rows: int = 2_000) -> float:
    """From 0 to 1.

    Args:
        model: inputs to one score for each class.
        test: inputs and labels.
        rows: at a time.
    """
    inputs, labels = (torch.split(tensor, rows) for tensor in test.tensors)
    right = [
        int((model(some).argmax(1) == truth).sum())
        for some, truth in zip(inputs, labels, strict=True)
    ]
    return sum(right) / len(test)
