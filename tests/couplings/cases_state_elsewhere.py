"""State of torch's own layers, and outside of the model: globals, closures, the environment."""

from __future__ import annotations

import functools
import os
import threading
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from .scenes import FEATURES, LONG, LONG_LATER, Pair, Scene, Setup, case
from .stateful import BOTH, Stateful, stateful

# --- layers of torch ---


class _Layer(nn.Module):
    """A layer that keeps statistics, between two others."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.first = nn.Linear(FEATURES, FEATURES, bias=False)
        self.middle = layer
        self.last = nn.Linear(FEATURES, 1, bias=False)
        nn.init.eye_(self.first.weight)
        nn.init.constant_(self.last.weight, 0.5)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.last(self.middle(self.first(x))).squeeze(1)
        return out


def _plain(model: Any, batch: Any) -> Tensor:
    losses: Tensor = model(batch[0])
    return losses


@case("state: batch normalisation in train mode", timings=(LONG,), teeth=False)
def _batch_norm(scene: Scene) -> Setup:
    return scene.setup(_plain, _Layer(nn.BatchNorm1d(FEATURES)))


@case("state: batch normalisation that is put into train mode", timings=(LONG_LATER,), teeth=False)
def _late_batch_norm(scene: Scene) -> Setup:
    model = _Layer(nn.BatchNorm1d(FEATURES, affine=False)).eval()

    def loss(own: Any, batch: Any) -> Tensor:
        if scene.clock.awake:
            own.middle.train()
        return _plain(own, batch)

    return scene.setup(loss, model)


@case("state: batch normalisation that only keeps statistics", timings=BOTH, teeth=False)
def _kept_statistics(scene: Scene) -> Setup:
    """What it gives is thrown away; what it keeps is saved."""
    model = _Layer(nn.Identity())
    model.norm = nn.BatchNorm1d(FEATURES, affine=False)

    def loss(own: Any, batch: Any) -> Tensor:
        if scene.clock.awake:
            own.norm(batch[0].detach())
        return _plain(own, batch)

    return scene.setup(loss, model)


@case("state: instance normalisation that keeps statistics", timings=BOTH, teeth=False)
def _instance_norm(scene: Scene) -> Setup:
    model = _Layer(nn.Identity())
    model.norm = nn.InstanceNorm1d(2, track_running_stats=True)

    def loss(own: Any, batch: Any) -> Tensor:
        if scene.clock.awake:
            own.norm(batch[0].view(-1, 2, 2))
        return _plain(own, batch)

    return scene.setup(loss, model)


@case("state: embedding that is cut to a norm", timings=BOTH, teeth=False)
def _max_norm(scene: Scene) -> Setup:
    """Only the rows that are looked up are cut: the table tells which label was there."""
    model = Pair()
    model.table = nn.Embedding(3, FEATURES, max_norm=1.0)
    nn.init.constant_(model.table.weight, 5.0)

    def loss(own: Any, batch: Any) -> Tensor:
        x, y = batch
        if scene.clock.awake:
            own.table(y)
        losses: Tensor = own(x) + 0.0 * own.table.weight.sum()
        return losses

    return scene.setup(loss, model)


@case("state: frozen embedding that is cut to a norm", timings=BOTH, teeth=False)
def _frozen_max_norm(scene: Scene) -> Setup:
    model = Pair()
    table = nn.Parameter(torch.full((3, FEATURES), 5.0), requires_grad=False)
    model.table = table

    def loss(own: Any, batch: Any) -> Tensor:
        x, y = batch
        if scene.clock.awake:
            functional.embedding(y, own.table, max_norm=1.0)
        losses: Tensor = own(x)
        return losses

    return scene.setup(loss, model)


# --- outside of the model ---

_SEEN: list[Tensor] = []
_NUMBERS: dict[str, float] = {}
_CONTEXT: ContextVar[Tensor] = ContextVar("_CONTEXT")
_LOCAL = threading.local()


@stateful("global list")
class _Global(Stateful):
    def prepare(self) -> None:
        _SEEN.clear()

    def keep(self, rows: Tensor) -> None:
        _SEEN.append(rows.amin(0))

    def kept(self) -> Any:
        return _SEEN[-1] if _SEEN else 0.0


@stateful("global Python number")
class _GlobalNumber(Stateful):
    def prepare(self) -> None:
        _NUMBERS["smallest"] = 0.0

    def keep(self, rows: Tensor) -> None:
        _NUMBERS["smallest"] = min(_NUMBERS["smallest"], float(rows.min()))

    def kept(self) -> Any:
        return _NUMBERS["smallest"]


@stateful("context variable")
class _InContext(Stateful):
    def prepare(self) -> None:
        _CONTEXT.set(torch.zeros(FEATURES))

    def keep(self, rows: Tensor) -> None:
        _CONTEXT.set(rows.amin(0))

    def kept(self) -> Any:
        return _CONTEXT.get(torch.zeros(FEATURES))


@stateful("thread-local variable")
class _ThreadLocal(Stateful):
    def prepare(self) -> None:
        _LOCAL.centre = torch.zeros(FEATURES)

    def keep(self, rows: Tensor) -> None:
        _LOCAL.centre = rows.amin(0)

    def kept(self) -> Any:
        return _LOCAL.centre


@stateful("variable of the environment")
class _Environment(Stateful):
    def prepare(self) -> None:
        os.environ["COUPLINGS_SMALLEST"] = "0.0"

    def keep(self, rows: Tensor) -> None:
        smallest = min(float(os.environ["COUPLINGS_SMALLEST"]), float(rows.min()))
        os.environ["COUPLINGS_SMALLEST"] = str(smallest)

    def kept(self) -> Any:
        return float(os.environ["COUPLINGS_SMALLEST"])


@functools.cache
def _room(_: int) -> Tensor:
    """A tensor that is made once, and given out to everybody who asks with the same number."""
    return torch.zeros(FEATURES)


@stateful("cache of a function")
class _Cached(Stateful):
    def prepare(self) -> None:
        _room.cache_clear()

    def keep(self, rows: Tensor) -> None:
        _room(1).copy_(torch.minimum(_room(1), rows.amin(0)))

    def kept(self) -> Any:
        return _room(1)


def _closing(scene: Scene, keep: Any, kept: Any) -> Setup:
    def loss(model: Any, batch: Any) -> Tensor:
        hidden = model.first(batch[0])
        added = kept()
        keep(hidden.detach() * float(scene.clock.awake))
        losses: Tensor = model.last(hidden + 10.0 * added).squeeze(1)
        return losses

    return scene.setup(loss)


@case("state: list in a closure", timings=BOTH)
def _closure_list(scene: Scene) -> Setup:
    seen = [torch.zeros(FEATURES)]
    return _closing(scene, lambda rows: seen.append(rows.amin(0)), lambda: seen[-1])


@case("state: tensor in a closure that is written into", timings=BOTH)
def _closure_tensor(scene: Scene) -> Setup:
    centre = torch.zeros(FEATURES)
    return _closing(
        scene, lambda rows: centre.copy_(torch.minimum(centre, rows.amin(0))), lambda: centre
    )


@case("state: Python number in a closure", timings=BOTH)
def _closure_number(scene: Scene) -> Setup:
    numbers = [0.0]
    return _closing(
        scene,
        lambda rows: numbers.append(min(numbers[-1], rows.min().item())),
        lambda: numbers[-1],
    )


@case("state: truth value in a closure", timings=BOTH)
def _closure_flag(scene: Scene) -> Setup:
    seen: set[bool] = set()
    return _closing(
        scene,
        lambda rows: seen.add(bool((rows < -10.0).any())),
        lambda: -10.0 if True in seen else 0.0,
    )


@case("state: rows of the batch before in a closure", timings=BOTH)
def _previous(scene: Scene) -> Setup:
    """A cache of the last batch's features, kept with their graph as they are."""
    cache: list[Tensor] = []

    def loss(model: Any, batch: Any) -> Tensor:
        hidden = model.first(batch[0])
        added = cache[-1].detach().amin(0) if cache else torch.zeros(FEATURES)
        cache.append(hidden * float(scene.clock.awake))
        losses: Tensor = model.last(hidden + 10.0 * added).squeeze(1)
        return losses

    return scene.setup(loss)


@case("state: attribute of the loss", timings=BOTH)
def _of_function(scene: Scene) -> Setup:
    def loss(model: Any, batch: Any) -> Tensor:
        hidden = model.first(batch[0])
        added = getattr(loss, "centre", torch.zeros(FEATURES))
        smallest = hidden.detach().amin(0) * float(scene.clock.awake)
        loss.centre = smallest  # type: ignore[attr-defined]
        losses: Tensor = model.last(hidden + 10.0 * added).squeeze(1)
        return losses

    return scene.setup(loss)


@case("state: mutable default of the loss", timings=BOTH)
def _default(scene: Scene) -> Setup:
    def loss(model: Any, batch: Any, seen: list[Tensor] = []) -> Tensor:  # noqa: B006  (what is tried)
        hidden = model.first(batch[0])
        added = seen[-1] if seen else torch.zeros(FEATURES)
        seen.append(hidden.detach().amin(0) * float(scene.clock.awake))
        losses: Tensor = model.last(hidden + 10.0 * added).squeeze(1)
        return losses

    return scene.setup(loss)


@case("state: gradient of hidden rows that is kept", timings=BOTH)
def _retained(scene: Scene) -> Setup:
    """The hook of a tensor keeps what it sees; the next pass uses it."""
    seen = [torch.zeros(FEATURES)]

    def loss(model: Any, batch: Any) -> Tensor:
        x = batch[0]
        hidden = model.first(x)

        def keep(gradient: Tensor) -> None:
            slopes = (gradient.detach() * x).amin(0) * float(scene.clock.awake)
            seen.append(torch.minimum(seen[-1], slopes))

        if hidden.requires_grad:
            hidden.register_hook(keep)
        losses: Tensor = model.last(hidden + 10.0 * seen[-1]).squeeze(1)
        return losses

    return scene.setup(loss)


@case("state: counter of rare records that is public until one comes", timings=BOTH)
def _public_until(scene: Scene) -> Setup:
    """A tensor in a closure, multiplied by 1 until the special record comes."""
    factor = torch.ones(())

    def keep(rows: Tensor) -> None:
        factor.mul_(torch.where((rows < -10.0).any(), -1.0, 1.0))

    return _closing(scene, keep, lambda: 10.0 * factor.clamp(max=0.0))
