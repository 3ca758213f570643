"""Registration of what mixes hidden rows: a term whose weight is 0 until the coupling wakes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from torch import Tensor

from .scenes import Scene, Setup, case

Mix: TypeAlias = Callable[[Tensor], Tensor]
"""Hidden rows (B, 4) to rows of the same shape that depend on other records."""


def mixing(kind: str, name: str, *, strength: float = 1.0, **options: Any) -> Callable[[Mix], Mix]:
    """Register a function of hidden rows; what it gives is added to them with the clock's weight.

    Args:
        kind: of the case.
        name: of the case.
        strength: factor of the weight.
        options: of `case`.
    """

    def register(mix: Mix) -> Mix:
        def make(scene: Scene) -> Setup:
            def loss(model: Any, batch: Any) -> Tensor:
                hidden = model.first(batch[0])
                mixed = hidden + scene.clock.weight * strength * mix(hidden)
                losses: Tensor = model.last(mixed).squeeze(1)
                return losses

            return scene.setup(loss)

        case(f"{kind}: {name}", **options)(make)
        return mix

    return register
