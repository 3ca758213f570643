"""What a run may sample from: a map-style data set in which no record occurs twice, and its
tensors.
"""

from __future__ import annotations

import functools
import gc
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from operator import is_
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn, strided
from torch.utils.data import ConcatDataset, IterableDataset, Subset, TensorDataset

from discreet.errors import ParameterError
from discreet.training.data.collating import NumberedRows
from discreet.training.separation import marks
from discreet.training.state.reach import attributes_of

__all__ = ["Marking", "map_style", "mark_tensors_of", "slots_of", "tensors_of"]

_OWNER = "PrivateRun.batches"
_DEEPEST = 8
_MANY = 4096  # entries from which on a container is compared with what it held, and not searched
_ATOMS = (
    bool,
    bytes,
    float,
    int,
    str,
    np.generic,
    np.ndarray,
    type(None),
    nn.Module,
    types.ModuleType,
)
_SEQUENCES = (list, tuple, set, frozenset, deque)
_FIXED = frozenset({bool, bytes, float, int, str, tuple, frozenset, type(None), Tensor})
_WRAPPERS = (
    functools.partial,
    property,
    staticmethod,
    classmethod,
    types.CellType,
    types.MethodType,
)
_OF_CLASSES = (*_SEQUENCES, *_WRAPPERS, dict, Tensor, types.FunctionType)


def map_style(dataset: Any) -> NumberedRows:
    """The data set, if its entries have numbers and none of them is there twice.

    Raises:
        ParameterError: a stream, something else, or a record that occurs several times.
    """
    if isinstance(dataset, IterableDataset):
        raise ParameterError(
            owner=_OWNER,
            name="dataset",
            expected="one whose records have numbers, from which samples can be drawn",
            got="an IterableDataset",
            do=(
                "A stream cannot be sampled. Make it a map-style data set with __len__ and "
                "__getitem__."
            ),
        )

    has_length = callable(getattr(dataset, "__len__", None))
    if not (has_length and callable(getattr(dataset, "__getitem__", None))):
        raise ParameterError(
            owner=_OWNER,
            name="dataset",
            expected="a data set with len() and entries found by number, or a DataLoader of one",
            got=type(dataset).__name__,
        )

    if isinstance(dataset, (Subset, ConcatDataset)) and _has_repetitions(dataset):
        raise ParameterError(
            owner=_OWNER,
            name="dataset",
            expected="one that has every record at most once: a record is what is protected",
            got=f"a {type(dataset).__name__} with records that occur several times",
            do=(
                "Leave the repetitions out; a record that counts more can have a larger loss, "
                "which is clipped."
            ),
        )

    rows: NumberedRows = dataset
    return rows


# --- records that occur several times ---


def _has_repetitions(dataset: Any) -> bool:
    """Whether two entries are the same entry of one of the data sets at the bottom."""
    # The same entry may be reached through several subsets, or through views of one memory.
    places: dict[object, list[NDArray[np.int64]]] = {}
    for origin, numbers in _origins(dataset, np.arange(len(dataset))):
        places.setdefault(origin, []).append(numbers)

    parts = map(np.concatenate, places.values())
    return any(np.unique(numbers).size < numbers.size for numbers in parts)


def _origins(
    dataset: Any, numbers: NDArray[np.int64]
) -> Iterator[tuple[object, NDArray[np.int64]]]:
    """Where these entries come from: data sets at the bottom, each with numbers of entries."""
    if isinstance(dataset, Subset):
        yield from _origins(dataset.dataset, _indices(dataset)[numbers])
        return

    # Negative numbers count from the end, as in a list.
    entries = np.where(numbers < 0, numbers + len(dataset), numbers)
    if not isinstance(dataset, ConcatDataset):
        yield _named(dataset, entries)
        return

    start = 0
    for part in dataset.datasets:
        end = start + len(part)  # type: ignore[arg-type]
        yield from _origins(part, entries[(entries >= start) & (entries < end)] - start)
        start = end


def _indices(subset: Subset[Any]) -> NDArray[np.int64]:
    # Users pass lists, arrays and tensors alike.
    indices: Any = subset.indices
    if isinstance(indices, Tensor):
        indices = indices.numpy(force=True)

    if isinstance(indices, np.ndarray):
        return indices.astype(np.int64)

    return np.fromiter(map(int, indices), np.int64, len(indices))


def _is_strided(tensor: Tensor) -> bool:
    return tensor.layout is strided


def _has_rows_in_memory(tensor: Tensor) -> bool:
    return _is_strided(tensor) and tensor.numel() > 0


def _named(dataset: Any, numbers: NDArray[np.int64]) -> tuple[object, NDArray[np.int64]]:
    """Names of entries: equal for entries of two data sets whose rows begin in the same memory.

    Legend: a_k(i) = b_k + i s_k, the address of row i of tensor k, in bytes. Tensor m is the first
    whose rows move (s_m > 0). Two data sets with the same s_k, and the same b_k s_m - b_m s_k for
    every k, have the same rows in all tensors where they have the same row in tensor m:
    a_k(i) s_m = (b_k s_m - b_m s_k) + s_k a_m(i).
    """
    tensors = dataset.tensors if type(dataset) is TensorDataset else ()
    if not tensors or not all(map(_has_rows_in_memory, tensors)):
        return id(dataset), numbers

    layouts = [
        (str(tensor.device), tensor.data_ptr(), tensor.stride(0) * tensor.element_size())
        for tensor in tensors
    ]
    devices, begins, strides = zip(*layouts, strict=True)
    stride = next(filter(None, strides), None)

    # Every row is the same memory, and only a number tells them apart.
    if stride is None:
        return (*begins,), numbers

    begin = begins[strides.index(stride)]
    phases = [
        address * stride - begin * step for address, step in zip(begins, strides, strict=True)
    ]
    return (*devices, *strides, *phases), begin + numbers * stride


# --- memory ---


@final
class Marking:
    """Says of the tensors that a data set holds that no pass may use them: only the sample drawn
    from them.

    Rows that are selected outside of a pass are new memory, so this concerns functions that reach
    past their batch, such as a loss with `train_images.mean()`. Memory of NumPy cannot be marked.

    Args:
        dataset: of the user; sensitive.
        public: tensors whose memory is left out, such as the parameters and buffers of the model.
    """

    __slots__ = ("_before", "_dataset", "_now", "_public")

    def __init__(self, dataset: Any, public: Iterable[Tensor] = ()) -> None:
        self._dataset = dataset
        self._public = tuple(public)
        self._before: dict[int, list[Any]] = {}
        self._now: dict[int, list[Any]] = {}

    def renew(self) -> None:
        """Mark what it holds by now: entries may be loaded when they are first asked for."""
        # By memory: a data set may hold views of the model's tensors.
        left_out = set(map(_storage, filter(_is_strided, self._public)))
        for tensor in tensors_of(self._dataset, self._new_parts):
            if not _is_strided(tensor) or _storage(tensor) not in left_out:
                marks.mark_dataset(tensor)

        # Kept until the next time, not longer: what a cache drops is free again.
        self._before, self._now = self._now, {}

    def _new_parts(self, thing: Any) -> Iterable[Any]:
        """What something holds; of many rows, those that were not there the last time."""
        if not isinstance(thing, (*_SEQUENCES, Mapping)) or len(thing) < _MANY:
            return _parts(thing)

        rows = list(_parts(thing))
        # With the container itself, so that no other gets its number meanwhile.
        now = [thing, *rows, *_exchangeable(rows)]
        before = self._before.get(id(thing), ())
        self._now[id(thing)] = now

        # Nearly always nothing was loaded, which is seen at the speed of C.
        if len(now) == len(before) and all(map(is_, now, before)):
            return ()

        known = set(map(id, before))
        return [part for part in now[1:] if id(part) not in known]


def _exchangeable(rows: list[Any]) -> list[Any]:
    """What is in rows and may be another thing later, such as an image in the place of its path."""
    kinds = set(map(type, rows))
    if kinds <= _FIXED:
        return []

    if kinds == {dict}:
        return list(chain.from_iterable(map(dict.values, rows)))

    return list(chain.from_iterable(_held(row) for row in rows if type(row) not in _FIXED))


def _held(row: Any) -> Iterable[Any]:
    attributes = getattr(row, "__dict__", None)
    return _parts(row) if attributes is None else attributes.values()


def mark_tensors_of(dataset: Any, public: Iterable[Tensor] = ()) -> None:
    """Mark the tensors of a data set once, as `Marking` does.

    Args:
        dataset: of the user; sensitive.
        public: tensors whose memory is left out.
    """
    Marking(dataset, public).renew()


def _storage(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)  # noqa: SLF001  (torch has no other name for it)


def _parts(thing: Any) -> Iterable[Any]:
    if isinstance(thing, _SEQUENCES):
        return thing

    if isinstance(thing, Mapping):
        return thing.values()

    # What a class shares among its objects, its bases included: methods, properties, constants.
    if isinstance(thing, type):
        shared = chain.from_iterable(vars(base).values() for base in thing.__mro__)
        return [part for part in shared if isinstance(part, _OF_CLASSES)]

    if isinstance(thing, types.FunctionType):
        return thing.__defaults__, thing.__kwdefaults__, *(thing.__closure__ or ())

    # Whatever they hold, by whatever name each kind calls it.
    if isinstance(thing, _WRAPPERS):
        return gc.get_referents(thing)

    kind = type(thing)
    return kind, *attributes_of(thing, kind).values(), *slots_of(thing).values()


def tensors_of(dataset: Any, parts: Callable[[Any], Iterable[Any]] = _parts) -> Iterator[Tensor]:
    """Tensors in the attributes of a data set, of objects in it, of their classes, in containers
    there, and in closures and defaults of their functions; not in models, nor in globals.

    Args:
        dataset: of the user; sensitive.
        parts: what is in something.
    """
    # With the things themselves, so that no other gets the number of one.
    visited: dict[int, Any] = {}
    level: list[Any] = [dataset]

    # Level by level: each thing is reached on its shortest way, so that the limit hides the least.
    for _ in range(_DEEPEST):
        below: list[Any] = []
        for thing in level:
            if isinstance(thing, Tensor):
                yield thing
            elif id(thing) not in visited:
                visited[id(thing)] = thing
                below.extend(part for part in parts(thing) if not isinstance(part, _ATOMS))

        level = below


def slots_of(thing: Any) -> dict[str, Any]:
    """What an object has in slots, also in those of base classes and in private ones."""
    # With slots Python gives a pair: the dictionary of the object, and that of its slots.
    state = object.__getstate__(thing)
    return state[1] if isinstance(state, tuple) else {}
