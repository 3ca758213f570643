"""State is noted before a pass, put back after it, and moved when the step ends."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from discreet.training.state.moved import Moved, Noted, refill


class Net(nn.Module):
    old: Any
    new: Any

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self.register_buffer("seen", torch.zeros(2))
        self.frozen = nn.Parameter(torch.zeros(2), requires_grad=False)
        self.history: list[int] = []


def test_what_a_pass_changed_is_put_back_and_can_be_written() -> None:
    model, calls = Net(), {"n": 0}
    model.old = "before"
    seen, frozen = model.get_buffer("seen"), model.frozen

    def loss(model: Any, batch: Any) -> Any:
        calls["n"] += 1
        return model(batch)

    noted, moved = Noted(model, loss), Moved()
    assert not moved
    model.new = 1
    model.old = "after"
    model.seen = torch.ones(2)
    model.frozen = nn.Parameter(torch.ones(2))
    model.history.append(1)
    calls["n"] += 1

    noted.put_back(moved)
    assert moved
    assert not hasattr(model, "new")
    assert model.old == "before"
    assert model.get_buffer("seen") is seen
    assert model.frozen is frozen
    assert (model.history, calls) == ([], {"n": 0})

    moved.write()
    assert (model.new, model.old, model.history, calls) == (1, "after", [1], {"n": 1})
    assert torch.equal(model.get_buffer("seen"), torch.ones(2))


def test_hooks_and_the_attribute_that_tells_of_them_move_together() -> None:
    """As transformers does it in the first forward pass of a model."""
    model = Net()
    earlier = model.layer.register_forward_hook(lambda *_: None)
    noted, moved = Noted(model), Moved()
    model.register_forward_hook(lambda *_: None)
    model.layer.register_forward_hook(lambda *_: None)
    model.new = True
    noted.put_back(moved)
    assert not hasattr(model, "new")
    assert not model._forward_hooks
    assert list(model.layer._forward_hooks) == [earlier.id]

    moved.write()
    assert model.new
    assert (len(model._forward_hooks), len(model.layer._forward_hooks)) == (1, 2)


def test_an_attribute_that_was_taken_away_comes_back() -> None:
    model = Net()
    model.old = 1
    noted, moved = Noted(model), Moved()
    del model.old
    noted.put_back(moved)
    assert model.old == 1
    moved.write()
    assert not hasattr(model, "old")


def test_memory_and_generators_are_written() -> None:
    tensor, generator = torch.zeros(2), torch.Generator()
    before = generator.get_state()
    torch.rand(1, generator=generator)
    after = generator.get_state()
    generator.set_state(before)
    content = torch.ones(4).untyped_storage()

    Moved(memory=[(tensor.untyped_storage(), content)], generators=[(generator, after)]).write()
    assert torch.equal(tensor, torch.ones(2))
    assert torch.equal(generator.get_state(), after)


@pytest.mark.parametrize("size", [2, 5])
def test_a_storage_is_refilled_whatever_its_size(size: int) -> None:
    storage = torch.zeros(3).untyped_storage()
    refill(storage, torch.ones(size).untyped_storage())
    assert storage.nbytes() == 4 * size


def test_what_was_noted_is_the_same_until_something_moves() -> None:
    model = nn.Linear(2, 1)
    noted = Noted(model)
    assert noted.is_same()
    model.bias.data.zero_()  # values are no objects
    assert noted.is_same()
    model.register_forward_hook(lambda *_: None)
    assert not noted.is_same()
    noted = Noted(model)
    counts = [1]
    vars(model)["counts"] = counts
    assert not noted.is_same()
    noted = Noted(model)
    counts.append(2)
    assert not noted.is_same()
