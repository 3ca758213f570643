"""Public state that passes change: noted before a pass, put back after it, moved once a step.

How many passes a step has follows from the size of its sample, which is sensitive. So every pass
finds the state of the beginning of the step, and at the end of the step the state becomes what the
first pass made of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import is_
from typing import Any, TypeAlias, final

import torch
from torch import Tensor, nn

from discreet.errors import ModelError
from discreet.training.state.holders import ABSENT, NAMESPACE, Kind
from discreet.training.state.reach import OF_TORCH, Reach

__all__ = ["Moved", "Noted", "refill"]

_REGISTERS_AND_HOOKS = OF_TORCH - {"training"}
_NONE: dict[Any, Any] = {}

_Assigned: TypeAlias = tuple[dict[str, Any], str, Any]
"""The attributes of a module, the name of one of them, and its value."""

_Changed: TypeAlias = tuple[Kind, Any, Any]
"""The kind of a holder, itself, and a note of what it holds."""


@final
class Noted:
    """State of Python that a model and a loss reach, as it is before a pass.

    Args:
        model: of the user.
        function: of the user, which the pass runs.
    """

    __slots__ = ("_holders", "_hooks", "_registers")

    def __init__(self, model: nn.Module, function: Any = None) -> None:
        reach = Reach(model, function)
        self._registers = [(entries, entries.copy()) for entries in reach.registers]
        self._holders = [(kind, holder, kind.read(holder)) for kind, holder in reach.holders]
        # Nearly all are empty: of those nothing has to be copied.
        self._hooks = [(hooks, dict(hooks) if hooks else _NONE) for hooks in reach.hooks]

    def is_same(self) -> bool:
        """Whether everything is as it was noted: the same objects in the same places."""
        for entries, before in self._registers:
            if len(entries) != len(before) or not all(map(is_, entries.values(), before.values())):
                return False

        for hooks, before in self._hooks:
            if (hooks or before) and not NAMESPACE.same(before, dict(hooks)):
                return False

        return all(kind.same(before, kind.read(holder)) for kind, holder, before in self._holders)

    def put_back(self, moved: Moved) -> None:
        """Let everything be again what it was, and note what the pass had made of it."""
        moved.attributes = self._put_back_attributes()
        self._put_back_hooks(moved)

        for kind, holder, before in self._holders:
            now = kind.read(holder)
            if kind.same(before, now):
                continue

            # What can be put back is, whatever cannot.
            moved.holders.append((kind, holder, now))
            try:
                kind.write(holder, before)
            except ModelError as error:
                moved.refusal = error

    def _put_back_hooks(self, moved: Moved) -> None:
        # transformers notes in an attribute that it has put hooks: put back without them, they
        # would be put there again by every pass.
        for hooks, before in self._hooks:
            if (hooks or before) and not NAMESPACE.same(before, now := dict(hooks)):
                moved.holders.append((NAMESPACE, hooks, now))
                NAMESPACE.write(hooks, before)

    def _put_back_attributes(self) -> list[_Assigned]:
        changes: list[_Assigned] = []

        for entries, before in self._registers:
            # Nearly always nothing was assigned, which is seen at the speed of C.
            if len(entries) == len(before) and all(map(is_, entries.values(), before.values())):
                continue

            for name in {**before, **entries}.keys() - _REGISTERS_AND_HOOKS:
                value, earlier = entries.get(name, ABSENT), before.get(name, ABSENT)
                if value is not earlier:
                    changes.append((entries, name, value))
                    _assign(entries, name, earlier)

        return changes


def _assign(entries: dict[str, Any], name: str, value: Any) -> None:
    """Give an attribute this value, or take it away."""
    if value is ABSENT:
        entries.pop(name, None)
    else:
        entries[name] = value


@final
@dataclass(slots=True, eq=False)
class Moved:
    """Public state that one pass has changed, and what it became; the state itself was put back.

    Args:
        attributes: of modules.
        holders: other values of Python that were changed in place.
        memory: storages that were there before the pass, with copies.
        generators: of the user's own, with their states.
        refusal: why something could not be put back.
    """

    attributes: list[_Assigned] = field(default_factory=list)
    holders: list[_Changed] = field(default_factory=list)
    memory: list[tuple[Any, Any]] = field(default_factory=list)
    generators: list[tuple[torch.Generator, Tensor]] = field(default_factory=list)
    refusal: ModelError | None = None

    def __bool__(self) -> bool:
        return bool(self.attributes or self.holders or self.memory or self.generators)

    def write(self) -> None:
        """Let the state become what the pass made of it."""
        for storage, content in self.memory:
            refill(storage, content)

        # An attribute that the pass took away may be gone already.
        for entries, name, value in self.attributes:
            _assign(entries, name, value)

        # A generator that the loss reaches is among the holders, too, which were read first.
        for generator, state in self.generators:
            generator.set_state(state)

        for kind, holder, content in self.holders:
            kind.write(holder, content)


def refill(storage: Any, content: Any) -> None:
    """Give a storage the size and the bytes of another."""
    # The pass may have resized it.
    if storage.nbytes() != content.nbytes():
        storage.resize_(content.nbytes())

    storage.copy_(content)
