"""Counters and schedules of a loss move once a step, wherever Python keeps them (T09).

How many passes a step takes depends on how many records there are. A loss that counts its calls
would tell that number to all later steps; here it turns the sign of everything with each call, so
that one record more would move the sums by many clip norms.
"""

from __future__ import annotations

import argparse
import dataclasses
import enum
import functools
import itertools
import os
import random
import sys
import types
import warnings
import weakref
from array import array
from collections import ChainMap, Counter, OrderedDict, UserDict, defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import nn

from couplings.scenes import Pair
from discreet.errors import ModelError
from support.neighbours import PASS, moved, released

TURNS = 0
CONFIG = types.ModuleType("configuration")
CONFIG.turns = 0  # type: ignore[attr-defined]


def _sign(calls: float) -> float:
    return 1.0 if calls % 2 else -1.0


def _nonlocal() -> Callable[..., Any]:
    calls = 0

    def loss(model: Any, batch: Any) -> Any:
        nonlocal calls
        calls += 1
        return model(batch[0]) * _sign(calls)

    return loss


def _nonlocal_of_a_helper() -> Callable[..., Any]:
    calls = 0

    def ramp() -> float:
        nonlocal calls
        calls += 1
        return _sign(calls)

    return lambda model, batch: model(batch[0]) * ramp()


def _global(model: Any, batch: Any) -> Any:
    global TURNS  # noqa: PLW0603  (as scripts do)
    TURNS += 1
    return model(batch[0]) * _sign(TURNS)


def _attribute_of_a_function() -> Callable[..., Any]:
    def loss(model: Any, batch: Any) -> Any:
        loss.calls += 1  # type: ignore[attr-defined]
        return model(batch[0]) * _sign(loss.calls)  # type: ignore[attr-defined]

    loss.calls = 0  # type: ignore[attr-defined]
    return loss


def _attribute_of_a_module_of_python(model: Any, batch: Any) -> Any:
    CONFIG.turns += 1  # type: ignore[attr-defined]
    return model(batch[0]) * _sign(CONFIG.turns)


class Trainer:
    """What people write around a loop."""

    started = 0

    def __init__(self) -> None:
        self.step = 0
        self.state = {"step": 0}
        self.losses: list[int] = []

    def by_attribute(self, model: Any, batch: Any) -> Any:
        self.step += 1
        return model(batch[0]) * _sign(self.step)

    def by_entry(self, model: Any, batch: Any) -> Any:
        self.state["step"] += 1
        return model(batch[0]) * _sign(self.state["step"])

    def by_history(self, model: Any, batch: Any) -> Any:
        self.losses.append(0)
        return model(batch[0]) * _sign(len(self.losses))

    def by_class(self, model: Any, batch: Any) -> Any:
        Trainer.started += 1
        return model(batch[0]) * _sign(Trainer.started)

    def by_own_class(self, model: Any, batch: Any) -> Any:
        type(self).started += 1
        return model(batch[0]) * _sign(type(self).started)

    def __call__(self, model: Any, batch: Any) -> Any:
        return self.by_attribute(model, batch)


@dataclass
class Schedule:
    """A ramp."""

    calls: int = 0

    def next(self) -> float:
        self.calls += 1
        return _sign(self.calls)


class Slotted:
    """A ramp without a dictionary."""

    __slots__ = ("calls",)

    def __init__(self) -> None:
        self.calls = 0

    def next(self) -> float:
        self.calls += 1
        return _sign(self.calls)


def _by(ramp: Callable[[], float]) -> Callable[..., Any]:
    return lambda model, batch: model(batch[0]) * ramp()


def _with(holder: Any, count: Callable[[Any], float]) -> Callable[[], Callable[..., Any]]:
    """Losses that count in a holder of their own."""

    def make() -> Callable[..., Any]:
        mine = holder()
        return lambda model, batch: model(batch[0]) * _sign(count(mine))

    return make


def _by_ramp(model: Any, batch: Any, ramp: Schedule) -> Any:
    return model(batch[0]) * ramp.next()


def _with_default() -> Callable[..., Any]:
    def loss(model: Any, batch: Any, ramp: Schedule = Schedule()) -> Any:  # noqa: B008
        return _by_ramp(model, batch, ramp)

    return loss


def _in_list(calls: list[int]) -> float:
    calls[0] += 1
    return calls[0]


def _in_dict(calls: dict[str, int]) -> float:
    calls["n"] = calls.get("n", 0) + 1
    return calls["n"]


def _in_set(seen: set[int]) -> float:
    seen.add(len(seen))
    return len(seen)


def _in_deque(seen: deque[int]) -> float:
    seen.append((seen[-1] if seen else 0) + 1)
    return seen[-1]


def _in_namespace(space: Any) -> float:
    space.calls += 1
    return float(space.calls)


def _in_array(calls: Any) -> float:
    calls += 1
    return float(calls[0])


def _in_bytes(calls: bytearray) -> float:
    calls[0] += 1
    return calls[0]


class Counted(nn.Module):
    """A teacher that counts, kept where torch does not register it."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self) -> float:
        self.calls += 1
        return _sign(self.calls)


def _module_in_a_list() -> Callable[..., Any]:
    modules = [Counted()]
    return lambda model, batch: model(batch[0]) * modules[0]()


class Bag:
    """Holds a module for everybody."""

    criterion = Counted()


def _with_class(model: Any, batch: Any) -> Any:
    return model(batch[0]) * Bag.criterion()


class Scripted(nn.Module):
    """A module of TorchScript with a counter."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.seen: list[int] = [0]

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return values * (1.0 if self.calls % 2 else -1.0)


class ScriptedList(Scripted):
    """A module of TorchScript that counts in a list."""

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        self.seen.append(1)
        return values * (1.0 if len(self.seen) % 2 else -1.0)


def _scripted(kind: type[nn.Module]) -> Callable[..., Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scripting is deprecated, and still what people have
        counted: Any = torch.jit.script(kind())
    return lambda model, batch: counted(model(batch[0]))


LOSSES: dict[str, Callable[[], Callable[..., Any]]] = {
    "a variable of an enclosing function": _nonlocal,
    "a variable that a helper counts": _nonlocal_of_a_helper,
    "a global": lambda: _global,
    "an attribute of the loss": _attribute_of_a_function,
    "an attribute of a module of Python": lambda: _attribute_of_a_module_of_python,
    "an attribute of a trainer": lambda: Trainer().by_attribute,
    "a trainer that is called": Trainer,
    "an entry of a dict of a trainer": lambda: Trainer().by_entry,
    "a list of a trainer": lambda: Trainer().by_history,
    "an attribute of a class": lambda: Trainer().by_class,
    "an attribute of its own class": lambda: Trainer().by_own_class,
    "a bound method": lambda: _by(Schedule().next),
    "an object with slots": lambda: _by(Slotted().next),
    "a partial": lambda: partial(
        lambda ramp, model, batch: model(batch[0]) * ramp.next(), Schedule()
    ),
    "a default": lambda: lambda model, batch, ramp=Schedule(): model(batch[0]) * ramp.next(),  # noqa: B008
    "a list": _with(lambda: [0], _in_list),
    "a list in a tuple in a dict": _with(
        lambda: {"a": ([0],)}, lambda held: _in_list(held["a"][0])
    ),
    "a dict": _with(dict, _in_dict),
    "a Counter": _with(Counter, _in_dict),
    "a defaultdict": _with(lambda: defaultdict(int), _in_dict),
    "an OrderedDict": _with(OrderedDict, _in_dict),
    "a set": _with(set, _in_set),
    "a deque": _with(lambda: deque(maxlen=3), _in_deque),
    "a namespace": _with(lambda: types.SimpleNamespace(calls=0), _in_namespace),
    "arguments of a script": _with(lambda: argparse.Namespace(calls=0), _in_namespace),
    "an array": _with(lambda: np.zeros(2), _in_array),
    "a bytearray": _with(lambda: bytearray(2), _in_bytes),
    "a generator of Python": _with(lambda: random.Random(7), lambda rng: rng.randrange(2)),
    "a generator of NumPy": _with(
        lambda: np.random.default_rng(7), lambda rng: float(rng.integers(2))
    ),
    "an older generator of NumPy": _with(
        lambda: np.random.RandomState(7), lambda rng: float(rng.randint(2))
    ),
    "a module in a list": _module_in_a_list,
    "a module of a class": lambda: _with_class,
    "a scripted module": lambda: _scripted(Scripted),
    "a list of a scripted module": lambda: _scripted(ScriptedList),
}


@pytest.mark.parametrize("name", LOSSES)
def test_t09_what_a_loss_counts_moves_once_a_step(name: str) -> None:
    distance, _ = moved(LOSSES[name])
    assert distance <= 1.001


def _endless() -> Iterator[int]:
    calls = 0
    while True:
        calls += 1
        yield calls


ITERATORS: dict[str, Callable[[], Iterator[int]]] = {
    "a generator function": _endless,
    "a count": itertools.count,
    "a list": lambda: iter([*range(1000)]),
    "a range": lambda: iter(range(1000)),
    "a cycle": lambda: itertools.cycle([1, 2, 3]),
    "a chain": lambda: itertools.chain([1, 2], range(1000)),
    "a map": lambda: map(abs, range(1000)),
    "keys": lambda: iter(dict.fromkeys(range(1000))),
    "values": lambda: iter({number: number for number in range(1000)}.values()),
    "a set": lambda: iter({*range(1000)}),
    "a list, backwards": lambda: reversed([*range(1000)]),
}


@pytest.mark.parametrize("name", ITERATORS)
def test_t09_an_iterator_that_moves_with_each_pass_is_refused(name: str) -> None:
    with pytest.raises(ModelError, match="takes the next entry of a"):
        moved(_with(ITERATORS[name], next))


class _Counting(Pair):
    def __init__(self) -> None:
        super().__init__()
        self.history: list[int] = []
        self.schedule = Schedule()
        self.teachers = [Counted()]
        self.ramp = _nonlocal_of_a_helper()


class InHistory(_Counting):
    def forward(self, x: Any) -> Any:
        self.history.append(1)
        return super().forward(x) * _sign(len(self.history))


class InSchedule(_Counting):
    def forward(self, x: Any) -> Any:
        return super().forward(x) * self.schedule.next()


class InTeacher(_Counting):
    def forward(self, x: Any) -> Any:
        return super().forward(x) * self.teachers[0]()


class InGlobal(_Counting):
    def forward(self, x: Any) -> Any:
        global TURNS  # noqa: PLW0603  (as scripts do)
        TURNS += 1
        return super().forward(x) * _sign(TURNS)


@pytest.mark.parametrize("kind", [InHistory, InSchedule, InTeacher, InGlobal])
def test_t09_what_a_model_counts_moves_once_a_step(kind: type[nn.Module]) -> None:
    distance, _ = moved(lambda: lambda model, batch: model(batch[0]), make=kind)
    assert distance <= 1.001


class _Brittle(_Counting):
    """Has state, and knows the category of ones alone."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(3, 1)

    def forward(self, x: Any) -> Any:
        self.history.append(1)
        return super().forward(x) * self.table((x[:, 0] * 10).long() - 8).squeeze(-1)


def test_t09_state_that_a_step_without_records_could_not_move_is_refused_by_name() -> None:
    with pytest.raises(ModelError, match="also works on made-up records"):
        released(lambda model, batch: model(batch[0]), 2 * PASS, special=False, make=_Brittle)


# --- code that is called through something else ---

_TOOLS_SOURCE = """
CALLS, STATE, HISTORY = 0, {"calls": 0}, []

def by_global():
    global CALLS
    CALLS += 1
    return CALLS

def by_dict():
    STATE["calls"] += 1
    return STATE["calls"]
"""
TOOLS = types.ModuleType("tools_of_a_loss")
exec(_TOOLS_SOURCE, vars(TOOLS))
sys.modules[TOOLS.__name__] = TOOLS


class Meter:
    """Counts in its class, by all ways in which a class can be asked."""

    calls = 0
    history: ClassVar[list[int]] = []
    only: ClassVar[Any] = None

    def by_class(self) -> float:
        Meter.calls += 1
        return Meter.calls

    def by_list(self) -> float:
        self.history.append(1)
        return len(self.history)

    def by_own_class(self) -> float:
        type(self).calls += 1
        return type(self).calls

    @classmethod
    def by_classmethod(cls) -> float:
        cls.calls += 1
        return cls.calls

    @staticmethod
    def by_staticmethod() -> float:
        Meter.calls += 1
        return Meter.calls

    @property
    def weight(self) -> float:
        return self.by_class()

    @classmethod
    def single(cls) -> Any:
        cls.only = cls.only or types.SimpleNamespace(calls=0)
        return cls.only

    def __getitem__(self, _: object) -> float:
        return self.by_class()

    def __mul__(self, _: object) -> float:
        return self.by_class()

    def __enter__(self) -> float:
        return _fourth()

    def __exit__(self, *_: object) -> None:
        pass

    def __getattr__(self, name: str) -> float:
        if name.startswith("_"):
            raise AttributeError(name)
        return self.by_class()


METER = Meter()


class Made:
    """Counts its objects."""

    made = 0

    def __init__(self) -> None:
        Made.made += 1


class Kind(enum.Enum):
    """Counts in a member."""

    ONE = 1

    def count(self) -> float:
        self.calls = getattr(self, "calls", 0) + 1
        return self.calls


class Reverse(torch.autograd.Function):
    """Turns a gradient around, each second time."""

    calls = 0

    @staticmethod
    def forward(ctx: Any, values: torch.Tensor) -> torch.Tensor:
        Reverse.calls += 1
        ctx.sign = _sign(Reverse.calls)
        return values.view_as(values)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient * ctx.sign


def _reversed(model: Any, batch: Any) -> Any:
    apply: Any = Reverse.apply
    return apply(model(batch[0]))


def _by_import(model: Any, batch: Any) -> Any:
    from tools_of_a_loss import by_global  # type: ignore[import-not-found]

    return model(batch[0]) * _sign(by_global())


def _by_history(model: Any, batch: Any) -> Any:
    TOOLS.HISTORY.append(1)
    return model(batch[0]) * _sign(len(TOOLS.HISTORY))


def _with_meter() -> float:
    with METER as calls:
        return calls


def _made() -> float:
    Made()
    return Made.made


def _first() -> float:
    return _second()


def _second() -> float:
    return _third()


def _third() -> float:
    return _fourth()


def _fourth() -> float:
    global TURNS  # noqa: PLW0603
    TURNS += 1
    return TURNS


class Listed(list[int]):
    """A list with an attribute."""

    calls = 0


class Private:
    """A slot that only its class can name."""

    __slots__ = ("__calls",)

    def __init__(self) -> None:
        self.__calls = 0

    def count(self) -> float:
        self.__calls += 1
        return self.__calls


def _by_count(count: Callable[[], float]) -> Callable[[], Callable[..., Any]]:
    return lambda: lambda model, batch: model(batch[0]) * _sign(count())


def _counting_tensor() -> Any:
    tensor: Any = torch.zeros(1)
    tensor.calls = 0
    return tensor


def _in_environment() -> float:
    os.environ["DISCREET_CALLS"] = str(int(os.environ.get("DISCREET_CALLS", "0")) + 1)
    return float(os.environ["DISCREET_CALLS"])


def _hooked_teacher() -> Callable[..., Any]:
    teacher, calls = Pair().requires_grad_(False), [0]

    def hook(_: Any, __: Any, output: torch.Tensor) -> torch.Tensor:
        calls[0] += 1
        return torch.full_like(output, _sign(calls[0]))

    teacher.register_forward_hook(hook)
    return lambda model, batch: model(batch[0]) * teacher(torch.ones(1, 4)).sum()


def _cached() -> Callable[..., Any]:
    calls = [0]

    @functools.lru_cache(maxsize=1)
    def ramp(_: object) -> float:
        calls[0] += 1
        return _sign(calls[0])

    return lambda model, batch: model(batch[0]) * ramp(object())


THROUGH: dict[str, Callable[[], Callable[..., Any]]] = {
    "a function of a module of Python": _by_count(lambda: 1 * TOOLS.by_global()),
    "a function with a dict of its module": _by_count(lambda: 1 * TOOLS.by_dict()),
    "a list of a module of Python": lambda: _by_history,
    "an import within the loss": lambda: _by_import,
    "a method and its class": _by_count(lambda: 1 * METER.by_class()),
    "a method and a list of its class": _by_count(lambda: 1 * METER.by_list()),
    "a method and its own class": _by_count(lambda: 1 * METER.by_own_class()),
    "a classmethod": _by_count(lambda: 1 * Meter.by_classmethod()),
    "a staticmethod": _by_count(lambda: 1 * Meter.by_staticmethod()),
    "a property": _by_count(lambda: METER.weight),
    "a single object of a class": _by_count(lambda: _in_namespace(Meter.single())),
    "an index": _by_count(lambda: METER[0]),
    "an operator": _by_count(lambda: METER * 1),
    "a context": _by_count(_with_meter),
    "an attribute that is made on demand": _by_count(lambda: METER.anything),
    "a constructor": _by_count(_made),
    "an enumeration": _by_count(lambda: 1 * Kind.ONE.count()),
    "a function of autograd": lambda: _reversed,
    "four helpers": _by_count(_first),
    "a cached function": _cached,
    "a hook of a teacher": _hooked_teacher,
    "an attribute of a list": _with(Listed, _in_namespace),
    "a private slot": _by_count(Private().count),
    "a class that was made": _with(
        dataclasses.make_dataclass("Made", [("calls", int, 0)]), _in_namespace
    ),
    "a weak reference": _with(lambda: weakref.ref(METER), lambda held: held().by_class()),
    "a proxy": _with(lambda: weakref.proxy(METER), lambda held: held.by_class()),
    "a view of a dict": _with(
        lambda: types.MappingProxyType({"a": [0]}), lambda held: _in_list(held["a"])
    ),
    "a UserDict": _with(UserDict, _in_dict),
    "a ChainMap": _with(ChainMap, _in_dict),
    "an array of Python": _with(lambda: array("q", [0]), _in_list),
    "a view of bytes": _with(lambda: memoryview(bytearray(1)), _in_list),
    "an array of objects": _with(lambda: np.array([0], dtype=object), _in_list),
    "an attribute of a tensor": _with(_counting_tensor, _in_namespace),
    "the environment": _by_count(_in_environment),
}


@pytest.mark.parametrize("name", THROUGH)
def test_t09_what_code_counts_that_a_loss_reaches_moves_once_a_step(name: str) -> None:
    distance, _ = moved(THROUGH[name])
    assert distance <= 1.001


class _InClass(Pair):
    calls = 0

    @classmethod
    def count(cls) -> float:
        cls.calls += 1
        return _sign(cls.calls)

    @property
    def weight(self) -> float:
        return self.count()

    def training_step(self, batch: Any) -> Any:
        return self(batch[0]) * self.count()

    def encode(self, batch: Any) -> Any:
        return self.first(batch[0])

    def head(self, values: Any) -> Any:
        return self.last(values).squeeze(1) * self.weight


class _InForward(Pair):
    def forward(self, x: Any) -> Any:
        return super().forward(x) * _sign(_first())


class Derived(_InForward):
    def forward(self, x: Any) -> Any:
        return super().forward(x) * 1.0


class Called(Pair):
    calls = 0

    def __call__(self, x: Any) -> Any:
        Called.calls += 1
        return super().__call__(x) * _sign(Called.calls)


STEPS: dict[str, tuple[type[nn.Module], Callable[..., Any]]] = {
    "training_step": (_InClass, lambda model, batch: model.training_step(batch)),
    "parts": (_InClass, lambda model, batch: model.head(model.encode(batch))),
    "a base": (Derived, lambda model, batch: model(batch[0])),
    "a call of its own": (Called, lambda model, batch: model(batch[0])),
}


@pytest.mark.parametrize("name", STEPS)
def test_t09_what_methods_of_a_model_count_moves_once_a_step(name: str) -> None:
    kind, loss = STEPS[name]
    distance, _ = moved(lambda: loss, make=kind)
    assert distance <= 1.001
