"""Whose number is at which byte of a storage: so that no view of a tensor needs a rule.

The element at byte p of a storage with `Memory(step, count)` belongs to record (p // step) % count.
What a view holds follows from its offset, strides and element size; a write through one view is
seen through all others. Legend: B = count records.
"""

from __future__ import annotations

from functools import lru_cache
from typing import final

from discreet.training.separation.states import PUBLIC, Mixed, Rows, State

__all__ = ["Memory", "memory_for", "seen_in"]

_TWO_AXES = Mixed.of("a view in which two axes tell the record")
_SPANS = Mixed.of("a view whose entries span several records")
_SOME = Mixed.of(
    "a part of the records, or records in another order: what happens to them could depend on "
    "their place"
)


@final
class Memory:
    """The owners of a storage's bytes. Made by `Memory.of`: one object for each, compared by
    identity.
    """

    __slots__ = ("count", "step")

    def __init__(self, step: int, count: int) -> None:
        self.step = step
        self.count = count

    @staticmethod
    def of(step: int, count: int) -> Memory:
        """The one object for these numbers."""
        return _memory(step, count)

    def __repr__(self) -> str:
        return f"Memory(step={self.step}, count={self.count})"


@lru_cache(None)
def _memory(step: int, count: int) -> Memory:
    return Memory(step, count)


@lru_cache(65536)
def seen_in(
    memory: Memory, offset: int, sizes: tuple[int, ...], strides: tuple[int, ...], itemsize: int
) -> State:
    """The state of a view; `Mixed` wherever it is not one axis that tells the record, all of them
    in their order.

    Args:
        memory: of the storage.
        offset: of the view's first element, in elements.
        sizes: of the view.
        strides: in elements.
        itemsize: bytes of an element.
    """
    if 0 in sizes:
        return PUBLIC
    step, period = memory.step, memory.step * memory.count
    start = offset * itemsize
    within = 0  # bytes that the axes which stay inside of one record span
    along = -1
    for axis, (size, stride) in enumerate(zip(sizes, strides, strict=True)):
        reach = stride * itemsize
        if size == 1 or reach % period == 0:
            continue
        if (size - 1) * reach < step:
            within += (size - 1) * reach
        elif along < 0:
            along = axis
        else:
            return _TWO_AXES
    if along < 0:
        return _SPANS if start % step + within + itemsize > step else _SOME
    return _along(memory, start, sizes[along], strides[along] * itemsize, within + itemsize, along)


def _along(memory: Memory, start: int, size: int, reach: int, width: int, axis: int) -> State:
    """The state of a view whose records lie along one axis, `reach` bytes apart, each entry `width`
    bytes wide.
    """
    step, count = memory.step, memory.count
    places = [start + reach * index for index in range(size)]
    if (
        max(place % step for place in places) + width > step
    ):  # also one wide element, as of view_as_complex
        return _SPANS
    owners = [place // step % count for place in places]
    inner = next((index for index, owner in enumerate(owners) if owner), 0)
    if not inner or size % (inner * count):
        return _SOME
    if any(owner != index // inner % count for index, owner in enumerate(owners)):
        return _SOME
    if not _at_the_same_places(memory, places, inner):
        return _SOME
    return Rows(axis, inner, size // (inner * count))


def _at_the_same_places(memory: Memory, places: list[int], inner: int) -> bool:
    """Whether every record is read at the same places of its own memory: a diagonal is not."""
    step, count = memory.step, memory.count
    entries = [(place // (step * count), place % step) for place in places]
    for index, entry in enumerate(entries):
        of_first_record = index // (inner * count) * (inner * count) + index % inner
        if entry != entries[of_first_record]:
            return False
    return True


@lru_cache(4096)
def memory_for(state: Rows, strides: tuple[int, ...], itemsize: int, count: int) -> Memory | None:
    """The memory in which a view with these strides would have this state, if there is one; to be
    checked by `seen_in`.
    """
    step = strides[state.dim] * itemsize * state.inner
    return Memory.of(step, count) if step > 0 else None
