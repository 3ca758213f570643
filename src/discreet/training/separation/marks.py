"""What is known of a storage: whose number is at which byte, as a mark on the storage itself.

*Marks.* torch keeps the Python object of a storage for as long as the storage lives, also where
only C++ holds it (`preserved` tests it). So nothing is held, no address is looked up or used twice,
and a mark of an earlier pass that says "records" *is* state that somebody kept.

*Owners.* The element at byte p of a storage with `Memory(step, count)` belongs to record
(p // step) % count. What a view holds follows from its offset, strides and element size, so that no
view of a tensor needs a rule; a write through one view is seen through all others.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable
from functools import cache, lru_cache
from itertools import count
from typing import Any, TypeAlias, final

import torch
from torch import Tensor, nn

from discreet.training.separation.states import PUBLIC, Mixed, Rows, State, is_public

__all__ = [
    "KEPT",
    "PLAIN_TENSORS",
    "Content",
    "Mark",
    "Memory",
    "constant",
    "erase",
    "fill_grown",
    "forget",
    "holds_records",
    "is_constant",
    "is_whole",
    "mark_dataset",
    "marked_part",
    "memory_for",
    "new_pass",
    "no_functions",
    "note_writes",
    "out_of_sight",
    "preserved",
    "seen_in",
    "sizes_of",
    "storage_of",
    "writes_of",
]

Content: TypeAlias = Any
"""State of a storage: PUBLIC, NOISE, FILLED, OWN, a Memory or a Mixed."""

PLAIN_TENSORS = frozenset({Tensor, nn.Parameter, nn.Buffer})
"""Classes of tensors that do not have operations of their own."""

out_of_sight: Any = torch._C._DisableTorchDispatch  # noqa: SLF001
"""Context in which dispatch modes do not see operations."""

no_functions: Any = torch._C.DisableTorchFunction  # noqa: SLF001
"""Context in which function modes do not see functions."""

KEPT = Mixed.of("what an earlier pass computed from records was kept", kept=True)
_DATASET = Mixed.of(
    "memory of the data set or of its batches, past what the loss is given", kept=True
)
_TWO_AXES = Mixed.of("a view in which two axes tell the record")
_SPANS = Mixed.of("a view whose entries span several records")
_SOME = Mixed.of(
    "a part of the records, or records in another order: what happens to them could depend on "
    "their place"
)
_ERASED = 0xFF
_numbers = count(1)

Mark: TypeAlias = tuple[int, Content, bool]
"""On a storage: number of the pass, content, and whether the storage was made in that pass."""


# --- marks ---


def new_pass() -> int:
    """A number for a pass; 0 is none."""
    return next(_numbers)


def storage_of(tensor: Tensor) -> Any:
    """The storage of a tensor; None for sparse and other tensors that have none."""
    try:
        return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):
        return None


def marked_part(tensor: Tensor) -> Any:
    """What carries the mark of a tensor: its storage; itself, if it is sparse or the like and has
    none.
    """
    try:
        return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):
        return tensor


def holds_records(tensor: Tensor) -> bool:
    """Whether the last pass that met this tensor's memory left records in it."""
    mark: Mark | None = getattr(marked_part(tensor), "_separation", None)
    return mark is not None and not is_public(mark[1])


def erase(storage: Any) -> None:
    """Overwrite what records left in a storage, wherever it is kept: floats become NaN.

    Memory that is public by now is left alone.
    """
    mark: Mark | None = getattr(storage, "_separation", None)
    if mark is not None and not is_public(mark[1]) and storage.nbytes():
        storage.fill_(_ERASED)


def forget(tensor: Tensor) -> None:
    """Say that a tensor is public from now on: it was released."""
    storage: Any = tensor.untyped_storage()
    storage._separation = None  # noqa: SLF001  (our own mark)


def constant(tensor: Tensor) -> Tensor:
    """The tensor, with a word of the library that it is a constant of its own, which it keeps: made
    of shapes alone, and never written to.
    """
    storage: Any = tensor.untyped_storage()
    storage._discreet_constant = True  # noqa: SLF001  (our own mark)
    return tensor


def is_constant(storage: Any) -> bool:
    """Whether a storage is one of the library's own constants."""
    return getattr(storage, "_discreet_constant", False)


def writes_of(tensors: Iterable[Tensor]) -> list[int]:
    """How many operations of passes have written into the memory of each tensor.

    torch's own counter does not see writes through `.data`.
    """
    counts: list[int] = []
    for tensor in tensors:
        # As `marked_part`: many are asked for in every pass.
        try:
            carrier: Any = tensor.untyped_storage()
        except (NotImplementedError, RuntimeError):
            carrier = tensor

        counts.append(getattr(carrier, "_separation_writes", 0))

    return counts


def note_writes(storages: Iterable[Any]) -> None:
    """Count that an operation wrote into each of these storages."""
    for storage in storages:
        storage._separation_writes = getattr(storage, "_separation_writes", 0) + 1  # noqa: SLF001


def mark_dataset(tensor: Tensor) -> None:
    """Say that a tensor is memory of the data set, or of a batch that was made of it: in a pass it
    is nobody's own.
    """
    for part in (tensor, *_parts_in_memory(tensor)):
        carrier: Any = marked_part(part)
        carrier._separation = (0, _DATASET, False)  # noqa: SLF001


def _parts_in_memory(tensor: Tensor) -> list[Tensor]:
    """The tensors of which a sparse or a jagged one is made; nothing for others."""
    if tensor.layout is torch.sparse_coo:
        return [tensor._indices(), tensor._values()]  # noqa: SLF001  (also before they are sorted)

    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]

    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]

    if tensor.layout is torch.jagged:
        jagged: Any = tensor
        return [jagged.values(), jagged.offsets()]

    return []


@cache
def preserved() -> bool:
    """Whether a mark lives as long as its storage, also where only C++ holds it."""
    # Whoever asks first may have switched gradients off; without them nothing would be saved.
    with torch.inference_mode(mode=False), torch.enable_grad():
        leaf = torch.ones(3, requires_grad=True)
        value = leaf * 2
        storage: Any = value.untyped_storage()
        storage._separation = mark = (0, PUBLIC, False)  # noqa: SLF001
        total = (value * value).sum()

    # From here on autograd alone holds the storage: a torch that makes a new Python object for it
    # would have lost the mark.
    del value, storage
    gc.collect(0)

    graph: Any = total.grad_fn
    node = graph.next_functions[0][0]
    saved = (node._saved_self, node._saved_other)  # noqa: SLF001  (what autograd kept)
    return all(getattr(tensor.untyped_storage(), "_separation", None) is mark for tensor in saved)


# --- owners of bytes ---


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
    # Without entries there is nothing to tell.
    if 0 in sizes:
        return PUBLIC

    step, period = memory.step, memory.step * memory.count
    start = offset * itemsize
    within = 0  # bytes that the axes which stay inside of one record span
    along = -1  # the axis that tells the record, once there is one

    for axis, (size, stride) in enumerate(zip(sizes, strides, strict=True)):
        reach = stride * itemsize
        span = (size - 1) * reach

        # A single entry, or entries that are whole periods apart, stay with the same record.
        if size == 1 or reach % period == 0:
            continue

        if span < step:
            within += span
        elif along < 0:
            along = axis
        else:
            return _TWO_AXES

    if along >= 0:
        reach, width = strides[along] * itemsize, within + itemsize
        return _along(memory, start, sizes[along], reach, width, along)

    # No axis tells the record: all entries are of one of them, if they do not reach further.
    is_of_one_record = start % step + within + itemsize <= step
    return _SOME if is_of_one_record else _SPANS


def _along(memory: Memory, start: int, size: int, reach: int, width: int, axis: int) -> State:
    """The state of a view whose records lie along one axis, `reach` bytes apart, each entry `width`
    bytes wide.
    """
    step, count = memory.step, memory.count
    places = [start + reach * index for index in range(size)]

    # Also one wide element, as of view_as_complex, must lie within one step.
    if max(place % step for place in places) + width > step:
        return _SPANS

    # The second record begins where the entries of the first one end.
    owners = [place // step % count for place in places]
    inner = owners.index(1) if 1 in owners else 0
    if not inner or size % (inner * count):
        return _SOME

    # All records in their order, again and again, at the same places of each.
    in_order = [index // inner % count for index in range(size)]
    if owners != in_order or not _at_the_same_places(memory, places, inner):
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


# --- sizes of storages ---


def sizes_of(tensors: Iterable[Tensor]) -> list[tuple[Any, int]]:
    """Each tensor's storage, and its number of bytes."""
    storages = [tensor.untyped_storage() for tensor in tensors]
    return [(storage, storage.nbytes()) for storage in storages]


def fill_grown(tensors: Iterable[Tensor], sizes: Iterable[tuple[Any, int]]) -> None:
    """Fill with zeros what storages have grown by since they had these sizes: it may hold what
    records left there.
    """
    for tensor, (before, size) in zip(tensors, sizes, strict=False):
        storage = tensor.untyped_storage()

        # A tensor that lies in another memory now (`set_`) has not grown: that memory was there.
        if storage is before and storage.nbytes() > size:
            with out_of_sight(), torch.no_grad():
                # Byte by byte, so that gaps between the strides of the tensor are filled too.
                entries = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage)
                entries[size:] = 0


def is_whole(tensor: Tensor, storage: Any) -> bool:
    """Whether a tensor is all of its storage, every byte of it once."""
    size: int = storage.nbytes()
    if tensor.numel() * tensor.element_size() != size:
        return False

    if tensor.is_contiguous():
        return True

    # As many entries as there are, but perhaps some twice: then strides are no running products of
    # sizes.
    length = 1
    for stride, entries in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if entries != 1 and stride != length:
            return False

        length *= entries

    return True
