"""Places and numbers: what a record contributes depends neither on its place nor on how many.

The order of records is secret, and one record more or less changes the places of others.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from .scenes import FEATURES, ORDINARY, Pair, Scene, Setup, case

_MOST = 4 * ORDINARY


def _signs(count: int) -> Tensor:
    """One for every place: public, and different for neighbours."""
    return torch.where(torch.arange(count) % 2 == 0, 1.0, -1.0)


class Placed(Pair):
    """A buffer with a row for each place."""

    rows: Tensor

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(23)
        self.register_buffer("rows", 3.0 * torch.randn(_MOST, FEATURES, generator=generator))


@case("place: buffer with a row for each place")
def _buffer(scene: Scene) -> Setup:
    def loss(model: Any, batch: Any) -> Tensor:
        x = batch[0]
        losses: Tensor = model(x + scene.clock.weight * model.rows[: len(x)])
        return losses

    return scene.setup(loss, Placed())


@case("place: weights by number")
def _weights(scene: Scene) -> Setup:
    def loss(model: Any, batch: Any) -> Tensor:
        x = batch[0]
        factor = _signs(len(x)) if scene.clock.awake else torch.ones(len(x))
        losses: Tensor = model(x)
        return losses * factor

    return scene.setup(loss)


@case("place: embedding of the place")
def _embedding(scene: Scene) -> Setup:
    """A trained row for each place: all of a place's records are one row's gradient."""
    model = Pair()
    model.table = nn.Embedding(_MOST, FEATURES)
    nn.init.constant_(model.table.weight, 0.1)

    def loss(own: Any, batch: Any) -> Tensor:
        x = batch[0]
        hidden = own.first(x) + scene.clock.weight * own.table(torch.arange(len(x)))
        losses: Tensor = own.last(hidden).squeeze(1)
        return losses

    return scene.setup(loss, model)


@case("place: enumerated rows")
def _enumerated(scene: Scene) -> Setup:
    def loss(model: Any, batch: Any) -> Tensor:
        awake = scene.clock.awake
        rows = [model(row[None]) * (-1.0) ** (awake * place) for place, row in enumerate(batch[0])]
        return torch.cat(rows)

    return scene.setup(loss)


@case("place: domains that take turns")
def _turns(scene: Scene) -> Setup:
    """Domains in one batch, told apart by their place."""

    def loss(model: Any, batch: Any) -> Tensor:
        x = batch[0]
        turn = -1.0 if scene.clock.awake else 1.0
        losses: Tensor = model(x)
        return losses * torch.where(torch.arange(len(x)) // 2 % 2 == 1, turn, 1.0)

    return scene.setup(loss)


@case("place: directions by number")
def _directions(scene: Scene) -> Setup:
    """No buffer: the same public random numbers for every place, drawn anew in each pass."""

    def loss(model: Any, batch: Any) -> Tensor:
        x = batch[0]
        generator = torch.Generator().manual_seed(23)
        rows = torch.randn(len(x), FEATURES, generator=generator)
        losses: Tensor = model(x + scene.clock.weight * rows)
        return losses

    return scene.setup(loss)
