"""What Python may not remember of a record, wherever it keeps it."""

from __future__ import annotations

import contextvars
import functools
import itertools
import logging
import os
import random
import threading
from collections import Counter, deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from discreet.errors import CoupledRecords
from discreet.training.passes.remembered import Remembered

TOTALS: dict[str, Any] = {"sum": 0.0}
LEVEL = 0.0
CONTEXT: contextvars.ContextVar[float] = contextvars.ContextVar("level", default=0.0)
LOCAL = threading.local()


class Net(nn.Module):
    best: Any = 0.0
    ema: Any
    counts: Counter[str]

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Sequential(nn.Linear(2, 1))
        self.ema = 1.0
        self.counts = Counter()
        self.array = np.zeros(3)
        self.note = SimpleNamespace(seen=[1, {"a": 2}])

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer(x).squeeze(1)
        return out

    def in_a_global(self, x: Tensor) -> Tensor:
        TOTALS["sum"] += float(x.sum())
        return self.forward(x)


def through_a_helper(x: Tensor) -> None:
    global LEVEL  # noqa: PLW0603  (what is tested)
    LEVEL = float(x.max())


def counted(function: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator that keeps what it saw."""
    largest = [0.0]

    @functools.wraps(function)
    def wrapper(model: Any, x: Tensor) -> Any:
        largest[0] = max(largest[0], float(x.max()))
        return function(model, x)

    return wrapper


def keeping(keep: Callable[[Any, Tensor], Any]) -> Callable[[Any, Tensor], Tensor]:
    def loss(model: Any, x: Tensor) -> Tensor:
        keep(model, x)
        return model(x)  # type: ignore[no-any-return]

    return loss


def set_class(model: Any, x: Tensor) -> None:
    type(model).best = float(x.max())


def losses() -> dict[str, tuple[Callable[[Any, Tensor], Any], str]]:
    history: list[float] = []
    flags: set[bool] = set()
    queue: deque[tuple[str, float]] = deque(maxlen=2)
    thing = SimpleNamespace(level=0.0, inner=[{"deep": 0.0}])
    level = 0.0

    def changed(_: Any, x: Tensor) -> None:
        nonlocal level
        level = float(x.max())

    def defaults(_: Any, x: Tensor, seen: list[float] = []) -> None:  # noqa: B006  (what is tested)
        seen.append(float(x.max()))

    class Object:
        smallest = 0.0

        def __call__(self, model: Any, x: Tensor) -> Any:
            self.smallest = min(self.smallest, float(x.min()))
            return model(x)

    def attribute(model: Any, x: Tensor) -> None:
        attribute.last = float(x.max())  # type: ignore[attr-defined]

    return {
        "number": (keeping(lambda m, x: setattr(m, "ema", float(x.max()))), "the model.ema"),
        "of a layer": (keeping(lambda m, x: setattr(m.layer, "a", int(x[0, 0] > 1))), "layer.a"),
        "text": (keeping(lambda m, x: setattr(m, "ema", str(x.tolist()))), "the model.ema"),
        "truth value": (keeping(lambda m, x: setattr(m, "ema", bool(x.max() > 1))), "ema"),
        "counter": (keeping(lambda m, x: m.counts.update([str(int(x[0, 0]))])), "counts"),
        "array": (keeping(lambda m, x: np.copyto(m.array, float(x.max()))), "array"),
        "new attribute": (keeping(lambda m, x: setattr(m, "new", float(x.max()))), "new"),
        "deep": (keeping(lambda m, x: m.note.seen[1].update(a=float(x.max()))), "note.seen"),
        "of the class": (keeping(set_class), "best"),
        "global of a method": (lambda m, x: m.in_a_global(x), "global TOTALS"),
        "global of a helper": (keeping(lambda _, x: through_a_helper(x)), "global LEVEL"),
        "list": (keeping(lambda _, x: history.append(float(x.max()))), "history, in the closure"),
        "set": (keeping(lambda _, x: flags.add(bool(x.max() > 1))), "flags, in the closure"),
        "queue": (keeping(lambda _, x: queue.append(("a", float(x.max())))), "queue, in the"),
        "object": (keeping(lambda _, x: setattr(thing, "level", float(x.max()))), r"thing.*level"),
        "nonlocal": (keeping(changed), "level, in the closure of changed"),
        "defaults": (keeping(defaults), "the closure of loss"),
        "attribute of a function": (keeping(attribute), "the closure of loss"),
        "callable object": (Object(), "the loss.smallest"),
        "partial": (functools.partial(keeping(changed)), "level"),
        "under torch's decorators": (torch.no_grad()(keeping(changed)), "level"),
        "decorator": (counted(lambda m, x: m(x)), "largest, in the closure of"),
        "environment": (
            keeping(lambda _, x: os.environ.update(LEVEL=str(float(x.max())))),
            "a variable of the environment",
        ),
        "context": (keeping(lambda _, x: CONTEXT.set(float(x.max()))), "context variable level"),
        "thread": (keeping(lambda _, x: setattr(LOCAL, "level", float(x.max()))), "global LOCAL"),
    }


@pytest.fixture(autouse=True)
def _everything_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEVEL", "")
    monkeypatch.setattr(Net, "best", 0.0)
    monkeypatch.setitem(TOTALS, "sum", 0.0)
    monkeypatch.setitem(globals(), "LEVEL", 0.0)
    LOCAL.__dict__.clear()


def run(remembered: Remembered, model: Net, loss: Any, *records: Tensor) -> None:
    remembered.begin(loss)
    for record in records:
        loss(model, record)
        remembered.refuse_changes()


ORDINARY = torch.full((1, 2), 0.5)
SPECIAL = torch.tensor([[7.0, -3.0]])


@pytest.mark.parametrize("kind", losses())
def test_whatever_python_keeps_of_a_record_is_refused(kind: str) -> None:
    loss, name = losses()[kind]
    model = Net()
    with pytest.raises(CoupledRecords, match=name) as caught:
        run(Remembered(model), model, loss, ORDINARY, SPECIAL, ORDINARY)
    for number in ("7", "-3", "0.5"):
        assert number not in caught.value.got


def test_it_is_refused_before_the_next_record_meets_it() -> None:
    """Also in a later step, and where the first records left nothing."""
    model = Net()
    remembered = Remembered(model)
    loss = keeping(lambda m, x: setattr(m, "ema", 2.0 if float(x.max()) > 5 else m.ema))
    run(remembered, model, loss, ORDINARY, ORDINARY)
    run(remembered, model, loss, ORDINARY)
    with pytest.raises(CoupledRecords, match=r"model\.ema"):
        run(remembered, model, loss, ORDINARY, SPECIAL)


def test_what_counts_passes_may_go_on() -> None:
    calls = [0]
    steps = itertools.count()

    def loss(model: Any, x: Tensor) -> Any:
        calls[0] += 1
        model.passes = getattr(model, "passes", 0) + 2
        next(steps)
        return model(x)

    model: Any = Net()
    model.passes = 0
    remembered = Remembered(model)
    calls_in_a_list = "calls, in the closure"
    with pytest.raises(CoupledRecords, match=calls_in_a_list):
        run(remembered, model, loss, ORDINARY)  # what is in a list may be anything

    def other(model: Any, x: Tensor) -> Any:
        model.passes += 2
        return model(x)

    remembered = Remembered(model)
    run(remembered, model, other, *[ORDINARY] * 3)
    model.passes = 100  # by the loop
    run(remembered, model, other, ORDINARY, SPECIAL)


def test_what_counts_some_records_is_no_counter() -> None:
    for first in (ORDINARY, SPECIAL):
        model: Any = Net()
        model.large = 0
        loss = keeping(lambda m, x: setattr(m, "large", m.large + int(x.max() > 5)))
        with pytest.raises(CoupledRecords, match="large"):
            run(Remembered(model), model, loss, first, SPECIAL, ORDINARY)


def test_what_a_loop_changes_between_steps_is_its_own_business() -> None:
    model = Net()
    remembered = Remembered(model)
    rate = [0.1]

    def loss(own: Any, x: Tensor) -> Any:
        return rate[0] * own.ema * own(x)

    for step in range(3):
        run(remembered, model, loss, ORDINARY, SPECIAL)
        rate[0] *= 0.5
        model.ema = float(step)
        TOTALS["sum"] = step


def test_what_is_not_remembered_is_free() -> None:
    model = Net()
    values = [float("nan"), 1.0]
    largest = np.arange(10)
    rng = np.random.default_rng(0)
    python = random.Random(0)
    logger = logging.getLogger("tests.remembered")

    def loss(own: Any, x: Tensor) -> Any:
        if float(x.max()) > 5 or largest.sum() < 0 or not values:
            x = x / x.norm()
        numbers = sorted(x.flatten().tolist())
        logger.debug("a pass")
        return own(x) * len(numbers) * rng.random() * python.gauss(0.0, 1.0)

    run(Remembered(model), model, loss, ORDINARY, SPECIAL, ORDINARY)


@torch.compile(backend="eager")
def activation(x: Tensor) -> Tensor:
    return x.relu()


def test_compilers_may_note_what_they_like() -> None:
    model = Net()
    loss = keeping(lambda _, x: activation(x))
    with torch.compiler.set_stance("force_eager"):  # as in every pass
        run(Remembered(model), model, loss, ORDINARY, SPECIAL, torch.ones(1, 2))
