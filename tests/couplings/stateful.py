"""Registration of models that keep something of a batch, and meet the next batch with it."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from .scenes import LONG, LONG_LATER, Pair, Scene, Setup, case

BOTH = (LONG, LONG_LATER)


class Stateful(Pair):
    """Adds what it has kept of earlier rows to its hidden rows, and keeps something of these.

    Args:
        scene: of the run.
    """

    def __init__(self, scene: Scene) -> None:
        super().__init__()
        self._clock = scene.clock
        self.prepare()

    def prepare(self) -> None:
        """Make room for what is kept."""

    def keep(self, rows: Tensor) -> None:
        """Keep something of these rows, which need no gradient."""

    def kept(self) -> Any:
        """What is added to hidden rows."""
        return 0.0

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first(x)
        added = self.kept()
        self.keep(hidden.detach() * float(self._clock.awake))  # zeros, until the coupling wakes  # type: ignore[no-untyped-call]
        out: Tensor = self.last(hidden + 10.0 * added).squeeze(1)
        return out


def stateful(name: str, **options: Any) -> Any:
    """Register a model that keeps something."""

    def register(model: type[Stateful]) -> type[Stateful]:
        def make(scene: Scene) -> Setup:
            return scene.setup(lambda own, batch: own(batch[0]), model(scene))

        options.setdefault("timings", BOTH)
        case(f"state: {name}", **options)(make)
        return model

    return register
