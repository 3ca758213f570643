"""The rule of recurrent layers: which calls it takes, and what it leaves to the loop."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from support.per_record import compare
from support.written import draw


class Last(nn.Module):
    """The last output of a recurrent layer."""

    def __init__(self, *, learned_start: bool = False) -> None:
        super().__init__()
        self.layer = nn.GRU(3, 2, batch_first=True).double()
        self.start = nn.Parameter(draw(1, 1, 2)) if learned_start else None

    def forward(self, x: Tensor) -> Tensor:
        start = None if self.start is None else self.start.expand(1, len(x), 2).contiguous()
        out: Tensor = self.layer(x, start)[0][:, -1]
        return out


def loss(model: nn.Module, batch: Any) -> Tensor:
    return torch.as_tensor(model(*batch).pow(3).sum(1))


@pytest.mark.parametrize("frozen", [(), ("weight_hh_l0",), ("weight_ih_l0", "bias_ih_l0")])
def test_weights_and_biases_are_uses_of_their_own(frozen: tuple[str, ...]) -> None:
    """Wrong: a frozen weight takes the gradient of its bias with it."""
    model = Last()
    for name in frozen:
        model.layer.get_parameter(name).requires_grad_(False)
    compare(model, loss, (draw(4, 5, 3),))


def test_a_start_that_is_learned_gets_its_gradient() -> None:
    """Wrong: the layer hands out the gradients of its maps, and none of its start."""
    compare(Last(learned_start=True), loss, (draw(4, 5, 3),))
