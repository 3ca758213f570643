"""What autograd keeps of a forward pass for the backward pass: measured on two small passes, not guessed from shapes.

Each tensor is counted with the call that it was kept for, so that one can tell what has been given back when a backward pass
has come to a certain call. Tensors that share memory count once; parameters do not grow with the records and drop out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeAlias, final

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

__all__ = ["Activations", "Kept", "Watching"]

Watching: TypeAlias = Callable[[Callable[[], int]], AbstractContextManager[None]]
"""What is entered for a pass, given a function that tells the number of the current call."""


class Kept:
    """Collects, during one pass, what autograd keeps: bytes by the number of the call."""

    def __init__(self) -> None:
        self.bytes: dict[int, int] = {}

    @contextmanager
    def watching(self, now: Callable[[], int]) -> Iterator[None]:
        """For the time of a pass; `now` gives the number of the call that goes on."""
        boxes: list[list[Tensor]] = []  # a graph that holds its own results would never be freed: boxes can be emptied
        places: set[int] = set()

        def keep(tensor: Tensor) -> list[Tensor]:
            with torch._C.DisableTorchFunction():  # noqa: SLF001  (the pass that is watched must not count this call)
                memory = tensor.untyped_storage()
            if memory.data_ptr() not in places:
                places.add(memory.data_ptr())
                self.bytes[now()] = self.bytes.get(now(), 0) + memory.nbytes()
            boxes.append([tensor])
            return boxes[-1]

        try:
            with saved_tensors_hooks(keep, lambda box: box[0]):
                yield
        finally:
            for box in boxes:
                box.clear()


@final
@dataclass(frozen=True, slots=True)
class Activations:
    """Bytes that autograd keeps for each record. Public.

    Args:
        after: of the calls from this number on, for each number of a call; `after[0]` are all.
        largest: of one call.
    """

    after: tuple[int, ...] = (0,)
    largest: int = 0

    @classmethod
    def between(cls, two: Kept, three: Kept, calls: int) -> Activations:
        """From passes with 2 and 3 records and so many calls.

        >>> two, three = Kept(), Kept()
        >>> two.bytes, three.bytes = {0: 80, 1: 8, 2: 100}, {0: 120, 1: 12, 2: 100}
        >>> Activations.between(two, three, 3)
        Activations(after=(44, 4, 0, 0), largest=40)
        """
        grown = [max(0, three.bytes.get(call, 0) - two.bytes.get(call, 0)) for call in range(calls + 1)]
        return cls(tuple(reversed(tuple(accumulate(reversed(grown))))), max(grown))

    def times(self, copies: int) -> Activations:
        """Where a record is so many rows."""
        return Activations(tuple(copies * some for some in self.after), copies * self.largest)

    @property
    def peak(self) -> int:
        """What plain training holds when its backward pass begins: all of them, and the gradient of the largest."""
        return self.after[0] + self.largest

    def given_back(self, call: int) -> int:
        """What a backward pass no longer holds when it has come to this call."""
        return self.after[min(call + 1, len(self.after) - 1)]
