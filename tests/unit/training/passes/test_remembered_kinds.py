"""Kinds of things in which Python may keep something of a record: each of them is read."""

from __future__ import annotations

import array
import datetime as dt
import functools
import importlib
import io
import queue
import weakref
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from discreet.errors import CoupledRecords
from discreet.training.passes.remembered import Remembered

ORDINARY = torch.full((1, 2), 0.5)
SPECIAL = torch.tensor([[7.0, -3.0]])
HELPER: Any = None
ALIVE: list[Any] = []  # not within reach of a loss
LOW, HIGH = [0.0], [1.0]
Keep = Callable[[Any, float], object]


def computed(keep: Keep, model: nn.Module | None = None) -> None:
    """Passes over three records, of which the second is special."""
    own = nn.Linear(2, 1) if model is None else model

    def loss(model: Any, x: Tensor) -> Tensor:
        keep(model, float(x.max()))
        return model(x)  # type: ignore[no-any-return]

    remembered = Remembered(own)
    remembered.begin(loss)
    for record in (ORDINARY, SPECIAL, ORDINARY):
        loss(own, record)
        remembered.refuse_changes()


def a_box() -> Callable[[], list[float]]:
    @functools.lru_cache
    def box() -> list[float]:
        return [0.0]

    box()
    return box


def a_cache() -> Callable[[float], float]:
    @functools.lru_cache(maxsize=1)
    def cached(value: float) -> float:
        return value

    cached(0.5)
    return cached


def a_generator() -> Callable[[float], object]:
    def previous() -> Iterator[Any]:
        last: Any = 0.5
        while True:
            last = yield last

    generator: Any = previous()
    next(generator)
    send: Callable[[float], object] = generator.send
    return send


def a_setter() -> Callable[[float], object]:
    level = 0.5

    def setter(value: float) -> None:
        nonlocal level
        level = value

    return setter


class Base:
    __slots__ = ("__level", "other")

    def keep(self, value: float) -> None:
        self.__level = value


class Slotted(Base):
    __slots__ = ("more",)


class Bank(dict[str, float]):
    level = 0.5


class Slot(Base):
    """Of the same layout as `Slotted`."""

    __slots__ = ("more",)


def kinds() -> dict[str, Keep]:
    numbers = array.array("d", [0.5])
    octets = bytearray(1)
    box, cached, send = a_box(), a_cache(), a_generator()
    simple: queue.SimpleQueue[float] = queue.SimpleQueue()
    full: queue.Queue[float] = queue.Queue()
    text, binary = io.StringIO(), io.BytesIO()
    thing = SimpleNamespace(decimal=Decimal(0), fraction=Fraction(0), time=dt.timedelta(0), date=dt.date(1, 1, 1), which=LOW)
    both = LOW, HIGH
    target = Bank()
    reference = weakref.ref(target)
    ALIVE.append(target)
    tensor, half, constant = torch.zeros(()), torch.zeros(3, dtype=torch.bfloat16), torch.zeros(2)
    bank = {"tensor": torch.zeros(())}
    long = torch.zeros(2**19)
    large = np.zeros(2**18)
    objects = np.array([[0.5], None], dtype=object)
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(2))], lr=0.1)
    generator = torch.Generator()
    teacher = nn.Sequential(nn.BatchNorm1d(2), nn.BatchNorm1d(2))
    first, second = a_setter(), a_setter()
    slotted, dictionary, changing = Slotted(), Bank(), Slotted()
    append = [0.5].append
    function: Any = SimpleNamespace(call=min)
    return {
        "array.array": lambda _, value: numbers.__setitem__(0, value),
        "bytearray": lambda _, value: octets.__setitem__(0, int(value)),
        "what a cache holds": lambda _, value: box().__setitem__(0, value),
        "key of a cache": lambda _, value: cached(value),
        "local value of a generator": lambda _, value: send(value),
        "simple queue": lambda _, value: simple.put(value),
        "queue": lambda _, value: full.put(value),
        "decimal": lambda _, value: setattr(thing, "decimal", Decimal(value)),
        "fraction": lambda _, value: setattr(thing, "fraction", Fraction(value)),
        "time": lambda _, value: setattr(thing, "time", dt.timedelta(value)),
        "date": lambda _, value: setattr(thing, "date", dt.date(1 + int(value), 1, 1)),
        "text in memory": lambda _, value: text.write(str(value)),
        "file in memory": lambda _, value: binary.write(bytes(int(value))),
        "weak reference": lambda _, value: vars(reference()).update(level=value),
        "attribute of a tensor": lambda _, value: setattr(constant, "level", value),
        "attribute of a parameter": lambda model, value: setattr(model.weight, "level", value),
        "optimizer": lambda _, value: optimizer.param_groups[0].update(lr=value),
        "generator of torch": lambda _, value: generator.manual_seed(int(value)),
        "large array": lambda _, value: large.__setitem__(9, value),
        "array of objects": lambda _, value: objects[0].append(value),
        "tensor": lambda _, value: tensor.fill_(value),
        "short floats": lambda _, value: half.fill_(value),
        "past the counter of versions": lambda _, value: tensor.data.fill_(value),
        "tensor replaced": lambda _, value: bank.update(tensor=torch.tensor(value)),
        "large tensor": lambda _, value: long.fill_(value),
        "large tensor replaced": lambda _, value: bank.update(tensor=torch.full((2**19,), value)),
        "gradient of a constant": lambda _, value: setattr(constant, "grad", torch.full((2,), value)),
        "module that is not registered": lambda _, value: teacher[0].get_buffer("running_mean").fill_(value),
        "attribute of a layer of it": lambda _, value: setattr(teacher[0], "level", value),
        "private slot of a base class": lambda _, value: slotted.keep(value),
        "attribute of a dict": lambda _, value: setattr(dictionary, "level", value),
        "one of two things that are within reach": lambda _, value: setattr(thing, "which", both[int(value > 5)]),
        "class of an object": lambda _, value: setattr(changing, "__class__", Slotted if value < 5 else Slot),
        "closures of one name": lambda _, value: (first(value), second),
        "method of a list": lambda _, value: append(value),
        "one of two functions": lambda _, value: setattr(function, "call", max if value > 5 else min),
    }


@pytest.mark.parametrize("kind", kinds())
def test_what_is_kept_in_whatever_kind_is_refused(kind: str) -> None:
    with pytest.raises(CoupledRecords, match="which a pass over one record changed") as caught:
        computed(kinds()[kind])
    assert "7" not in caught.value.got


@pytest.fixture
def helper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module of the user, in a package of the user."""
    package = tmp_path / "helpers_of_a_user"
    package.mkdir()
    (package / "__init__.py").write_text("")
    source = "level = 0.5\nunused = 0.5\n\ndef keep(value):\n    global level\n    level = value\n"
    (package / "state.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    module = importlib.import_module("helpers_of_a_user.state")
    monkeypatch.setitem(globals(), "HELPER", importlib.import_module("helpers_of_a_user"))
    return module


IMPORTED_INSIDE = "def keep(model, value):\n    from helpers_of_a_user import state\n    state.keep(value)\n"


def test_modules_of_the_user_are_read_where_a_function_names_them(helper: Any) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(IMPORTED_INSIDE, names)  # an import that no tool can follow

    def in_a_closure(_: Any, value: float) -> None:
        helper.level = value

    def in_a_package(_: Any, value: float) -> None:
        HELPER.state.level = value

    for keep in (in_a_closure, in_a_package, names["keep"], lambda _, value: helper.keep(value)):
        with pytest.raises(CoupledRecords, match="level"):
            computed(keep)
        helper.level = 0.5
    # What no function of the loss names is none of its business.
    computed(lambda _, value: vars(helper).update({"unu" + "sed": value, "other": helper.level}))


def test_what_stays_the_same_is_no_memory() -> None:
    """Made anew with the same content, or read only."""
    thing = SimpleNamespace(mask=torch.ones(3), shape=(1, 2), options={"a": 1})
    cached = functools.lru_cache(len)
    cached("warm")
    closed = io.StringIO()
    closed.close()
    others: list[Any] = [closed, weakref.ref(cached), torch.eye(2).to_sparse(), torch.ones(2).conj(), torch.default_generator]
    with torch.inference_mode():
        others.append(torch.zeros(2**19))
    held = torch.ones(2, dtype=torch.complex64).conj()

    def same(model: Any, value: float) -> None:
        cached("warm")
        torch.rand(2)
        thing.mask, thing.shape, thing.options = torch.ones(3), (1, 2), {"a": 1}
        model.last = others, held

    model: Any = nn.Linear(2, 1)
    model.last = (others, held)
    computed(same, model)


def test_a_large_data_set_within_reach_is_not_read_number_by_number() -> None:
    """As docs/training.md says: such an array is not seen."""
    images = np.zeros(2**22)
    computed(lambda _, value: images.__setitem__(0, value))
