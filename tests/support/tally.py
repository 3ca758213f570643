"""Something in which a loss can count its calls, although what it counts is put back."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, final


@final
class Tally:
    """A list that no pass puts back: it hangs on an object of Python's own library, which is not
    looked into.
    """

    def __init__(self) -> None:
        entries: list[Any] = []
        self._hidden = ContextVar("entries", default=entries)

    def append(self, entry: Any) -> None:
        self._hidden.get().append(entry)

    def clear(self) -> None:
        self._hidden.get().clear()

    @property
    def entries(self) -> list[Any]:
        return list(self._hidden.get())

    def __len__(self) -> int:
        return len(self._hidden.get())

    def __iter__(self) -> Any:
        return iter(self.entries)

    def __getitem__(self, place: Any) -> Any:
        return self._hidden.get()[place]
