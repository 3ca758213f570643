"""What every event has in common: a name in files, and fields that are written there."""

from __future__ import annotations

from abc import ABC
from dataclasses import fields
from typing import Any, ClassVar

__all__ = ["Event"]


class Event(ABC):
    """What ledgers and plan files hold by name: a sampling policy or a query; a frozen dataclass.

    Attributes:
        kind: the name in files. Never changed.
    """

    __slots__ = ()

    kind: ClassVar[str]

    def values(self) -> dict[str, Any]:
        """The fields by name, in their order."""
        # Every event is a dataclass, which its abstract class cannot say to the type checker.
        names = [field.name for field in fields(self)]  # type: ignore[arg-type]  # see above
        return {name: getattr(self, name) for name in names}
