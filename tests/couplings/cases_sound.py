"""What keeps records apart, and must be served: a suite that only refuses would pass otherwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from .scenes import FEATURES, Make, Pair, Scene, Setup, case


def sound(name: str) -> Callable[[Make], Make]:
    """Register a run that must neither be refused nor move too far."""
    return case(f"sound: {name}", served=True, teeth=False)


@sound("two layers")
def _plain(scene: Scene) -> Setup:
    return scene.setup(lambda model, batch: model(batch[0]))


@sound("labels")
def _labels(scene: Scene) -> Setup:
    model = nn.Sequential(nn.Linear(FEATURES, 6), nn.Tanh(), nn.LayerNorm(6), nn.Linear(6, 3))

    def loss(own: Any, batch: Any) -> Tensor:
        return functional.cross_entropy(own(batch[0]), batch[1], reduction="none")

    return scene.setup(loss, model)


@sound("convolution with group normalisation")
def _convolution(scene: Scene) -> Setup:
    model = nn.Sequential(nn.Conv1d(1, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.ReLU())

    def loss(own: Any, batch: Any) -> Tensor:
        out: Tensor = own(batch[0].unsqueeze(1)).square().mean((1, 2))
        return out

    return scene.setup(loss, model)


@sound("attention within records")
def _attention(scene: Scene) -> Setup:
    model = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)

    def loss(own: Any, batch: Any) -> Tensor:
        x = batch[0]
        out: Tensor = own(x.unsqueeze(1) * torch.eye(FEATURES)).square().mean((1, 2))
        return out

    return scene.setup(loss, model)


@sound("gradient penalty of each record")
def _penalty(scene: Scene) -> Setup:
    def loss(model: Any, batch: Any) -> Any:
        x = batch[0].detach().requires_grad_()
        losses: Tensor = model(x)
        if not losses.requires_grad:
            return losses
        slopes = torch.autograd.grad(losses.sum(), x, create_graph=True)[0]
        return losses + slopes.square().sum(1)

    return scene.setup(loss)


@sound("products with zeros, going back")
def _zeros(scene: Scene) -> Setup:
    """Torch's own rule for products looks for zeros in the whole batch, unless a mode is on."""

    def loss(model: Any, batch: Any) -> Tensor:
        x = batch[0]
        hidden = model.first(x) * (x > -10.0)
        losses: Tensor = model.last(hidden).squeeze(1) + hidden.prod(1)
        return losses

    return scene.setup(loss)


@sound("mask that fills")
def _mask(scene: Scene) -> Setup:
    def loss(model: Any, batch: Any) -> Tensor:
        x = batch[0]
        hidden = model.first(x).masked_fill(x < -10.0, 0.0)
        hidden = torch.where(x.isfinite(), hidden, torch.zeros_like(hidden))
        losses: Tensor = model.last(hidden).squeeze(1)
        return losses

    return scene.setup(loss)


@sound("instance normalisation by hand")
def _instance(scene: Scene) -> Setup:
    def loss(model: Any, batch: Any) -> Tensor:
        x = batch[0]
        rows = (x - x.mean(1, keepdim=True)) / (x.std(1, keepdim=True) + 1.0)
        losses: Tensor = model(x + rows)
        return losses

    return scene.setup(loss)


@sound("mean over own tokens")
def _tokens(scene: Scene) -> Setup:
    def loss(model: Any, batch: Any) -> Tensor:
        x, y = batch
        mask = torch.arange(FEATURES) <= y.unsqueeze(1)
        shares = mask / mask.sum(1, keepdim=True)
        losses: Tensor = model.last(model.first(x) * shares).squeeze(1)
        return losses

    return scene.setup(loss)


@sound("weight that ramps up")
def _ramp(scene: Scene) -> Setup:
    """A public schedule of what concerns single records alone."""

    def loss(model: Any, batch: Any) -> Any:
        hidden = model.first(batch[0])
        losses: Tensor = model.last(hidden).squeeze(1)
        return losses + scene.clock.weight * hidden.square().mean(1)

    return scene.setup(loss)


@sound("buffer that is public")
def _buffer(scene: Scene) -> Setup:
    model = Pair()
    model.register_buffer("scale", torch.full((FEATURES,), 2.0))
    return scene.setup(lambda own, batch: own(batch[0] * own.scale), model)


@sound("numbers for the eye")
def _eye(scene: Scene) -> Setup:
    """An average of the batch that meets no record again, and that Python never sees."""

    def loss(model: Any, batch: Any) -> Tensor:
        losses: Tensor = model(batch[0])
        losses.detach().mean()
        return losses

    return scene.setup(loss)
