"""Batches as users have them: leaves in tuples, lists and mappings, with one row for each record.

Classes of users are never built again: their code would run with the rows of many records where
nobody looks. Their mappings become dicts, and tuples of their own keep the class, but not what its
constructor adds.

A leaf with rows is a tensor, an array, or a list (or plain tuple) of texts, numbers and the like.
Any other leaf has no rows: it is the same for all records, as `Signature` checks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from discreet.errors import ModelError
from discreet.training.separation.states import OneByOne

__all__ = [
    "CONSTANTS",
    "Portion",
    "begun",
    "branches",
    "check_rows",
    "count_rows",
    "joined",
    "leaves",
    "made_up",
    "mapped",
    "refilled",
    "select",
    "tensors_in",
]

CONSTANTS = (bool, bytes, complex, float, int, str, np.generic, type(None))
"""Classes of leaves without rows."""

_LEAVES = (Tensor, np.ndarray, list, tuple, *CONSTANTS)
_DICTS = frozenset({dict, defaultdict})
_LIBRARIES = frozenset({"collections", "torch", "transformers"})
_ATOMS = frozenset({bool, float, int, str, type(None)})
_BRANCHES = (Tensor, list, tuple, np.ndarray, Mapping)
_SEEN_BY_PYTHON = "the batch holds texts, numbers or other objects, which Python sees"


# --- the two ways through a structure ---


def branches(part: Any) -> list[tuple[Any, Any]] | None:
    """Keys and parts of a structure, in their order, or numbers and parts; None for a leaf."""
    # Mappings last: to ask for an abstract class takes long.
    if isinstance(part, Tensor):
        return None

    if isinstance(part, (list, tuple)):
        return None if _is_leaf(part) else list(enumerate(part))

    return list(part.items()) if isinstance(part, Mapping) else None


def mapped(batch: Any, change: Callable[[Any], Any]) -> Any:
    """Copy a structure, with every leaf replaced by `change(leaf)`."""
    entries = branches(batch)
    if entries is None:
        return change(batch)

    parts = {key: mapped(part, change) for key, part in entries}
    if isinstance(batch, (list, tuple)):
        return _of_kind(batch, list(parts.values()))

    # Only the entries are taken over: attributes may hold records.
    kind: type = type(batch)
    return kind(parts) if _is_known(kind) else parts


def leaves(batch: Any) -> list[Any]:
    """The leaves of a structure, in the order of `mapped`."""
    entries = branches(batch)
    if entries is None:
        return [batch]

    return list(chain.from_iterable(leaves(part) for _, part in entries))


def _is_leaf(sequence: list[Any] | tuple[Any, ...]) -> bool:
    """Whether its entries are rows: neither tensors nor structures; a named tuple is a
    structure.
    """
    is_plain = isinstance(sequence, list) or type(sequence) is tuple
    if not sequence or not is_plain:
        return False

    # Each class is asked once: a list of a thousand texts has one.
    return not any(map(_is_branch, set(map(type, sequence))))


@cache
def _is_branch(kind: type) -> bool:
    return issubclass(kind, _BRANCHES)


@cache
def _is_known(kind: type) -> bool:
    """Whether a class is one of a library that computes nothing when it is built."""
    return kind not in _DICTS and kind.__module__.partition(".")[0] in _LIBRARIES


def _of_kind(sequence: list[Any] | tuple[Any, ...], parts: list[Any]) -> Any:
    """A list, a tuple or a named tuple of other parts."""
    if isinstance(sequence, list):
        return parts

    # The constructor of a user's own class is not called: its code would see many records.
    kind = type(sequence)
    return kind(parts) if _is_known(kind) else tuple.__new__(kind, parts)


def tensors_in(*things: Any) -> list[Tensor]:
    """Tensors among arguments or results, in the order of `mapped`."""
    tensors: list[Tensor] = []
    _collect(things, tensors)
    return tensors


def _collect(things: Iterable[Any], tensors: list[Tensor]) -> None:
    """Append what `leaves` would give, if it is a tensor: several times as fast, for every call of
    a pass.
    """
    for thing in things:
        if isinstance(thing, Tensor):
            tensors.append(thing)
        # Most arguments; asking whether they are mappings takes long.
        elif type(thing) in _ATOMS:
            continue
        elif isinstance(thing, (list, tuple)):
            _collect(thing, tensors)
        elif isinstance(thing, Mapping):
            _collect(thing.values(), tensors)


# --- rows ---


def select(batch: Any, rows: Tensor) -> Any:
    """Copy a structure with these rows of every leaf that has rows; tensors are in new memory."""
    return mapped(batch, partial(_selected, rows=rows))


def _selected(leaf: Any, rows: Tensor) -> Any:
    if _row_count(leaf) is None:
        return leaf

    if isinstance(leaf, Tensor):
        return leaf.index_select(0, rows.to(leaf.device))

    if isinstance(leaf, np.ndarray):
        return leaf[rows.numpy(force=True)]

    return _of_kind(leaf, [leaf[row] for row in rows.tolist()])


def count_rows(batch: Any) -> set[int]:
    """The numbers of rows that occur; one number for a sound batch."""
    counts = map(_row_count, leaves(batch))
    return {count for count in counts if count is not None}


def _row_count(leaf: Any) -> int | None:
    """How many rows a leaf has; None if it has none, but is the same for all records."""
    if isinstance(leaf, (Tensor, np.ndarray)):
        return leaf.shape[0] if leaf.ndim else None

    # As a leaf it has texts, numbers and the like, one for each record.
    return len(leaf) if isinstance(leaf, (list, tuple)) else None


def check_rows(batch: Any, records: int) -> None:
    """Refuse a batch that does not have one row for each record, in every leaf.

    Raises:
        ModelError: other numbers of rows, or an object, whose records nobody can tell apart.
    """
    parts = leaves(batch)
    for leaf in parts:
        if not isinstance(leaf, _LEAVES):
            raise ModelError(
                expected="a batch of tensors, arrays and lists, in tuples, lists and mappings",
                got=f"an object of the class {type(leaf).__name__}, whose rows cannot be told",
                do="Return a dict or a tuple from the collate function.",
            )

    if set(map(_row_count, parts)) - {None} != {records}:
        raise _other_rows()


def _other_rows() -> ModelError:
    return ModelError(
        expected="a batch in which every tensor has one row for each record",
        got="other numbers of rows",
        do=(
            "Collate one row per record; keep constants out of the batch. A row is what is "
            "protected, not a token."
        ),
    )


@final
@dataclass(frozen=True, slots=True, eq=False)
class Portion:
    """The rows of a batch that one pass is to have. Sensitive.

    Args:
        batch: structure with rows.
        places: which rows, in which order; None for all as they are.
    """

    batch: Any
    places: Tensor | None = None

    @classmethod
    def of(cls, batch: Any) -> Portion:
        """A batch as a portion: all of its rows, if it is none already."""
        return batch if isinstance(batch, cls) else cls(batch)

    def take(self, rows: Tensor) -> Any:
        """These of its rows, in new memory."""
        return select(self.batch, rows if self.places is None else self.places[rows])

    def at(self, rows: Tensor | None) -> Portion:
        """These of its rows, not fetched yet; None for all as they are."""
        if rows is None or self.places is None:
            return self if rows is None else Portion(self.batch, rows)

        return Portion(self.batch, self.places[rows])

    def check_rows(self, records: int) -> None:
        """Refuse a portion that does not have one row for each record.

        Raises:
            ModelError: other numbers of rows, or an object, whose records nobody can tell apart.
        """
        if self.places is None:
            check_rows(self.batch, records)

        # There are as many rows as places, in every leaf.
        elif len(self.places) != records:
            raise _other_rows()


# --- leaves replaced ---


def begun(batch: Any, begin: Callable[[Tensor], Tensor], *, strict: bool = True) -> Any:
    """Copy a structure with every tensor replaced by `begin(tensor)`: what a pass is given.

    Args:
        batch: with rows; sensitive.
        begin: of a tensor with rows; where not strict, also of one without.
        strict: whether everything but None must be a tensor with rows.

    Raises:
        OneByOne: it is strict, and something else is there. Python sees it without a door, so
            nothing can be proved of a pass over several records.
    """

    def change(leaf: Any) -> Any:
        if isinstance(leaf, Tensor) and (leaf.ndim or not strict):
            return begin(leaf)

        # None tells nothing; anything else may be different for other records.
        if strict and leaf is not None:
            raise OneByOne(_SEEN_BY_PYTHON)

        return leaf

    return mapped(batch, change)


def joined(parts: list[Any]) -> Any:
    """Structures of one form, one after the other along their rows; what has no rows is that of the
    first.
    """
    # One column for each leaf: its rows in all structures, in their order.
    first, *_ = parts
    columns = zip(*map(leaves, parts), strict=True)
    return mapped(first, lambda _: _joined(next(columns)))


def _joined(column: tuple[Any, ...]) -> Any:
    first = column[0]
    if _row_count(first) is None:
        return first

    if isinstance(first, Tensor):
        return torch.cat(column)

    if isinstance(first, np.ndarray):
        return np.concatenate(column)

    return _of_kind(first, list(chain.from_iterable(column)))


def refilled(thing: Any, tensors: list[Tensor]) -> Any:
    """Copy arguments with tensors from a list, which is used up, in the order of `tensors_in`."""
    return mapped(thing, lambda leaf: tensors.pop(0) if isinstance(leaf, Tensor) else leaf)


def made_up(batch: Any) -> Any:
    """Copy a structure with public numbers of the same shapes and types: floats between -1 and 1,
    whole numbers 1, truth values true.

    Texts and other objects stay as they are: a batch with them is not computed together anyway.
    """
    return mapped(batch, _made_up)


def _made_up(leaf: Any) -> Any:
    if not isinstance(leaf, Tensor):
        return leaf

    if not (leaf.is_floating_point() or leaf.is_complex()):
        return torch.ones_like(leaf)

    # Not symmetric: sums of neighbours that cancel would leave only their rounding to compare.
    values = torch.linspace(-0.8, 1.0, max(1, leaf.numel())).reshape(leaf.shape)
    return values.to(leaf.device, leaf.dtype)
