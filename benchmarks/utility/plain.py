"""The loop of a private run without privacy: the same calls, random batches of a fixed size, no
clipping, no noise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

__all__ = ["PlainBatch", "PlainRun"]


@dataclass(frozen=True, slots=True)
class PlainBatch:
    """Rows of the data set, and the number of the step."""

    step: int
    data: Sequence[Tensor]


class PlainRun:
    """In the place of `PrivateRun`, so that a recipe has one loop for both.

    Args:
        model: what is trained.
        batch_size: rows of each batch, drawn without replacement.
        steps: number of batches.
    """

    def __init__(self, model: nn.Module, *, batch_size: int, steps: int) -> None:
        self._model = model
        self._batch_size = batch_size
        self._steps = steps

    def batches(self, dataset: TensorDataset, **_: object) -> Iterator[PlainBatch]:
        """Batches at random; options of a private run change nothing here."""
        for step in range(self._steps):
            rows = torch.randperm(len(dataset))[: self._batch_size]
            yield PlainBatch(step, [tensor[rows] for tensor in dataset.tensors])

    def backward(self, loss: Callable[[nn.Module, Any], Tensor], batch: PlainBatch) -> None:
        """The gradient of the average loss."""
        loss(self._model, batch.data).mean().backward()  # type: ignore[no-untyped-call]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...
