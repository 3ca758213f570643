"""Something in which a loss can count its calls, although what it counts is put back."""

from __future__ import annotations

import threading
from typing import Any, final


@final
class Tally:
    """A list that no pass puts back: it hangs on an object of Python's own library, which is not
    looked into.
    """

    def __init__(self) -> None:
        self._hidden = threading.local()
        self._hidden.entries = []

    def append(self, entry: Any) -> None:
        self._hidden.entries.append(entry)

    def clear(self) -> None:
        self._hidden.entries.clear()

    @property
    def entries(self) -> list[Any]:
        return list(self._hidden.entries)

    def __len__(self) -> int:
        return len(self._hidden.entries)

    def __iter__(self) -> Any:
        return iter(self.entries)

    def __getitem__(self, place: Any) -> Any:
        return self._hidden.entries[place]
