"""What a case is: a model, a loss and a data set through which one record may move the others.

All ordinary records point the same way and have gradients longer than the clip norm, so that each
contributes one clip norm in the same direction. The special record points the other way and is a
hundred times as long: what wakes at large, negative or rare numbers wakes for it alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

FEATURES = 4
ORDINARY = 5
PLACE = 2  # of the special record among the others
SPECIAL_VALUE = -100.0
SPECIAL_LABEL = 2

Loss: TypeAlias = Callable[[Any, Any], Any]
Around: TypeAlias = Callable[[Any, Any], None]


class Clock:
    """Public time, set by the loop: which step this is, and whether the coupling is awake.

    Args:
        step: number of the first step.
        wakes: number of the first step in which the coupling acts.
    """

    __slots__ = ("_wakes", "step")

    def __init__(self, step: int, wakes: int) -> None:
        self.step = step
        self._wakes = wakes

    @property
    def awake(self) -> bool:
        return self.step >= self._wakes

    @property
    def weight(self) -> float:
        """A weight that ramps up from 0: terms that have it are computed in every pass."""
        return 10.0 * float(self.awake)


@dataclass(frozen=True)
class Timing:
    """When a coupling wakes, and how many steps are taken."""

    name: str
    first: int
    wakes: int
    steps: int

    def clock(self) -> Clock:
        return Clock(self.first, self.wakes)


FRESH = Timing("fresh", first=0, wakes=0, steps=1)
LATER = Timing("later", first=0, wakes=1, steps=2)
THIRD = Timing("third", first=0, wakes=2, steps=3)
LONG = Timing("long", first=0, wakes=0, steps=2)  # for what acts in the next step
LONG_LATER = Timing("long, later", first=0, wakes=1, steps=3)


class Relation(Enum):
    """How the two data sets differ, and by how many clip norms their sums may."""

    ADDED = 1.0
    """The special record is there, or is not."""

    REPLACED = 2.0
    """An ordinary record is in its place: order and random numbers are the same."""


@dataclass(frozen=True)
class Setup:
    """One run, ready to begin.

    Args:
        model: to train.
        loss: of (model, batch), one for each record.
        dataset: of the records.
        collate: for `PrivateRun.batches`; None for torch's own.
        before: called in the loop before each `run.backward`, with (model, batch).
        after: called in the loop after each `run.backward`, with (model, batch).
    """

    model: nn.Module
    loss: Loss
    dataset: Any
    collate: Callable[[list[Any]], Any] | None = None
    before: Around | None = None
    after: Around | None = None


class Pair(nn.Module):
    """Two linear layers: `first` keeps directions, `last` adds up."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(FEATURES, FEATURES, bias=False)
        self.last = nn.Linear(FEATURES, 1, bias=False)
        with torch.no_grad():
            generator = torch.Generator().manual_seed(3)
            noise = torch.randn(FEATURES, FEATURES, generator=generator)
            self.first.weight.copy_(torch.eye(FEATURES) + 0.05 * noise)
            self.last.weight.fill_(0.5)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.last(self.first(x)).squeeze(1)
        return out


@dataclass(frozen=True)
class Scene:
    """The records of one run, and its clock.

    Args:
        x: features, a row for each record.
        y: labels: 0 or 1, 2 of the special record.
        special: whether the special record is among them.
        clock: of the run.
    """

    x: Tensor
    y: Tensor
    special: bool
    clock: Clock

    @classmethod
    def of(cls, clock: Clock, relation: Relation, *, special: bool) -> Scene:
        generator = torch.Generator().manual_seed(1)
        x = 1.0 + 0.1 * torch.randn(ORDINARY + 1, FEATURES, generator=generator)
        y = torch.arange(ORDINARY + 1) % 2
        if special:
            x[PLACE] = SPECIAL_VALUE
            y[PLACE] = SPECIAL_LABEL
        elif relation is Relation.ADDED:
            others = torch.arange(ORDINARY + 1) != PLACE
            x, y = x[others], y[others]
        return cls(x, y, special, clock)

    def setup(
        self, loss: Loss, model: nn.Module | None = None, dataset: Any = None, **more: Any
    ) -> Setup:
        """A run of this loss, by default of a `Pair` on the rows of `x` and `y`."""
        rows = TensorDataset(self.x, self.y) if dataset is None else dataset
        return Setup(Pair() if model is None else model, loss, rows, **more)


Make: TypeAlias = Callable[[Scene], Setup]


@dataclass(frozen=True)
class Case:
    """A way in which one record may move the others.

    Args:
        name: "kind: what".
        make: a fresh model, loss and data set for each run.
        timings: when the coupling wakes.
        relation: of the two data sets.
        raises: exceptions of others than the library that the case may end in.
        teeth: whether the sums move too far if the records of a pass are taken to be apart.
        full: whether it is for the slow suite only.
        served: whether it is sound, so that a refusal is a failure.
        drawn_in_turn: whether records that are computed one by one may draw their random numbers
            from one stream, in turn. What a record draws then depends on how much those before it
            drew. That is no coupling: whatever was drawn before, what comes next has the same law.
    """

    name: str
    make: Make
    timings: tuple[Timing, ...] = (FRESH, LATER)
    relation: Relation = Relation.ADDED
    raises: tuple[type[Exception], ...] = ()
    teeth: bool = True
    full: bool = False
    served: bool = False
    drawn_in_turn: bool = False

    @property
    def kind(self) -> str:
        return self.name.partition(":")[0]

    def is_slow(self, timing: Timing) -> bool:
        """Whether a run is for the slow suite: one that is awake from the start.

        Where the same case also wakes later, that is in the quick one, with the same operations.
        """
        return self.full or (timing in (FRESH, LONG) and len(self.timings) > 1)

    def scene(self, timing: Timing, *, special: bool) -> Scene:
        return Scene.of(timing.clock(), self.relation, special=special)


@dataclass
class Registry:
    """All cases, by name, in the order in which they are written."""

    cases: dict[str, Case] = field(default_factory=dict)

    def add(self, entry: Case) -> None:
        if entry.name in self.cases:
            raise ValueError(entry.name)
        self.cases[entry.name] = entry


REGISTRY = Registry()


def case(name: str, **options: Any) -> Callable[[Make], Make]:
    """Register a function that sets up a run for a scene."""

    def register(make: Make) -> Make:
        REGISTRY.add(Case(name, make, **options))
        return make

    return register


def turned(losses: Tensor, *, awake: bool) -> Tensor:
    """The losses, or their negatives: what a coupling does once it is awake. Same operations."""
    return losses * (-1.0 if awake else 1.0)
