"""What a loss and a model reach, and what is left alone."""

from __future__ import annotations

import logging
import threading
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

from discreet.errors import ModelError
from discreet.training.data.copies import augmented
from discreet.training.state import reach
from discreet.training.state.reach import Reach, attributes_of, modules_of, parameters_of

COUNTS = [0]


def reached(model: nn.Module | None = None, function: Any = None) -> list[Any]:
    return [holder for _, holder in Reach(model or nn.Linear(1, 1), function).holders]


def _is_reached(thing: Any, function: Any = None, model: nn.Module | None = None) -> bool:
    return any(holder is thing for holder in reached(model, function))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.history: list[int] = []
        self.inner = nn.Sequential(nn.ReLU())

    def forward(self, x: Any) -> Any:
        return self.counted(x)

    def counted(self, x: Any) -> Any:
        COUNTS[0] += 1
        return self.layer(x)


def test_modules_are_those_of_torch() -> None:
    model = Net()
    model.again = model.layer
    model.inner.add_module("none", None)
    assert modules_of(model)[0] is model
    assert {id(module) for module in modules_of(model)} == {id(m) for m in model.modules()}
    assert len(modules_of(model)) == len(list(model.modules()))


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
@pytest.mark.parametrize("compiled", [torch.jit.script, torch.jit.trace])
def test_modules_of_torch_jit_are_looked_at(compiled: Any) -> None:
    layers = nn.Sequential(nn.Linear(2, 2), nn.Tanh())
    body = compiled(layers) if compiled is torch.jit.script else compiled(layers, torch.ones(1, 2))
    model = nn.Sequential(body, nn.ReLU())
    assert len(modules_of(model)) == len(list(model.modules()))
    assert Reach(model).registers


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
@pytest.mark.parametrize("compiled", [False, True])
def test_parameters_are_those_of_torch(compiled: bool) -> None:
    layer: Any = nn.Linear(2, 3)
    layer.register_parameter("missing", None)
    model = torch.jit.script(layer) if compiled else layer
    present = [parameter for parameter in parameters_of(model) if parameter is not None]
    truth = list(model.parameters(recurse=False))
    assert len(present) == len(truth) == 2
    assert all(map(torch.equal, present, truth))


def test_attributes_and_methods_of_a_model_are_reached() -> None:
    model = Net()
    assert _is_reached(model.history, model=model)
    assert _is_reached(COUNTS, model=model)  # by a method that forward calls
    assert any(entries is model._parameters for entries in Reach(model).registers)


@dataclass
class Trainer:
    """Holds what a loop needs, one thing within the other."""

    state: dict[str, Any] = field(default_factory=lambda: {"inner": ([0],)})
    lock: Any = field(default_factory=threading.Lock)
    seen: deque[int] = field(default_factory=deque)

    def loss(self, model: Any, batch: Any) -> Any:
        return model(batch)


def test_objects_are_followed_through_their_containers() -> None:
    trainer = Trainer()
    for thing in (vars(trainer), trainer.state, trainer.state["inner"][0], trainer.seen):
        assert _is_reached(thing, trainer.loss)
        assert _is_reached(thing, partial(trainer.loss, batch=1))
        assert _is_reached(thing, lambda model, batch: 2 * trainer.loss(model, batch))


def test_a_loss_of_our_own_shows_those_of_the_user() -> None:
    trainer, counts = Trainer(), [0]

    def augment(rows: Any) -> Any:
        counts[0] += 1
        return rows

    loss = augmented(trainer.loss, augment, copies=2)
    assert _is_reached(trainer.state, loss)
    assert _is_reached(counts, loss)


def test_what_is_not_theirs_is_left_alone() -> None:
    logger, optimizer = logging.getLogger("here"), torch.optim.SGD(nn.Linear(1, 1).parameters())

    def loss(model: Any, batch: Any) -> Any:
        logger.debug("a step")
        return model(batch), optimizer

    assert not _is_reached(vars(logger), loss)
    assert not _is_reached(vars(optimizer), loss)


def test_very_many_entries_are_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach, "LARGE", 3)
    rows = [[0] for _ in range(4)]
    assert _is_reached(rows, lambda model, batch: model(rows))
    assert not _is_reached(rows[0], lambda model, batch: model(rows))


def test_a_circle_ends() -> None:
    ring: list[Any] = [0]
    ring.append(ring)
    assert reached(function=lambda model, batch: model(ring)).count(ring) >= 1


def test_attributes_are_those_of_the_object_or_its_slots() -> None:
    class Slotted:
        __slots__ = ("one",)

    trainer, slotted = Trainer(), Slotted()
    assert attributes_of(trainer, Trainer) is vars(trainer)
    assert attributes_of(slotted, Slotted) == {"one": None}
    local = threading.local()
    local.value = 3
    assert attributes_of(local, threading.local)["value"] == 3


def test_more_than_can_be_noted_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach, "_MOST", 100)
    rows = [[0] for _ in range(200)]
    with pytest.raises(ModelError, match="reach at most 100 objects"):
        reached(function=lambda model, batch: model(rows))


def test_a_chain_without_end_is_followed_to_its_end() -> None:
    last: list[Any] = [0]
    chain = last
    for _ in range(3000):  # more than Python's own limit of calls
        chain = [chain]
    assert _is_reached(last, lambda model, batch: model(chain))
