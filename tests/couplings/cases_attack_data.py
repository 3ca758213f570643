"""What outside attackers found about data: augmentations, and records past the batch."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.utils import dlpack
from torch.utils.data import Dataset
from torch.utils.data._utils.collate import default_collate_fn_map

from discreet.training import augmented

from .cases_attack import sign
from .scenes import Scene, Setup, case
from .stateful import BOTH

# --- augmentations ---

Augment: TypeAlias = Callable[[Tensor], Tensor]


def _augmentation(name: str) -> Callable[[Callable[[], Augment]], None]:
    def register(prepare: Callable[[], Augment]) -> None:
        @case(f"attack: augmentation with {name}", timings=BOTH)
        def make(scene: Scene) -> Setup:
            augment = prepare()

            def change(batch: Any) -> Any:
                return (augment(batch[0]) if scene.clock.awake else batch[0] * 1.0, batch[1])

            return scene.setup(augmented(lambda model, batch: model(batch[0]), change, copies=2))

    return register


@_augmentation("a number that is kept")
def _number() -> Augment:
    smallest = [0.0]

    def augment(x: Tensor) -> Tensor:
        smallest[0] = min(smallest[0], x.min().item())
        return x * (1.0 + smallest[0])

    return augment


@_augmentation("a tensor that is kept")
def _tensor() -> Augment:
    bank = [torch.ones(())]

    def augment(x: Tensor) -> Tensor:
        float(x.sum())
        before, bank[0] = bank[0], sign(x)
        return x.mul_(before)

    return augment


@_augmentation("a thread")
def _thread() -> Augment:
    def augment(x: Tensor) -> Tensor:
        turns: list[float] = []
        thread = threading.Thread(target=lambda: turns.append(sign(x).item()))
        thread.start()
        thread.join()
        return x * turns[0]

    return augment


@_augmentation("DLPack")
def _dlpack() -> Augment:
    return lambda x: x * sign(dlpack.from_dlpack(dlpack.to_dlpack(x)))  # type: ignore[attr-defined]


@case("attack: augmentation with a ramp for labels")
def _ramp(scene: Scene) -> Setup:
    """A sign for every place, the same for both copies of a record."""

    def change(batch: Any) -> Any:
        places = (
            torch.arange(len(batch[0])) // 2 if scene.clock.awake else torch.zeros(len(batch[0]))
        )
        return batch[0] * 1.0, torch.where(places % 2 == 0, 1.0, -1.0)

    return scene.setup(augmented(lambda model, batch: model(batch[0]) * batch[1], change, copies=2))


# --- records past the batch ---


@case("attack: memory of the batch in the loss", teeth=False)
def _lent(scene: Scene) -> Setup:
    lent: list[Tensor] = []

    def loss(model: Any, batch: Any) -> Tensor:
        losses: Tensor = model(batch[0])
        return losses * sign(lent[-1]) if scene.clock.awake else losses

    return scene.setup(loss, before=lambda _, batch: lent.append(batch.data[0]))


class _Entry:
    """An entry of a type that the user registers."""

    def __init__(self, x: Tensor) -> None:
        self.x = x


def _together(entries: list[_Entry], *, collate_fn_map: Any = None) -> Tensor:
    del collate_fn_map
    rows = torch.stack([entry.x for entry in entries])
    return rows * sign(rows)


class _Entries(Dataset[Any]):
    def __init__(self, scene: Scene) -> None:
        default_collate_fn_map[_Entry] = _together
        self._scene = scene

    def __len__(self) -> int:
        return len(self._scene.x)

    def __getitem__(self, index: int) -> tuple[Any, Tensor]:
        return _Entry(self._scene.x[index]), self._scene.y[index]


@case("attack: registered type of torch's own collate", teeth=False)
def _registered(scene: Scene) -> Setup:
    return scene.setup(lambda model, batch: model(batch[0]), dataset=_Entries(scene))


@case("attack: rows of the data set in a closure", teeth=False)
def _closure(scene: Scene) -> Setup:
    def loss(model: Any, batch: Any) -> Tensor:
        losses: Tensor = model(batch[0])
        return losses * sign(scene.x) if scene.clock.awake else losses

    return scene.setup(loss)
