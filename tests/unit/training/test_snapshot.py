"""What only looks at a model leaves it as it was: the same objects with the same contents."""
# ruff: noqa: NPY002  (models draw from NumPy's global generator)

from __future__ import annotations

import random
from collections import Counter, deque
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from discreet.training.snapshot import Snapshot, unchanged


class Holding(nn.Module):
    """A module with something of every kind."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 1)
        self.frozen = nn.Parameter(torch.zeros(2), requires_grad=False)
        self.register_buffer("running", torch.zeros(2))
        self.register_buffer("expanded", torch.zeros(1).expand(4))
        self.calls = 0
        self.seen: list[Any] = [1, [2]]
        self.by_name: dict[str, Any] = {"a": [1], "n": Counter(x=2)}
        self.kinds = {1, 2}
        self.last = deque([1, 2], maxlen=2)
        self.array = np.zeros(2)
        self.own = torch.Generator().manual_seed(1)
        self.pythons = random.Random(1)
        self.numpys = np.random.default_rng(1)
        self.note = SimpleNamespace(count=0, past=[0])
        self.hidden = [nn.Linear(1, 1)]  # not registered


def contents(model: Any) -> list[Any]:
    """Everything that a change of `Holding` could be seen by."""
    tensors = [*model.parameters(), *model.buffers(), *model.hidden[0].parameters()]
    return [
        *[tensor.tolist() for tensor in tensors],
        *[tensor.requires_grad for tensor in tensors],
        *[None if tensor.grad is None else tensor.grad.tolist() for tensor in tensors],
        [module.training for module in model.modules()],
        sorted(vars(model)),
        (
            model.calls,
            str(model.seen),
            str(model.by_name),
            model.kinds,
            model.last,
            model.array.tolist(),
        ),
        (
            model.own.get_state().tolist(),
            model.pythons.getstate(),
            model.numpys.bit_generator.state,
        ),
        str(model.note),
    ]


def write_numbers(model: Any) -> None:
    with torch.no_grad():
        for tensor in (
            model.frozen,
            model.running,
            model.expanded[:1],
            model.layer.weight,
            model.hidden[0].weight,
        ):
            tensor.add_(1.0)
    model.array += 1.0


def write_memory(model: Any) -> None:
    model.layer.weight.data = torch.ones(1, 2)
    model.running = torch.ones(3)
    model.layer.bias = nn.Parameter(torch.ones(1))


def write_gradients(model: Any) -> None:
    model.layer.weight.grad.add_(1.0)
    model.layer.bias.grad = torch.ones(1)
    model.frozen.requires_grad_()
    model.layer.bias.requires_grad_(requires_grad=False)


def write_attributes(model: Any) -> None:
    model.calls += 1
    model.new = 1
    model.seen[1].append(3)
    model.seen.append(4)
    model.by_name["a"].append(2)
    model.by_name["n"].update("xy")
    del model.by_name["a"]
    model.kinds.add(3)
    model.last.append(3)
    model.note.count += 1
    model.note.past.clear()
    model.eval()


def draw(model: Any) -> None:
    torch.rand(1, generator=model.own)
    model.pythons.random()
    model.numpys.random()


@pytest.mark.parametrize(
    "change",
    [write_numbers, write_memory, write_gradients, write_attributes, draw],
    ids=lambda change: change.__name__,
)
def test_everything_is_put_back(change: Any) -> None:
    model = Holding()
    model.layer.weight.grad = torch.ones(1, 2)
    before, identities = contents(model), {name: id(value) for name, value in vars(model).items()}
    snapshot = Snapshot([model])
    change(model)
    assert contents(model) != before
    snapshot.put_back()
    assert contents(model) == before
    assert {name: id(value) for name, value in vars(model).items()} == identities


def test_memory_that_was_put_in_the_place_of_a_parameters_is_not_written() -> None:
    model, foreign = nn.Linear(2, 1), torch.ones(1, 2)
    snapshot = Snapshot([model])
    model.weight.data = foreign
    snapshot.put_back()
    assert foreign.tolist() == [[1.0, 1.0]]


def test_what_has_not_changed_is_not_written() -> None:
    model = Holding()
    versions = [tensor._version for tensor in model.state_dict().values()]
    with unchanged(model):
        pass
    assert [tensor._version for tensor in model.state_dict().values()] == versions


def test_global_generators_go_on_as_before_also_after_an_error() -> None:
    model = nn.Linear(1, 1)
    states = torch.get_rng_state().tolist(), str(np.random.get_state()), random.getstate()
    with pytest.raises(ValueError, match="of the block"), unchanged(model, "no module"):
        torch.rand(1)
        np.random.rand()
        random.random()
        raise ValueError("of the block")
    assert (torch.get_rng_state().tolist(), str(np.random.get_state()), random.getstate()) == states


def test_modules_that_hold_themselves_come_to_an_end() -> None:
    model = Holding()
    model.seen.append(model.seen)
    model.note.owner = model
    Snapshot([model]).put_back()
    assert model.seen[-1] is model.seen


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.LazyLinear(2),
        lambda: nn.Linear(2, 1, device="meta"),
        lambda: torch.jit.script(nn.Sequential(nn.Linear(2, 1))),
        lambda: nn.utils.parametrizations.weight_norm(nn.Linear(2, 1)),
    ],
)
def test_modules_of_other_kinds_are_left_alone(make: Any) -> None:
    model = make()
    names = [name for name, _ in model.named_parameters()]
    with unchanged(model):
        model.eval()
    assert model.training
    assert [name for name, _ in model.named_parameters()] == names
