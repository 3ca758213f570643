"""Kinds of values that can be changed in place, and how each is noted and put back.

    namespaces    attributes of modules and objects, entries of dicts
    names         some names of globals, attributes of classes
    containers    lists, sets, deques, arrays of Python and NumPy, variables of enclosing functions
    generators    random numbers of Python, NumPy and torch
    iterators     and queues cannot be put back: a pass that takes their next entry is refused

A note is a shallow copy. Values within it are compared by identity: numbers and texts of Python
cannot change, and containers within containers are holders of their own.
"""

from __future__ import annotations

import itertools
import operator
import random
import types
from array import array
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import is_
from queue import SimpleQueue
from typing import Any, NamedTuple, final

import numpy as np
import torch

from discreet.errors import ModelError

__all__ = [
    "ABSENT",
    "CLASS",
    "LARGE",
    "NAMES",
    "NAMESPACE",
    "SLOTS",
    "Kind",
    "Names",
    "kind_of",
    "slot_names",
]

ABSENT: Any = object()
"""In the place of a value that is not there."""

LARGE = 1 << 16
"""Entries from which on a container is not copied before every pass, only counted; of an array,
bytes, and it is not looked at.
"""


class Kind(NamedTuple):
    """How values of one kind are noted.

    Args:
        read: makes a note of what a holder holds.
        same: whether two notes are the same.
        write: lets a holder hold again what a note says.
    """

    read: Callable[[Any], Any]
    same: Callable[[Any, Any], bool]
    write: Callable[[Any, Any], None]


@final
class _Large(NamedTuple):
    """In the place of a copy of a container with many entries."""

    entries: int


def _noted(base: Any, copy: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function that copies what a container of this class, or of one derived from it, holds.

    Methods are those of the base: a derived class may compute its entries when it is asked.
    """

    def read(holder: Any) -> Any:
        entries = base.__len__(holder)
        return copy(holder) if entries <= LARGE else _Large(entries)

    return read


def _copied(holder: dict[Any, Any]) -> dict[Any, Any]:
    if type(holder) is dict:
        return holder.copy()

    return dict(_base_of(holder).items(holder))


def _base_of(holder: dict[Any, Any]) -> Any:
    # An OrderedDict keeps its order where dict's own methods do not look.
    return OrderedDict if isinstance(holder, OrderedDict) else dict


def _require_copies(note: object) -> None:
    """Refuse a change of a container that was only counted.

    Raises:
        ModelError: there is no copy of what it held.
    """
    if isinstance(note, _Large):
        raise ModelError(
            expected=f"a loss whose own state has at most {LARGE} entries in one container",
            got=f"one that changes the length of a container with {note.entries} entries",
            do="Keep counters in a number, a buffer or a small list, and caches out of the loss: "
            "what a loss counts moves once a step, and is put back after every pass until then.",
        )


def _are_alike(before: Any, after: Any) -> bool:
    """Whether two notes of a sequence hold the same objects."""
    if isinstance(before, _Large) or isinstance(after, _Large):
        return bool(before == after)

    return len(before) == len(after) and all(map(is_, before, after))


def _are_alike_by_name(before: Any, after: Any) -> bool:
    """Whether two notes of a dict hold the same objects under the same names."""
    is_alike = _are_alike(before, after)
    if not is_alike or isinstance(before, _Large):
        return is_alike

    return all(map(is_, before.values(), after.values()))


def _write_dict(holder: dict[Any, Any], note: Any) -> None:
    _require_copies(note)

    # The methods of the base: a Counter adds where others replace.
    base = _base_of(holder)
    base.clear(holder)
    base.update(holder, note)


def _write_list(holder: list[Any], note: Any) -> None:
    _require_copies(note)
    list.__setitem__(holder, slice(None), note)


def _write_deque(holder: deque[Any], note: Any) -> None:
    _require_copies(note)
    deque.clear(holder)
    deque.extend(holder, note)


def _write_set(holder: set[Any], note: Any) -> None:
    _require_copies(note)
    set.clear(holder)
    set.update(holder, note)


def _are_same_members(before: Any, after: Any) -> bool:
    """Whether two notes of a set hold the same objects, in whatever order."""
    if isinstance(before, _Large) or isinstance(after, _Large):
        return bool(before == after)

    return set(map(id, before)) == set(map(id, after))


NAMESPACE = Kind(_noted(dict, _copied), _are_alike_by_name, _write_dict)
"""A dict, whatever its class: entries, or the attributes of an object."""

_LIST = Kind(_noted(list, list.copy), _are_alike, _write_list)
_DEQUE = Kind(_noted(deque, lambda holder: list(deque.__iter__(holder))), _are_alike, _write_deque)
_SET = Kind(_noted(set, lambda holder: set(set.__iter__(holder))), _are_same_members, _write_set)


def _write_bytes(holder: bytearray, note: Any) -> None:
    _require_copies(note)
    holder[:] = note


_BYTES = Kind(_noted(bytearray, bytes), lambda before, after: bool(before == after), _write_bytes)

_NUMBERS = Kind(
    _noted(array, lambda holder: holder[:]),
    lambda before, after: (
        bool(before == after) if isinstance(before, _Large) else before.tobytes() == after.tobytes()
    ),
    _write_bytes,
)

# --- variables and names ---


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # nothing was assigned to it yet
        return ABSENT


def _write_cell(cell: types.CellType, note: Any) -> None:
    if note is ABSENT:
        del cell.cell_contents
    else:
        cell.cell_contents = note


_CELL = Kind(_content, is_, _write_cell)


class Names(NamedTuple):
    """Some names of globals, which are too much everybody's to be noted as a whole.

    Args:
        entries: of a module of Python.
        names: which of them.
    """

    entries: dict[str, Any]
    names: frozenset[str]

    def read(self) -> dict[str, Any]:
        """What those names mean that are there."""
        return {name: self.entries[name] for name in self.names if name in self.entries}

    def write(self, note: Mapping[str, Any]) -> None:
        """Let the names mean again what a note says."""
        for name in self.names & self.entries.keys() - note.keys():
            del self.entries[name]

        self.entries.update(note)


NAMES = Kind(Names.read, _are_alike_by_name, Names.write)
"""Some names of globals."""


def _write_class(holder: type, note: Mapping[str, Any]) -> None:
    # Past a metaclass that forbids it, as that of enumerations does.
    for name in vars(holder).keys() - note.keys():
        type.__delattr__(holder, name)

    for name, value in note.items():
        if vars(holder).get(name, ABSENT) is not value:
            type.__setattr__(holder, name, value)


CLASS = Kind(lambda holder: dict(vars(holder)), _are_alike_by_name, _write_class)
"""The attributes of a class, without those of its bases."""


def slot_names(kind: type) -> list[str]:
    """Names of the attributes of an object that has no dictionary for them."""
    return [
        _mangled(base, name)
        for base in kind.__mro__
        for name in _slots_of(base)
        if name not in ("__dict__", "__weakref__")
    ]


def _slots_of(kind: type) -> Iterable[str]:
    slots = vars(kind).get("__slots__", ())
    return (slots,) if isinstance(slots, str) else slots


def _mangled(kind: type, name: str) -> str:
    """A name as Python writes it where it is private to a class."""
    is_private = name.startswith("__") and not name.endswith("__")
    return f"_{kind.__name__.lstrip('_')}{name}" if is_private else name


def _read_slots(holder: Any) -> dict[str, Any]:
    values = {name: getattr(holder, name, ABSENT) for name in slot_names(type(holder))}
    return {name: value for name, value in values.items() if value is not ABSENT}


def _write_slots(holder: Any, note: Mapping[str, Any]) -> None:
    # Past a class that forbids it, as frozen dataclasses do: it has been changed somehow.
    for name in _read_slots(holder).keys() - note.keys():
        object.__delattr__(holder, name)

    for name, value in note.items():
        object.__setattr__(holder, name, value)


SLOTS = Kind(_read_slots, _are_alike_by_name, _write_slots)
"""An object with slots."""

# --- iterators, which nobody can put back ---


def _read_generator(holder: types.GeneratorType[Any, Any, Any]) -> Any:
    frame = holder.gi_frame
    return None if frame is None else (frame.f_lasti, {**frame.f_locals})


def _is_at_the_same_line(before: Any, after: Any) -> bool:
    if before is None or after is None:
        return before is after

    return before[0] == after[0] and _are_alike_by_name(before[1], after[1])


def _read_iterator(holder: Any) -> Any:
    """Where an iterator stands: what pickling would write of it, iterators within it included."""
    return _places_among(holder.__reduce__())


def _places_among(part: Any) -> Any:
    """The numbers that tell a place: of counters, of lists that grow, and of iterators."""
    if isinstance(part, int | float | str | None):
        return part

    if isinstance(part, tuple):
        return tuple(_places_among(entry) for entry in part)

    if isinstance(part, list):
        return len(part)

    return _read_iterator(part) if isinstance(part, _ITERATORS) else None


def _refuse_iterator(holder: Any, _: object) -> None:
    raise ModelError(
        expected="a loss whose own state can be put back after each pass",
        got=f"one that takes the next entry of a {type(holder).__name__}",
        do="Take it in the training loop, once a step, or count in a number (an attribute, a "
        "variable, a buffer): how many passes a step has follows from the size of the sample.",
    )


_GENERATOR_FRAME = Kind(_read_generator, _is_at_the_same_line, _refuse_iterator)
_ITERATOR = Kind(_read_iterator, operator.eq, _refuse_iterator)

_QUEUE = Kind(SimpleQueue.qsize, operator.eq, _refuse_iterator)

_PYTHONS: tuple[Iterator[Any], ...] = (
    *(iter([]), iter(()), iter(""), iter(b""), iter({}), iter(set()), iter(range(0))),
    *(iter({}.values()), iter({}.items()), reversed([]), reversed({}), reversed(range(0))),
)
_ITERATORS = (
    *map(type, _PYTHONS),
    *(enumerate, filter, map, reversed, zip),
    *(
        kind
        for kind in vars(itertools).values()
        if isinstance(kind, type) and "__next__" in vars(kind)
    ),
)
"""Those of Python that are written in C, and show their place to pickling alone."""

# --- numbers of other libraries ---


def _equal(before: Any, after: Any) -> bool:
    """Whether two states of a generator, or two copies of an array, are equal."""
    if isinstance(before, dict):
        return before.keys() == after.keys() and all(
            _equal(before[key], after[key]) for key in before
        )

    return bool(np.array_equal(before, after))


def _read_array(holder: Any) -> Any:
    # A structure with objects in it holds what no copy tells.
    is_told = not holder.dtype.hasobject or holder.dtype == object
    is_noted = holder.nbytes <= LARGE and holder.flags.writeable and is_told
    return holder.copy() if is_noted else None


def _write_array(holder: Any, note: Any) -> None:
    holder[...] = note


def _are_same_bytes(before: Any, after: Any) -> bool:
    # Not all are noted. Bytes, because NaN is not equal to itself; of objects these are places.
    return before is None or bool(before.tobytes() == after.tobytes())


_ARRAY = Kind(_read_array, _are_same_bytes, _write_array)

_RANDOM = Kind(
    random.Random.getstate, lambda before, after: bool(before == after), random.Random.setstate
)


def _write_generator(holder: Any, note: Any) -> None:
    holder.bit_generator.state = note


_GENERATOR = Kind(lambda holder: holder.bit_generator.state, _equal, _write_generator)

_OLDER_GENERATOR = Kind(
    lambda holder: holder.get_state(legacy=False),
    _equal,
    lambda holder, note: holder.set_state(note),
)


def _read_torch(holder: torch.Generator) -> Any:
    # Where torch's own stands is the run's business: it seeds it, and follows its draws.
    return None if holder is torch.default_generator else holder.get_state()


def _are_same_states(before: Any, after: Any) -> bool:
    return before is None or torch.equal(before, after)


def _write_torch(holder: torch.Generator, note: Any) -> None:
    holder.set_state(note)


_OF_TORCH = Kind(_read_torch, _are_same_states, _write_torch)

_KINDS: Iterable[tuple[type, Kind | None]] = (
    (dict, NAMESPACE),
    (list, _LIST),
    (set, _SET),
    (deque, _DEQUE),
    (bytearray, _BYTES),
    (array, _NUMBERS),
    (SimpleQueue, _QUEUE),
    (types.CellType, _CELL),
    (types.GeneratorType, _GENERATOR_FRAME),
    *((kind, _ITERATOR) for kind in _ITERATORS),
    (np.ndarray, _ARRAY),
    (random.SystemRandom, None),  # numbers of the operating system have no state
    (random.Random, _RANDOM),
    (np.random.Generator, _GENERATOR),
    (np.random.RandomState, _OLDER_GENERATOR),
    (torch.Generator, _OF_TORCH),
)


_known: dict[type, Kind | None] = {}


def kind_of(cls: type) -> Kind | None:
    """How values of a class are noted; None if they are no holders by themselves."""
    if cls not in _known:
        # Classes that are made at run time would add up.
        if len(_known) >= LARGE:
            _known.clear()

        _known[cls] = next((kind for base, kind in _KINDS if issubclass(cls, base)), None)

    return _known[cls]
