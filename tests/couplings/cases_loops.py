"""Loops that put gradients beside the released ones: what is left over of plain training."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .scenes import FRESH, Pair, Scene, Setup, Timing, case

_TWO = Timing("two steps", first=0, wakes=1, steps=2)


def _plain(model: Any, batch: Any) -> Tensor:
    losses: Tensor = model(batch[0])
    return losses


def _backward(model: Any, batch: Any) -> None:
    _plain(model, batch.data).sum().backward()  # type: ignore[no-untyped-call]


@case("loop: backward() before the run's", timings=(FRESH,), teeth=False)
def _before(scene: Scene) -> Setup:
    return scene.setup(_plain, before=_backward)


@case("loop: backward() after the run's", timings=(FRESH,), teeth=False)
def _after(scene: Scene) -> Setup:
    return scene.setup(_plain, after=_backward)


@case("loop: backward() from the second step on", timings=(_TWO,), teeth=False)
def _second(scene: Scene) -> Setup:
    def after(model: Any, batch: Any) -> None:
        if scene.clock.awake:
            _backward(model, batch)

    return scene.setup(_plain, after=after)


@case("loop: torch.autograd.backward", timings=(FRESH,), teeth=False)
def _autograd(scene: Scene) -> Setup:
    def after(model: Any, batch: Any) -> None:
        torch.autograd.backward(_plain(model, batch.data).sum())

    return scene.setup(_plain, after=after)


@case("loop: backward() with inputs by name", timings=(FRESH,), teeth=False)
def _inputs(scene: Scene) -> Setup:
    def after(model: Any, batch: Any) -> None:
        losses = _plain(model, batch.data).sum()
        losses.backward(inputs=[model.last.weight])  # type: ignore[no-untyped-call]

    return scene.setup(_plain, after=after)


@case("loop: backward() of another model that shares a layer", timings=(FRESH,), teeth=False)
def _shared(scene: Scene) -> Setup:
    def after(model: Any, batch: Any) -> None:
        other = Pair()
        other.last = model.last
        _plain(other, batch.data).sum().backward()  # type: ignore[no-untyped-call]

    return scene.setup(_plain, after=after)


@case("loop: closure of L-BFGS", timings=(FRESH,), teeth=False)
def _lbfgs(scene: Scene) -> Setup:
    model = Pair()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=1e-6, max_iter=2)

    def after(own: Any, batch: Any) -> None:
        def closure() -> Tensor:
            optimizer.zero_grad()
            total = _plain(own, batch.data).sum()
            total.backward()  # type: ignore[no-untyped-call]
            return total

        optimizer.step(closure)  # type: ignore[no-untyped-call]

    return scene.setup(_plain, model, after=after)


@case("loop: gradient scaler around plain training", timings=(FRESH,), teeth=False)
def _scaler(scene: Scene) -> Setup:
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)

    def after(model: Any, batch: Any) -> None:
        scaler.scale(_plain(model, batch.data).sum()).backward()  # type: ignore[no-untyped-call]

    return scene.setup(_plain, after=after)


@case("loop: backward() inside the loss", timings=(FRESH,), teeth=False)
def _inside(scene: Scene) -> Setup:
    def loss(model: Any, batch: Any) -> Tensor:
        losses = _plain(model, batch)
        if losses.requires_grad:
            losses.sum().backward(retain_graph=True)  # type: ignore[no-untyped-call]
        return losses

    return scene.setup(loss)


@case("loop: optimizer inside the loss", timings=(FRESH,), teeth=False)
def _optimizer(scene: Scene) -> Setup:
    model = Pair()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def loss(own: Any, batch: Any) -> Tensor:
        if torch.is_grad_enabled():
            _plain(own, batch).sum().backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        return _plain(own, batch)

    return scene.setup(loss, model)
