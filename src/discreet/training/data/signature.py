"""What all batches of a run have in common: structure, types, and sizes of all axes but the first.

A size that depends on the longest record of a batch tells every other record of it: so does a key,
a type or a number that only some records bring along. None of it may change from batch to batch.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from discreet.errors import CoupledRecords
from discreet.training.data.trees import CONSTANTS, branches

__all__ = ["Signature"]


@final
@dataclass(frozen=True, slots=True)
class Signature:
    """The structure of a batch, with the kind of everything in it; made by `of`.

    What has no rows, such as a number beside the tensors, is part of it with its value: it must be
    the same in every batch.

    Args:
        kinds: what is at every place of the structure, from the outside in.

    >>> import torch
    >>> first = Signature.of({"x": torch.zeros(8, 3), "y": torch.zeros(8)})
    >>> first.check({"x": torch.ones(5, 3), "y": torch.ones(5)})
    >>> first.check({"x": torch.ones(5, 4), "y": torch.ones(5)})
    Traceback (most recent call last):
    discreet.errors.CoupledRecords: Expected the same keys, types and sizes in every batch of a \
run, and of every record. Got others than in the first, at batch['x']. \
Pad to a fixed length, not to the longest record of a batch, and let every record \
have every entry, of the same type: what changes with one record changes the others.
    """

    kinds: tuple[Hashable, ...]

    @classmethod
    def of(cls, batch: Any) -> Signature:
        """The signature of a batch with rows; sensitive until all other batches are known to share
        it.
        """
        return cls(tuple(_kinds(batch)))

    def check(self, batch: Any) -> None:
        """Refuse a batch, or the rows of a record, with another signature.

        Raises:
            CoupledRecords: it has one. No size and no number of it is in the message.
        """
        place = self.difference(batch)
        if place is None:
            return

        raise CoupledRecords(
            expected="the same keys, types and sizes in every batch of a run, and of every record",
            got=f"others than in the first, at {place}",
            do="Pad to a fixed length, not to the longest record of a batch, and let every record "
            "have every entry, of the same type: what changes with one record changes the others.",
        )

    def difference(self, batch: Any) -> str | None:
        """The name of the first place at which a batch, or the rows of a record, are different."""
        kinds = Signature.of(batch).kinds
        if kinds == self.kinds:
            return None

        # Up to there the structure is the same, and so are the names.
        pairs = zip(self.kinds, kinds, _places("batch", batch), strict=False)
        return next((place for kind, new_kind, place in pairs if kind != new_kind), "batch")


def _kinds(part: Any) -> Iterator[Hashable]:
    entries = branches(part)
    if entries is not None:
        # With the types of the keys: 1 and True are equal.
        keys = zip(map(type, part), part, strict=True) if isinstance(part, Mapping) else [len(part)]
        yield type(part), *keys
        for _, entry in entries:
            yield from _kinds(entry)

    # The number of rows is left out: it is that of the sample. Without rows, the value counts.
    elif isinstance(part, Tensor):
        yield part.dtype, part.layout, part.shape[1:], _constant(part), _scale(part)
    elif isinstance(part, np.ndarray):
        yield part.dtype.str, part.shape[1:], _constant(part)
    else:
        yield type(part), repr(part) if isinstance(part, CONSTANTS) else None


def _constant(array: Tensor | NDArray[Any]) -> str | None:
    """The only number of a tensor or an array without rows."""
    return None if array.ndim else repr(array.item())


def _scale(tensor: Tensor) -> str | None:
    """How the numbers of a quantized tensor are to be read: rows that are joined share it."""
    return repr(tensor[:0]) if tensor.is_quantized else None


def _places(name: str, part: Any) -> Iterator[str]:
    """Names for what `_kinds` gives, in the same order."""
    yield name
    for key, entry in branches(part) or ():
        yield from _places(f"{name}[{key!r}]", entry)
