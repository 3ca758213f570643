"""What a recording is made of: operations, reads of public values, and slots
in the place of tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum, auto
from typing import Any, TypeAlias, final

from torch import Tensor

from discreet.training.separation.operation import Operation
from discreet.training.separation.states import Rows

__all__ = [
    "Built",
    "Compared",
    "Operated",
    "Recorded",
    "Slot",
    "SlotOrigin",
    "ValuesRead",
    "filled",
    "slots_in",
]


class SlotOrigin(Enum):
    """Whose memory a tensor lies in."""

    BEFORE = auto()
    """That was there before the pass: parameters, buffers, constants. Public."""
    BATCH = auto()
    """What the pass was given of its records."""
    PASS = auto()
    """Made by the pass."""


@final
@dataclass(frozen=True, slots=True)
class Slot:
    """A tensor of a recorded pass.

    Args:
        number: of the slot.
        origin: of its memory.
    """

    number: int
    origin: SlotOrigin


@final
@dataclass(frozen=True, slots=True, eq=False)
class Operated:
    """An operation that was executed.

    Args:
        operation: its facts.
        call: executes it.
        args: by place, with slots for tensors.
        kwargs: by name, likewise.
        results: slots of its results, in their order; None for one that is nobody's, or in the
            memory of a slot as it was before.
        single: whether it gives one result by itself, and no tuple.
        gradients: whether gradients were switched on.
        zeroed: whether what it gives is filled with zeros: nobody has written it.
        judged: whether the proof has judged it; the others are of the library's own rules.
        expected: the numbers that it gave to Python, or whose shapes Python has seen; of public
            values. None otherwise.
    """

    operation: Operation
    call: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    results: tuple[Slot | None, ...]
    single: bool
    gradients: bool
    zeroed: bool
    judged: bool
    expected: Any = None


@final
@dataclass(frozen=True, slots=True, eq=False)
class ValuesRead:
    """A rule has read the numbers of a public tensor: they must be these.

    Args:
        slot: of the tensor.
        values: that were read.
    """

    slot: Slot
    values: Tensor


@final
@dataclass(frozen=True, slots=True, eq=False)
class Compared:
    """It was asked whether a public tensor is the same for all records: the answer must be this.

    Args:
        slot: of the tensor.
        rows: where the records would be in it.
        count: of records.
        alike: the answer.
    """

    slot: Slot
    rows: Rows
    count: int
    alike: bool


Recorded: TypeAlias = Operated | ValuesRead | Compared


def filled(thing: Any, change: Callable[[Any], Any], kind: type = Tensor) -> Any:
    """Copy arguments, or a result of a pass, with everything of a class replaced.

    Looked into are lists, tuples, dicts, and dataclasses of the library that hold such a thing.
    """
    if isinstance(thing, kind):
        return change(thing)

    if type(thing) in (list, tuple):
        return type(thing)([filled(part, change, kind) for part in thing])

    if type(thing) is dict:
        return {name: filled(part, change, kind) for name, part in thing.items()}

    if is_dataclass(thing) and not isinstance(thing, type) and slots_in(thing, kind):
        parts = [filled(getattr(thing, field.name), change, kind) for field in fields(thing)]
        return Built(type(thing), tuple(parts))

    if isinstance(thing, Built):
        return Built(thing.kind, tuple([filled(part, change, kind) for part in thing.parts]))

    return thing


@final
@dataclass(frozen=True, slots=True, eq=False)
class Built:
    """An object of a dataclass, with slots in the place of tensors.

    Args:
        kind: its class.
        parts: what its fields hold, in their order.
    """

    kind: Any
    parts: tuple[Any, ...]


def slots_in(thing: Any, kind: type = Slot) -> list[Any]:
    """Everything of a class in a structure, in its order."""
    if isinstance(thing, kind):
        return [thing]

    if isinstance(thing, Built):
        parts: Any = thing.parts
    elif type(thing) is dict:
        parts = thing.values()
    elif type(thing) in (list, tuple):
        parts = thing
    elif is_dataclass(thing) and not isinstance(thing, type):
        parts = [getattr(thing, field.name) for field in fields(thing)]
    else:
        return []

    return [match for part in parts for match in slots_in(part, kind)]
