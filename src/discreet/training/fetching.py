"""From a sample's indices to a batch, and what a user's `collate` must not do: let one record change another's row.

Another entry is put in the place of one; all other rows, and all that has no rows, must stay as they are, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import TensorDataset, default_collate

from discreet.errors import CoupledRecords
from discreet.training.culprit import CANNOT_BEAR
from discreet.training.rows import select
from discreet.training.structure import tensors_in

__all__ = ["Collate", "Rows", "at_once", "collated", "differ", "fetched"]

Collate: TypeAlias = Callable[[list[Any]], Any]
"""A list of entries to a batch with one row for each, in their order."""

_FEW = 3
_PLAIN = (str, bytes, int, float, bool, type(None))


class Rows(Protocol):
    """A data set: as many entries as the plan has records, found by number."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


def fetched(dataset: Rows, chosen: NDArray[np.int64], collate: Collate, *, look: bool) -> Any:
    """The batch of these entries.

    Args:
        dataset: of the user; sensitive.
        chosen: indices of entries, at least one; sensitive.
        collate: of the user.
        look: whether to try out that rows do not mix.

    Raises:
        CoupledRecords: they do.
    """
    if at_once(dataset, collate):
        return list(select(dataset.tensors, torch.from_numpy(chosen)))  # type: ignore[attr-defined]
    indices = chosen.tolist()
    several = getattr(dataset, "__getitems__", None)  # torch's own convention for fetching a batch at once
    entries = list(several(indices)) if callable(several) else [dataset[index] for index in indices]
    return collated(entries, collate, look=look and len(entries) == len(indices))


def collated(entries: Sequence[Any], collate: Collate, *, look: bool) -> Any:
    """The batch of these entries; looked at as in `fetched`."""
    batch = collate([*entries])
    if look and collate is not default_collate:
        _refuse_mixing(collate, entries)
    return batch


def at_once(dataset: Rows, collate: Collate) -> bool:
    """Whether entries are rows of tensors, and a batch is those rows in new memory; a subclass may give something else."""
    return type(dataset) is TensorDataset and collate is default_collate


def _refuse_mixing(collate: Collate, entries: Sequence[Any]) -> None:
    """Put another entry in the place of one, and compare the other rows. No number of them appears in the message."""
    try:
        plain, again = _steadily(collate, entries), _steadily(collate, entries)
        if differ(plain, again, torch.arange(len(entries))):  # random numbers of its own: nothing can be compared
            return
        for place in range(min(_FEW, len(entries))):
            others = [*entries]
            others[place] = entries[(place + 1) % len(entries)]
            kept = torch.tensor([row for row in range(len(entries)) if row != place], dtype=torch.int64)
            if differ(plain, _steadily(collate, others), kept):
                raise _mixing()
        if _row_shapes(plain) != _row_shapes(_steadily(collate, entries[:2])):
            raise _mixing()
    except CANNOT_BEAR:  # it cannot bear this entry twice, or is not for trying out
        return


def _mixing() -> CoupledRecords:
    return CoupledRecords(
        expected="a collate function that makes each row from the entry in its place",
        got="other rows, or numbers for the whole batch, that change when an entry is another",
        do="Mix nothing between records, do not sort them, pad to a fixed length, leave out totals of the batch.",
    )


def _row_shapes(batch: Any) -> list[torch.Size]:
    return [tensor.shape[1:] for tensor in tensors_in(batch) if tensor.ndim]


def _steadily(collate: Collate, entries: Sequence[Any]) -> Any:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return collate([*entries])


def differ(one: Any, other: Any, kept: Tensor) -> bool:
    """Whether two batches differ in these rows, or in what has no rows."""
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        if one.shape != other.shape or one.dtype != other.dtype:
            return True
        return not _same(*((part[kept.to(part.device)] if part.ndim else part) for part in (one, other)))
    if isinstance(one, Mapping):
        return list(one) != list(other) or any(differ(one[name], other[name], kept) for name in one)
    if isinstance(one, (list, tuple)):
        if isinstance(one, list) and all(isinstance(part, _PLAIN) for part in one):
            rows = kept.tolist() if len(one) == len(other) == len(kept) + 1 else range(len(one))
            return len(one) != len(other) or any(one[row] != other[row] for row in rows)
        return len(one) != len(other) or any(differ(*pair, kept) for pair in zip(one, other, strict=True))
    return isinstance(one, _PLAIN) and one != other


def _same(x: Tensor, y: Tensor) -> bool:
    if not (x.is_floating_point() or x.is_complex()):
        return torch.equal(x, y)
    return torch.allclose(x, y, rtol=0.0, atol=0.0, equal_nan=True)
