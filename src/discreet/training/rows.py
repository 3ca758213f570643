"""Batches as users have them: tensors, and tuples, lists and mappings of tensors, with one row for each record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from discreet.errors import ModelError

__all__ = ["check_rows", "count_rows", "select"]


def select(batch: Any, rows: Tensor) -> Any:
    """The same structure with these rows of every tensor (and of every list of other things)."""
    if isinstance(batch, Tensor):
        return batch if not batch.ndim else batch.index_select(0, rows.to(batch.device))
    if isinstance(batch, tuple):
        parts = [select(part, rows) for part in batch]
        return type(batch)(*parts) if type(batch) is not tuple else tuple(parts)
    if isinstance(batch, list):
        if any(isinstance(part, (Tensor, Mapping, list, tuple)) for part in batch):
            return [select(part, rows) for part in batch]
        return [batch[int(row)] for row in rows]
    if isinstance(batch, Mapping):
        chosen = {name: select(part, rows) for name, part in batch.items()}
        return chosen if type(batch) is dict else type(batch)(chosen)  # type: ignore[call-arg]
    return batch


def count_rows(batch: Any) -> set[int]:
    """The numbers of rows that occur; one number for a sound batch."""
    if isinstance(batch, Tensor):
        return {batch.shape[0]} if batch.ndim else set()
    if isinstance(batch, (list, tuple)):
        if isinstance(batch, list) and batch and not any(isinstance(part, (Tensor, Mapping, list, tuple)) for part in batch):
            return {len(batch)}
        return set().union(*(count_rows(part) for part in batch))
    if isinstance(batch, Mapping):
        return set().union(*(count_rows(part) for part in batch.values()))
    return set()


def check_rows(batch: Any, records: int) -> None:
    """Refuse a batch that does not have one row for each record, in every tensor."""
    if count_rows(batch) != {records}:
        raise ModelError(
            expected="a batch in which every tensor has one row for each record",
            got="other numbers of rows",
            do="Collate one row per record; keep constants out of the batch. A row is what is protected, not a token.",
        )
