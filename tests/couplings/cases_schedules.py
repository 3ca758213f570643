"""Schedules: couplings whose operations appear only in a later pass, after many clean ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor

from .scenes import Scene, Setup, Timing, case

Coupled: TypeAlias = Callable[[Tensor], Tensor]
"""Hidden rows, changed by what else is in the batch."""


def _mean(rows: Tensor) -> Tensor:
    return rows + 10.0 * rows.mean(0)


def _neighbour(rows: Tensor) -> Tensor:
    return rows + 10.0 * rows.roll(1, 0)


def _number(rows: Tensor) -> Tensor:
    return rows * (-1.0 if float(rows.detach().min()) < -10.0 else 1.0)


def _hook(rows: Tensor) -> Tensor:
    turn = torch.where(rows.detach().min() < -10.0, -1.0, 1.0)
    if rows.requires_grad:
        rows.register_hook(lambda gradient: gradient * turn)  # type: ignore[no-untyped-call]
    return rows


def _product(rows: Tensor) -> Tensor:
    return rows + rows @ rows.T @ rows.abs()


COUPLINGS: dict[str, Coupled] = {
    "mean": _mean,
    "neighbour": _neighbour,
    "number": _number,
    "hook": _hook,
    "product": _product,
}
PASSES = (
    Timing("at pass 2", first=0, wakes=1, steps=2),
    Timing("at pass 5000", first=4997, wakes=4999, steps=4),
)
LATE = Timing("at pass 65", first=0, wakes=64, steps=66)


def _register(name: str, coupled: Coupled, timing: Timing, *, full: bool = False) -> None:
    @case(f"schedule: {name} {timing.name}", timings=(timing,), full=full)
    def make(scene: Scene) -> Setup:
        def loss(model: Any, batch: Any) -> Tensor:
            hidden = model.first(batch[0])
            if scene.clock.awake:
                hidden = coupled(hidden)
            losses: Tensor = model.last(hidden).squeeze(1)
            return losses

        return scene.setup(loss)


def _register_all() -> None:
    for name, coupled in COUPLINGS.items():
        for timing in PASSES:
            _register(name, coupled, timing)
    _register("mean", _mean, LATE)
    _register("number", _number, LATE, full=True)


_register_all()


@case("schedule: state at pass 65", timings=(LATE,), full=True)
def _state(scene: Scene) -> Setup:
    """A threshold in a closure that is kept from pass 65 on, and used in the next."""
    smallest = [torch.zeros(())]

    def loss(model: Any, batch: Any) -> Tensor:
        hidden = model.first(batch[0])
        losses: Tensor = model.last(hidden + 10.0 * smallest[0]).squeeze(1)
        if scene.clock.awake:
            smallest[0] = torch.minimum(smallest[0], hidden.detach().min())
        return losses

    return scene.setup(loss)


@case("schedule: public index that changes", timings=(Timing("at pass 3", 0, 2, 3),))
def _index(scene: Scene) -> Setup:
    """The same operations in all passes; only the values of a public tensor become a shift."""

    def loss(model: Any, batch: Any) -> Tensor:
        hidden = model.first(batch[0])
        places = torch.arange(len(hidden))
        places.copy_((places + int(scene.clock.awake)) % len(hidden))
        losses: Tensor = model.last(hidden + 10.0 * hidden[places]).squeeze(1)
        return losses

    return scene.setup(loss)


@case("schedule: counter of the loss", timings=(Timing("at call 20", 0, 0, 24),))
def _counter(scene: Scene) -> Setup:
    """Counts its own calls, trial passes included."""
    calls = [0]

    def loss(model: Any, batch: Any) -> Tensor:
        calls[0] += 1
        hidden = model.first(batch[0])
        if calls[0] > 20:
            hidden = hidden + 10.0 * hidden.mean(0)
        losses: Tensor = model.last(hidden).squeeze(1)
        return losses

    return scene.setup(loss)
