"""What a fourth group of attackers found: code of users' objects that runs where nobody looks."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self

import torch
from torch import Tensor
from torch.utils.data import default_collate

from discreet.training import augmented

from .scenes import LONG, Scene, Setup, case, turned

_FAR = -50.0


def _is_far(x: Tensor) -> bool:
    """Whether the special record is there, read past the dispatcher."""
    return bool(x.numpy().min() < _FAR)


# --- objects that torch asks for numbers, with the function mode off ---


class _Index:
    def __init__(self, x: Tensor) -> None:
        self.x = x

    def __index__(self) -> int:
        return int(_is_far(self.x))


class _Duck:
    def __init__(self, x: Tensor) -> None:
        self.x = x

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Tensor:
        del func, types, kwargs
        return torch.tensor(-1.0 if _is_far(args[0].x) else 1.0)


def _asked(name: str, sign: Callable[[Tensor], Any]) -> None:
    @case(f"objects: {name}")
    def make(scene: Scene) -> Setup:
        def loss(model: Any, batch: Any) -> Any:
            losses: Tensor = model(batch[0])
            return losses * sign(batch[0]) if scene.clock.awake else losses

        return scene.setup(loss)


_asked("an index that looks", lambda x: torch.tensor([1.0, -1.0])[_Index(x)])
_asked("an index that looks, in a slice", lambda x: 1.0 - 2.0 * len(torch.ones(3)[: _Index(x)]))
_asked("an operand that looks", lambda x: torch.add(_Duck(x), 0.0))  # type: ignore[call-overload]


# --- mappings and tuples that look when they are built, or asked ---


class _Looking(UserDict[str, Tensor]):
    def __init__(self, parts: Mapping[str, Tensor]) -> None:
        super().__init__(parts)
        self.far = bool(parts["x"].min() < _FAR)


class _Pair(tuple[Tensor, ...]):  # noqa: SLOT001  (it has an attribute)
    far: bool

    def __new__(cls, parts: Any) -> Self:
        built = super().__new__(cls, parts)
        built.far = bool(parts[0].min() < _FAR)
        return built


# A loss gets the entries of a mapping and of a tuple, and nothing that their constructors added.
@case("objects: a mapping for a batch", raises=(AttributeError,), teeth=False)
def _mapping(scene: Scene) -> Setup:
    def loss(model: Any, batch: Any) -> Tensor:
        return turned(model(batch["x"]), awake=scene.clock.awake and batch.far)

    return scene.setup(
        loss,
        collate=lambda entries: _Looking(dict(zip("xy", default_collate(entries), strict=True))),
    )


@case("objects: a tuple for a batch", raises=(AttributeError,), teeth=False)
def _tuple(scene: Scene) -> Setup:
    def loss(model: Any, batch: Any) -> Tensor:
        return turned(model(batch[0]), awake=scene.clock.awake and batch.far)

    return scene.setup(loss, collate=lambda entries: _Pair(default_collate(entries)))


class _Statistics(Mapping[str, Tensor]):
    """A mapping that looks when it is asked for its names."""

    def __init__(self, x: Tensor, seen: list[bool]) -> None:
        self.x, self.seen = x, seen

    def __iter__(self) -> Iterator[str]:
        self.seen.append(_is_far(self.x))
        return iter(())

    def __len__(self) -> int:
        return 0

    def __getitem__(self, name: str) -> Tensor:
        raise KeyError(name)


@case("objects: statistics that look when they are asked", timings=(LONG,))
def _statistics(scene: Scene) -> Setup:
    seen: list[bool] = []

    def loss(model: Any, batch: Any) -> Any:
        losses = turned(model(batch[0]), awake=any(seen))
        return (losses, _Statistics(batch[0], seen)) if scene.clock.awake else losses

    return scene.setup(loss)


# --- what an augmentation makes of a record, besides rows ---


@case("objects: a number without rows from an augmentation")
def _constant(scene: Scene) -> Setup:
    def augment(batch: Any) -> Any:
        x, y = batch
        far = scene.clock.awake and x.min().item() < _FAR
        return x, y, -1.0 if far else 1.0

    return scene.setup(
        augmented(lambda model, batch: model(batch[0]) * batch[2], augment, copies=2)
    )


@case("objects: a shape from an augmentation")
def _shape(scene: Scene) -> Setup:
    widths: list[int] = []

    def augment(batch: Any) -> Any:
        x, _ = batch
        far = scene.clock.awake and x.min().item() < _FAR
        return {"x": x, "room": torch.zeros(len(x), 2 if far else 1)}

    def loss(model: Any, batch: Any) -> Tensor:
        widths.append(batch["room"].shape[1])
        return turned(model(batch["x"]), awake=max(widths) > 1)

    return scene.setup(augmented(loss, augment, copies=2))


# --- random numbers that are no longer unknown ---


def _compared(name: str, draw: Callable[[int], tuple[Tensor, float]]) -> None:
    @case(f"objects: random numbers compared with {name}", teeth=False, raises=(IndexError,))
    def make(scene: Scene) -> Setup:
        def loss(model: Any, batch: Any) -> Tensor:
            losses: Tensor = model(batch[0])
            if not scene.clock.awake:
                return losses
            numbers, first = draw(len(losses))
            return losses * torch.where(numbers == first, -1.0, 1.0)

        return scene.setup(loss)


def _read(count: int) -> tuple[Tensor, float]:
    numbers = torch.rand(count)
    return numbers, numbers[0].item()


def _drawn_twice(count: int) -> tuple[Tensor, float]:
    with torch.random.fork_rng():
        known = torch.rand(count).tolist()
    return torch.rand(count), known[0]


_compared("one that was read", _read)
_compared("those of a state that is set back", _drawn_twice)
