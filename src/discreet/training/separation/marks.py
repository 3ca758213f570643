"""What is known of a storage is written on the storage itself, and stays there as long as it lives.

torch keeps the Python object of a storage for as long as the storage lives, also where only C++
holds it (`preserved` tests it). So nothing is held, no address is looked up or used twice, and a
mark of an earlier pass that says "records" *is* state that somebody kept.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable
from functools import cache
from itertools import count
from typing import Any, TypeAlias

import torch
from torch import Tensor

from discreet.training.separation.states import PUBLIC, Mixed, is_public

__all__ = [
    "KEPT",
    "Content",
    "Mark",
    "erase",
    "forget",
    "holds_records",
    "mark_dataset",
    "marked_part",
    "new_pass",
    "no_functions",
    "note_writes",
    "out_of_sight",
    "preserved",
    "writes_of",
]

Content: TypeAlias = Any
"""State of a storage: PUBLIC, NOISE, OWN, a Memory or a Mixed."""

out_of_sight: Any = torch._C._DisableTorchDispatch  # noqa: SLF001
"""Context in which dispatch modes do not see operations."""

no_functions: Any = torch._C.DisableTorchFunction  # noqa: SLF001
"""Context in which function modes do not see functions."""

KEPT = Mixed.of("what an earlier pass computed from records was kept", kept=True)
_DATASET = Mixed.of(
    "memory of the data set or of its batches, past what the loss is given", kept=True
)
_ERASED = 0xFF
_numbers = count(1)


Mark: TypeAlias = tuple[int, Content, bool]
"""On a storage: number of the pass, content, and whether the storage was made in that pass."""


def new_pass() -> int:
    """A number for a pass; 0 is none."""
    return next(_numbers)


def holds_records(tensor: Tensor) -> bool:
    """Whether the last pass that met this tensor's memory left records in it."""
    mark: Mark | None = getattr(marked_part(tensor), "_separation", None)
    return mark is not None and not is_public(mark[1])


def marked_part(tensor: Tensor) -> Any:
    """What carries the mark of a tensor: its storage; itself, if it is sparse or the like and has
    none.
    """
    try:
        return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):
        return tensor


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


def writes_of(tensor: Tensor) -> int:
    """How many operations of passes have written into a tensor's memory.

    torch's own counter does not see writes through `.data`.
    """
    count: int = getattr(marked_part(tensor), "_separation_writes", 0)
    return count


def note_writes(storages: Iterable[Any]) -> None:
    """Count that an operation wrote into each of these storages."""
    for storage in storages:
        storage._separation_writes = getattr(storage, "_separation_writes", 0) + 1  # noqa: SLF001


def mark_dataset(tensor: Tensor) -> None:
    """Say that a tensor is memory of the data set, or of a batch that was made of it: in a pass it
    is nobody's own.
    """
    if tensor.layout is torch.strided:
        storage: Any = tensor.untyped_storage()
        storage._separation = (0, _DATASET, False)  # noqa: SLF001


@cache
def preserved() -> bool:
    """Whether a mark lives as long as its storage, also where only C++ holds it."""
    with (
        torch.inference_mode(mode=False),
        torch.enable_grad(),
    ):  # whoever asks first may have switched gradients off
        leaf = torch.ones(3, requires_grad=True)
        value = leaf * 2
        storage: Any = value.untyped_storage()
        storage._separation = mark = (0, PUBLIC, False)  # noqa: SLF001
        total = (value * value).sum()
    del value, storage
    gc.collect(0)
    graph = total.grad_fn
    node: Any = graph.next_functions[0][0] if graph is not None else None
    saved = (node._saved_self, node._saved_other)  # noqa: SLF001  (what autograd kept)
    return all(getattr(tensor.untyped_storage(), "_separation", None) is mark for tensor in saved)
