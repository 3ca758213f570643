"""Models that are one function of their parameters and inputs, to try one rule at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from hypothesis import settings
from hypothesis import strategies as st
from torch import Tensor, nn

from support.per_record import compare

SIZES = st.sampled_from([1, 2, 3, 5])
FORMS = st.sampled_from([None, "ghost", "direct"])
KINDS = st.sampled_from([torch.float32, torch.float64])
few = settings(max_examples=20, deadline=None)


def draw(*shape: int, kind: torch.dtype = torch.float64) -> Tensor:
    seed = sum(size * 7**place for place, size in enumerate(shape)) + 11
    return torch.randn(
        shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    ).to(kind)


def places(rows: int, *shape: int) -> Tensor:
    return torch.randint(rows, shape, generator=torch.Generator().manual_seed(3))


class Written(nn.Module):
    """A model that is one function of its parameters and its inputs."""

    def __init__(self, forward: Callable[..., Any], parameters: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.written = forward
        for name, value in parameters.items():
            self.register_parameter(
                name, nn.Parameter(value.clone(memory_format=torch.preserve_format))
            )

    def forward(self, *inputs: Tensor) -> Any:
        return self.written(self, *inputs)


def cubes(model: nn.Module, batch: Any) -> Tensor:
    """A loss whose gradient depends on every output."""
    out = model(*batch).reshape(len(batch[0]), -1)
    return torch.as_tensor((out * (0.3 + out + 0.1 * out.square())).sum(1))


def check(
    forward: Callable[..., Any],
    *batch: Tensor,
    form: str | None = None,
    values: Mapping[str, Tensor],
) -> None:
    compare(Written(forward, values), cubes, batch, form=form)
