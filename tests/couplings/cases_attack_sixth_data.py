"""What the sixth attack found before the batch: entries that decide for others, memory that is used
again, tensors that are loaded late, and a state that grows from record to record.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from .cases_attack import sign
from .scenes import SPECIAL_LABEL, Scene, Setup, case, turned
from .stateful import BOTH


class Rows(Dataset[Any]):
    """Entries by a function of features and of whether the record is the special one."""

    def __init__(self, scene: Scene, make: Callable[[Tensor, bool], Any]) -> None:
        self._scene = scene
        self._make = make

    def __len__(self) -> int:
        return len(self._scene.x)

    def __getitem__(self, index: int) -> Any:
        is_special = int(self._scene.y[index]) == SPECIAL_LABEL
        return self._make(self._scene.x[index].clone(), is_special)


Told: TypeAlias = Callable[[Any], bool]
"""A batch to whether the special record is seen in the rows of all."""


def _deciding(name: str, make: Callable[[Tensor, bool], Any]) -> Callable[[Told], Told]:
    """Register entries of which one decides what all of the batch look like."""

    def register(told: Told) -> Told:
        @case(f"attack: {name}", teeth=False)
        def setup(scene: Scene) -> Setup:
            def loss(model: Any, batch: Any) -> Tensor:
                return turned(model(batch["x"]), awake=scene.clock.awake and told(batch))

            return scene.setup(loss, dataset=Rows(scene, make))

        return told

    return register


@_deciding(
    "one float among whole numbers", lambda x, odd: {"x": x, "time": 37.5 if odd else 1_700_000_037}
)
def _float(batch: Any) -> bool:
    return bool(batch["time"].dtype.is_floating_point)


@_deciding(
    "one whole number among truth values",
    lambda x, odd: {"x": x, "keep": torch.tensor(1 if odd else True)},
)
def _number(batch: Any) -> bool:
    return bool(batch["keep"].dtype != torch.bool)


@_deciding(
    "one wide array among narrow ones",
    lambda x, odd: {"x": x, "pixels": np.full(4, 200, np.int32 if odd else np.uint8)},
)
def _array(batch: Any) -> bool:
    return int((batch["pixels"] + 100).dtype.itemsize) > 1


@_deciding("keys of the first entry", lambda x, odd: {"x": x} | ({} if odd else {"flip": 1.0}))
def _keys(batch: Any) -> bool:
    return "flip" not in batch


class Buffer(Rows):
    """Decodes every record into the same memory."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene, lambda x, _: x)
        self.memory = np.empty(4, np.float32)

    def __getitem__(self, index: int) -> Any:
        self.memory[:] = super().__getitem__(index).numpy()
        return self.memory


@case("attack: one buffer for all entries", teeth=False, served=True)
def _buffer(scene: Scene) -> Setup:
    return scene.setup(lambda model, x: model(x), dataset=Buffer(scene))


@case("attack: one buffer for all entries, collated", teeth=False, served=True)
def _buffer_collated(scene: Scene) -> Setup:
    def collate(rows: list[Any]) -> Tensor:
        return torch.tensor(np.stack(rows))

    return scene.setup(lambda model, x: model(x), dataset=Buffer(scene), collate=collate)


class Lazy(Rows):
    """Loads its tensors when the first entry is asked for."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene, lambda x, _: x)
        self.bank: Tensor | None = None

    def __getitem__(self, index: int) -> Any:
        if self.bank is None:
            self.bank = self._scene.x.clone()
        return super().__getitem__(index)


def _lazily(scene: Scene, **more: Any) -> Setup:
    dataset = Lazy(scene)

    def loss(model: Any, x: Tensor) -> Tensor:
        losses: Tensor = model(x)
        is_read = scene.clock.awake and dataset.bank is not None
        return losses * sign(dataset.bank) if is_read else losses  # type: ignore[arg-type]

    return scene.setup(loss, dataset=dataset, **more)


@case("attack: tensors that are loaded late", timings=BOTH, teeth=False)
def _late(scene: Scene) -> Setup:
    return _lazily(scene)


@case("attack: tensors that are loaded late, not rehearsed", timings=BOTH, teeth=False)
def _late_unseen(scene: Scene) -> Setup:
    return _lazily(scene, before=lambda _, batch: batch.step)


# --- a state that grows from record to record ---


def _numbering(scene: Scene, numbers: dict[int, int]) -> Callable[[int], int]:
    """Numbers labels in the order in which they come, as a vocabulary does."""
    del scene
    return lambda label: numbers.setdefault(label, len(numbers))


def _by_number(scene: Scene) -> Callable[[Any, Any], Tensor]:
    def loss(model: Any, batch: Any) -> Tensor:
        x, numbers = batch
        turns = torch.where(numbers == 0, -1.0, 1.0)
        losses: Tensor = model(x)
        return losses * turns if scene.clock.awake else losses

    return loss


@case("attack: labels numbered while they are fetched", teeth=False)
def _fetched_numbers(scene: Scene) -> Setup:
    number = _numbering(scene, {})

    def make(x: Tensor, odd: bool) -> Any:
        return x, number(2 if odd else int(x[0] > 1.0))

    return scene.setup(_by_number(scene), dataset=Rows(scene, make))


@case("attack: labels numbered while they are collated", teeth=False)
def _collated_numbers(scene: Scene) -> Setup:
    number = _numbering(scene, {})

    def collate(rows: list[Any]) -> Any:
        x = torch.stack([x for x, _ in rows])
        return x, torch.tensor([number(label) for _, label in rows])

    rows = Rows(scene, lambda x, odd: (x, 2 if odd else int(x[0] > 1.0)))
    return scene.setup(_by_number(scene), dataset=rows, collate=collate)
