"""State that is public moves once a step, whatever holds it: how many passes a step takes depends
on how many records there are (T09).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from couplings.scenes import FEATURES, Pair
from discreet.training.engine import Engine
from support.neighbours import moved


class Doubled(Pair):
    """Two vectors that are added to the records, and may change places."""

    def __init__(self) -> None:
        super().__init__()
        self.plus: Tensor
        self.minus: Tensor
        self.register_buffer("plus", torch.ones(FEATURES))
        self.register_buffer("minus", -torch.ones(FEATURES))
        self.same = nn.Identity()
        self.turned = nn.Threshold(1e9, -1.0)

    def sign(self) -> Tensor:
        return self.plus[:1]


def _toggled(model: Any, batch: Any) -> Any:
    model.train(not model.training)
    return model(batch[0]) * (1.0 if model.training else -1.0)


def _submodules_swapped(model: Any, batch: Any) -> Any:
    model.same, model.turned = model.turned, model.same
    return model(model.same(batch[0]))


def _buffer_set(model: Any, batch: Any) -> Any:
    model.plus.set_(-model.plus)
    return model(batch[0]) * model.sign()


def _tensors_swapped(model: Any, batch: Any) -> Any:
    torch.utils.swap_tensors(model.plus, model.minus)  # type: ignore[no-untyped-call]
    return model(batch[0]) * model.sign()


class Criterion(nn.Module):
    """Counts its calls, as a warm-up does."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, model: Any, batch: Any) -> Any:
        self.calls += 1
        return model(batch[0]) * (1.0 if self.calls % 2 else -1.0)


def _with_criterion() -> Callable[..., Any]:
    criterion = Criterion()

    def loss(model: Any, batch: Any) -> Any:
        return 1.0 * criterion(model, batch)

    return loss


LOSSES: dict[str, Callable[[], Callable[..., Any]]] = {
    "training mode": lambda: _toggled,
    "submodules": lambda: _submodules_swapped,
    "a buffer set": lambda: _buffer_set,
    "tensors swapped": lambda: _tensors_swapped,
    "a criterion in a closure": _with_criterion,
    "a criterion": Criterion,
}


@pytest.mark.parametrize("name", LOSSES)
def test_t09_public_state_moves_once_a_step_wherever_it_is(name: str) -> None:
    distance, _ = moved(LOSSES[name], make=Doubled)
    assert distance <= 1.001


def test_a_trial_leaves_the_mode_of_a_model_as_it_is() -> None:
    """A loss that looks at a model in eval mode first, and forgets to go back."""
    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 1))

    def loss(model: Any, batch: Any) -> Any:
        modes.append(model.training)
        model.eval()
        return model(batch[0]).squeeze(1)

    modes: list[bool] = []
    list(Engine(model).passes(loss, (torch.randn(4, 3),), 4, 4))
    assert modes
    assert all(modes)
