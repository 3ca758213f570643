"""Bytes that a pass holds for each record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

__all__ = ["Activations"]


@final
@dataclass(frozen=True, slots=True)
class Activations:
    """Bytes that autograd keeps for each record. Public.

    Args:
        after: entry n are the bytes of the calls from number n on; `after[0]` are all.
        largest: bytes of one call.
    """

    after: tuple[int, ...] = (0,)
    largest: int = 0

    def times(self, copies: int) -> Activations:
        """These bytes where a record is so many rows."""
        return Activations(tuple(copies * share for share in self.after), copies * self.largest)

    @property
    def peak(self) -> int:
        """What plain training holds when its backward pass begins.

        That is all activations, and the gradient of the largest.
        """
        return self.after[0] + self.largest

    def given_back(self, call: int) -> int:
        """What a backward pass no longer holds when it has come to this call."""
        # What the later calls held is freed; beyond the last call nothing is.
        return self.after[min(call + 1, len(self.after) - 1)]
