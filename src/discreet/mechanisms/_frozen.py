"""A mapping that cannot be changed: equal by its pairs and their order, hashable, shown as a
dictionary.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from discreet import _validate as check
from discreet.errors import ParameterError

__all__ = ["Frozen", "frozen"]

_V = TypeVar("_V")


@dataclass(frozen=True, slots=True, repr=False)
class Frozen(Mapping[str, _V]):
    """Pairs of a name and a value. Order counts, as the first pattern that matches wins."""

    pairs: tuple[tuple[str, _V], ...]

    def __getitem__(self, key: str) -> _V:
        # A search through the pairs: with a dictionary beside them there would be two copies of
        # each fact, and the value could not be hashed.
        for name, value in self.pairs:
            if name == key:
                return value

        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        return iter([name for name, _ in self.pairs])

    def __len__(self) -> int:
        return len(self.pairs)

    def __repr__(self) -> str:
        return repr(dict(self.pairs))


def frozen(owner: str, name: str, mapping: Mapping[str, _V]) -> Frozen[_V]:
    """A copy that shares nothing with the dictionary passed in; every key a label, at least one
    pair.
    """
    if not isinstance(mapping, Mapping) or not mapping:
        raise ParameterError(
            owner=owner,
            name=name,
            expected="a mapping with at least one entry",
            got=f"{type(mapping).__name__}, {mapping!r:.80}",
        )

    return Frozen(
        tuple((check.label(owner, f"key of {name}", key), value) for key, value in mapping.items())
    )
