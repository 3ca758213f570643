"""What a model must not hold after a pass, wherever it hides it."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from discreet.errors import CoupledRecords
from discreet.training.separation.kept import refuse_kept
from discreet.training.separation.marks import forget
from discreet.training.separation.proof import Proof
from discreet.training.separation.states import Rows

B = 4


class Free:
    """An object of a user's own."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


@dataclass(slots=True)
class Slotted:
    tensor: Tensor


class Net(nn.Module):
    """Keeps what it computed, in a way that a test chooses."""

    cache: Any
    calls: int
    old: Any
    shape: torch.Size

    def __init__(self, keep: Callable[[Net, Tensor], None]) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self.inner = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
        self.register_buffer("seen", torch.zeros(2))
        self.frozen = nn.Parameter(torch.zeros(2), requires_grad=False)
        self.history: list[Any] = []
        self.table: dict[Any, Any] = {}
        self.hidden = [nn.Sequential(nn.Linear(2, 2))]
        self.keep = keep

    def forward(self, x: Tensor) -> Tensor:
        hidden: Tensor = self.inner(self.layer(x))
        self.keep(self, hidden)
        return hidden.sum(1)


def run_pass(model: nn.Module) -> None:
    proof = Proof(B)
    records = proof.begin(torch.randn(B, 3), Rows(0))
    with proof:
        model(records)


def set_data(model: Net, hidden: Tensor) -> None:
    model.frozen.data = hidden.detach()[0]


def set_gradient(model: Net, hidden: Tensor) -> None:
    model.frozen.grad = hidden.detach()[0]


def add_child(model: Net, hidden: Tensor) -> None:
    child = nn.Module()
    child.register_buffer("row", hidden.detach())
    model.child = child


def keep_in_thread(model: Net, hidden: Tensor) -> None:
    model.cache = threading.local()
    model.cache.tensor = hidden


def deep(model: Net, hidden: Tensor) -> None:
    model.cache = Free(torch.zeros(1))
    model.cache.layers = [Free(hidden)]


PLACES: dict[str, tuple[Callable[[Net, Tensor], Any], str]] = {
    "attribute": (lambda m, h: setattr(m, "last", h), "last"),
    "detached": (lambda m, h: setattr(m, "last", h.detach().clone()), "last"),
    "view": (lambda m, h: setattr(m, "last", h[:1, 0]), "last"),
    "statistic": (lambda m, h: setattr(m, "last", h.mean()), "last"),
    "attribute of a layer": (lambda m, h: setattr(m.inner[1], "last", h), "inner.1.last"),
    "buffer": (lambda m, h: setattr(m, "seen", h.detach()[0]), "seen"),
    "new buffer": (lambda m, h: m.register_buffer("bank", h.detach()), "bank"),
    "parameter": (lambda m, h: setattr(m, "frozen", nn.Parameter(h.detach())), "frozen"),
    "data of a parameter": (set_data, "frozen"),
    "gradient": (set_gradient, "frozen.grad"),
    "new module": (add_child, "child.row"),
    "list": (lambda m, h: m.history.append(h), "history"),
    "list of pairs": (lambda m, h: m.history.append((1, {"a": h})), "history"),
    "dict": (lambda m, h: m.table.update(a=h), "table"),
    "key": (lambda m, h: m.table.update({h: 1}), "table"),
    "many entries": (lambda m, h: m.table.update(dict.fromkeys(range(5000)) | {7: h}), "table"),
    "deque": (lambda m, h: setattr(m, "queue", deque([h], 3)), "queue"),
    "set": (lambda m, h: setattr(m, "bag", {h}), "bag"),
    "ordered": (lambda m, h: setattr(m, "outputs", OrderedDict(a=h)), "outputs"),
    "object": (lambda m, h: setattr(m, "thing", Free(h)), "thing.tensor"),
    "slots": (lambda m, h: setattr(m, "thing", Slotted(h)), "thing.tensor"),
    "thread": (keep_in_thread, "cache.tensor"),
    "cache with layers": (deep, "cache.layers"),
    "hidden module": (lambda m, h: setattr(m.hidden[0][0], "last", h), "not registered.last"),
}


@pytest.mark.parametrize("kind", PLACES)
def test_every_place_is_found_and_named(kind: str) -> None:
    keep, place = PLACES[kind]
    model = Net(keep)
    refuse_kept(model)
    run_pass(model)
    with pytest.raises(CoupledRecords, match=place.replace(".", r"\.")) as caught:
        refuse_kept(model)
    assert "build it again" in caught.value.do


def test_what_is_public_may_stay() -> None:
    def keep(model: Net, hidden: Tensor) -> None:
        model.norm = model.layer.weight.norm()
        model.shape = hidden.shape
        model.noise = torch.randn(2)
        model.history.append(model.layer.weight * 2)
        model.calls = len(model.history)

    model = Net(keep)
    for _ in range(3):
        run_pass(model)
        refuse_kept(model)


def test_what_was_released_may_stay() -> None:
    model = Net(lambda m, h: setattr(m, "last", h.mean()))
    run_pass(model)
    last: Any = model.last
    forget(last)
    refuse_kept(model)


def test_keys_are_not_named() -> None:
    model = Net(lambda m, h: m.table.update({"Mrs. Jones": h}))
    run_pass(model)
    with pytest.raises(CoupledRecords) as caught:
        refuse_kept(model)
    assert "Jones" not in str(caught.value)


def test_a_loop_of_objects_ends() -> None:
    def keep(model: Net, hidden: Tensor) -> None:
        model.history.append(model.history)
        model.table["model"] = model

    model = Net(keep)
    run_pass(model)
    refuse_kept(model)
