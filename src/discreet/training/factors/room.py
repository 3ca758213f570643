"""Memory for gradients of single records that stays from pass to pass.

The C library gives large pieces back to the system as soon as they are free, and the next pass gets
them anew, page after page: that takes about as long as the product that fills them. What lies in
memory that stays is sensitive, so it is erased with everything else that a pass made of records,
which takes a tenth of that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, final

import torch
from torch import Tensor

__all__ = ["KeptMemory", "Take", "fresh"]

_LEAST = 2**20  # bytes below which the C library itself keeps memory
_ERASED = 0xFF  # floats become NaN

_Kind: TypeAlias = tuple[int, torch.dtype]

Take: TypeAlias = Callable[[Tensor, Sequence[int]], Tensor]
"""Memory of the dtype and device of a tensor, and of these sizes; whatever was in it."""


def fresh(like: Tensor, sizes: Sequence[int]) -> Tensor:
    """New memory."""
    return like.new_empty(sizes)


def _unmarked(_memory: Tensor) -> None:
    """Outside of a run nobody follows memory."""


@final
class KeptMemory:
    """Memory that is used again once it was erased.

    Args:
        mark: is told of new memory before anything is written there.

    Guarantee: between `erase` and the next `take` no byte of it depends on a record, whoever holds
    a tensor in it. No byte is in two tensors that were taken since the last `erase`.

    | case | what `take` gives |
    |---|---|
    | another device than the processor | new memory: torch keeps that of devices itself |
    | less than a megabyte | new memory |
    | beyond the limit | new memory |

    Attributes:
        limit: bytes that are kept at most; public.
    """

    __slots__ = ("_bytes", "_free", "_mark", "_taken", "limit")

    def __init__(self, mark: Callable[[Tensor], None] = _unmarked) -> None:
        self.limit = math.inf
        self._mark = mark
        self._bytes = 0  # that are kept, taken and free
        self._free: dict[_Kind, list[Tensor]] = {}
        self._taken: list[Tensor] = []

    def take(self, like: Tensor, sizes: Sequence[int]) -> Tensor:
        """Memory of the dtype and device of a tensor, until `erase`; whatever was in it."""
        count = math.prod(sizes)
        size = count * like.element_size()
        if size < _LEAST or like.device.type != "cpu":
            return fresh(like, sizes)

        pieces = self._free.get((count, like.dtype))
        if pieces:
            memory = pieces.pop()
        elif self._bytes + size > self.limit:
            return fresh(like, sizes)
        else:
            memory = fresh(like, (count,))
            self._mark(memory)
            self._bytes += size

        self._taken.append(memory)
        return memory.view(tuple(sizes))

    def erase(self) -> None:
        """Overwrite all that was taken; from now on it may be taken again.

        What was not taken since the last time is given back: passes have another size by now.
        """
        self._free = {}
        self._bytes = 0

        while self._taken:
            memory = self._taken.pop()
            storage: Any = memory.untyped_storage()
            storage.fill_(_ERASED)
            self._free.setdefault((memory.numel(), memory.dtype), []).append(memory)
            self._bytes += storage.nbytes()
