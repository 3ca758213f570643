"""Entries that torch's own collate function may stack at once: plain ones, all of one form.

Given several entries, `default_collate` lets some decide for all: a float among whole numbers, or a
tensor of a wider type, gives its type to every row, and the keys of the batch are those of the
first entry. Of entries that are alike in all of that, each gets the row that it would get alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from operator import attrgetter
from typing import Any, final

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import ConcatDataset, Subset, TensorDataset

__all__ = ["NotPlain", "are_alike", "is_in_fixed_memory", "plain_copy"]

_ATOMS = frozenset({bool, bytes, complex, float, int, str, type(None)})

_RECORDS_OF_NUMPY = (np.void, np.record)
"""Entries of a structured array: no numbers, but views of its memory."""

_FORMS: dict[type, Callable[[Any], Any]] = {
    Tensor: attrgetter("dtype", "shape", "device", "requires_grad"),
    np.ndarray: attrgetter("dtype", "shape"),
    np.void: attrgetter("dtype"),
    np.record: attrgetter("dtype"),
    # With the types of the keys: 1 and True are equal.
    dict: lambda entry: repr(list(entry)),
    list: len,
    tuple: len,
}
"""What decides, besides the class, which rows torch makes of something."""


@final
class NotPlain(Exception):
    """There is something in an entry whose class could decide how it is copied or stacked."""


def plain_copy(entry: Any) -> Any:
    """An entry in memory of its own: a data set may fill the same memory for the next.

    Raises:
        NotPlain: it does not consist of tensors, arrays, numbers and texts in dicts, lists, tuples
            and named tuples. Who copies other objects runs their code.
    """
    # By the very class: a subclass may have functions of its own for copying and stacking.
    kind: Any = type(entry)
    if kind in _ATOMS or _is_number_of_numpy(kind):
        return entry

    if kind is Tensor and _is_dense(entry):
        return entry.detach().clone()

    if (kind is np.ndarray or kind in _RECORDS_OF_NUMPY) and not entry.dtype.hasobject:
        return entry.copy()

    if kind is dict:
        return {plain_copy(key): plain_copy(part) for key, part in entry.items()}

    if kind is list:
        return list(map(plain_copy, entry))

    if _is_tuple(kind):
        return tuple.__new__(kind, map(plain_copy, entry))

    raise NotPlain


def are_alike(entries: Sequence[Any]) -> bool:
    """Whether plain entries have the same structure, keys, types and sizes.

    Place by place through all entries, so that a few calls suffice for thousands of them.
    """
    kinds = set(map(type, entries))
    if len(kinds) > 1:
        return False

    kind = kinds.pop()
    base = tuple if _is_tuple(kind) else kind
    form = _FORMS.get(base)
    if form is not None and len(set(map(form, entries))) > 1:
        return False

    if base is dict:
        return all(map(are_alike, zip(*map(dict.values, entries), strict=True)))

    if base is list or base is tuple:
        return all(map(are_alike, zip(*entries, strict=True)))

    return True


def is_in_fixed_memory(dataset: Any) -> bool:
    """Whether entries are rows of tensors that fetching does not change: no code of a user runs."""
    kind = type(dataset)
    if kind is Subset:
        return is_in_fixed_memory(dataset.dataset)

    if kind is ConcatDataset:
        return all(map(is_in_fixed_memory, dataset.datasets))

    return kind is TensorDataset and all(
        type(tensor) is Tensor and _is_dense(tensor) for tensor in dataset.tensors
    )


def _is_dense(tensor: Tensor) -> bool:
    """Whether numbers, type and shape are all that there is to know: quantized numbers have a scale
    as well.
    """
    is_strided = tensor.layout is torch.strided
    return is_strided and not tensor.is_nested and not tensor.is_quantized


def _is_tuple(kind: Any) -> bool:
    return kind is tuple or _is_named_tuple(kind)


@cache
def _is_named_tuple(kind: type) -> bool:
    """Whether Python made the class, and no function of the user takes part in building it or in
    going through it.
    """
    if kind.__bases__ != (tuple,) or getattr(kind, "_fields", None) is None:
        return False

    # The module that Python invents for the constructor of a named tuple.
    made_by_python = kind.__new__.__module__ == f"namedtuple_{kind.__name__}"
    return made_by_python and kind.__iter__ is tuple.__iter__  # type: ignore[attr-defined]


@cache
def _is_number_of_numpy(kind: type) -> bool:
    """Whether it is one of NumPy's own: a class that a user derived lives in another module."""
    is_number = issubclass(kind, np.generic) and not issubclass(kind, np.void)
    return is_number and kind.__module__ == "numpy"
