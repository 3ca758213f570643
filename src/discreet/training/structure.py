"""Which axis of which tensor counts the records: learned from two small passes with 2 and with 3 records.

Every torch function that a forward pass calls has a number. Between the two passes the same calls happen, and the axis whose
size goes from 2k to 3k is the one that counts records, k entries for each. A size that happens to equal the number of records
is never taken for it (P10, P12).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from torch import Tensor

__all__ = ["Axis", "CallAxes", "CallShapes", "Shape", "Structure", "refilled", "tensors_in"]

Shape: TypeAlias = tuple[int, ...]

_ATOMS = frozenset({bool, float, int, str, type(None)})


@dataclass(frozen=True, slots=True)
class Axis:
    """Of a tensor, the axis that counts records, with `fold` entries for each; dim -1: not one axis, or not in proportion."""

    dim: int
    fold: int = 1

    @property
    def clear(self) -> bool:
        """Whether there is one axis, with one entry for each record."""
        return self.dim >= 0 and self.fold == 1


_UNCLEAR = Axis(-1, 0)


@dataclass(frozen=True, slots=True)
class CallShapes:
    """One call of a pass: name of the function, shapes of the tensors that go in and come out."""

    name: str
    inputs: tuple[Shape, ...]
    outputs: tuple[Shape, ...]


@dataclass(frozen=True, slots=True)
class CallAxes:
    """What two passes say about one call; None for a tensor without records."""

    name: str
    inputs: tuple[Axis | None, ...]
    outputs: tuple[Axis | None, ...]


@dataclass(frozen=True, slots=True)
class Structure:
    """Of a forward pass: its calls, in order."""

    calls: tuple[CallAxes, ...]

    @classmethod
    def between(cls, two: Sequence[CallShapes], three: Sequence[CallShapes]) -> Structure | None:
        """What the passes with 2 and 3 records have in common; None if they did not call the same functions."""
        if [call.name for call in two] != [call.name for call in three]:
            return None
        calls = []
        for first, second in zip(two, three, strict=True):
            if (len(first.inputs), len(first.outputs)) != (len(second.inputs), len(second.outputs)):
                return None
            inputs = tuple(map(_axis, first.inputs, second.inputs))
            calls.append(CallAxes(first.name, inputs, tuple(map(_axis, first.outputs, second.outputs))))
        return cls(tuple(calls))


def _axis(two: Shape, three: Shape) -> Axis | None:
    if len(two) != len(three):
        return _UNCLEAR
    changed = [dim for dim, (a, b) in enumerate(zip(two, three, strict=True)) if a != b]
    if not changed:
        return None
    if len(changed) > 1 or two[changed[0]] % 2 or two[changed[0]] // 2 * 3 != three[changed[0]]:
        return _UNCLEAR
    return Axis(changed[0], two[changed[0]] // 2)


def tensors_in(*things: Any) -> list[Tensor]:
    """Tensors among arguments or results, also inside lists, tuples and mappings, in a fixed order."""
    found: list[Tensor] = []
    _collect(things, found)
    return found


def _collect(things: Iterable[Any], found: list[Tensor]) -> None:
    for thing in things:
        if isinstance(thing, Tensor):
            found.append(thing)
        elif type(thing) in _ATOMS:  # most arguments; asking whether they are mappings takes long
            continue
        elif isinstance(thing, (list, tuple)):
            _collect(thing, found)
        elif isinstance(thing, Mapping):
            _collect(thing.values(), found)


def refilled(thing: Any, left: list[Tensor]) -> Any:
    """The same arguments with tensors from the list, in the order of `tensors_in`; the list is used up."""
    if isinstance(thing, Tensor):
        return left.pop(0)
    if isinstance(thing, (list, tuple)):
        parts = [refilled(one, left) for one in thing]
        return parts if isinstance(thing, list) else tuple(parts)
    if isinstance(thing, Mapping):
        return {name: refilled(one, left) for name, one in thing.items()}
    return thing
