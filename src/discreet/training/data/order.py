"""Does an entry depend on which others were fetched before it? An experiment, to tell the user.

A vocabulary that grows while records are read numbers a word by who came first; so does whatever
else a data set or a collate function keeps from call to call. Entries are made in one order and,
from the same state, in the opposite order: each must be the same. A cache of a record's own entry
changes what is kept and no entry, so it is no reason to refuse.

Each order has a copy of the process (`state/processes.py`): whatever the code keeps, in containers,
tensors, iterators, caches or a library, is what it was when the other order begins, and nothing of
the experiment stays. Random numbers are the same for each entry, those of the data set's own
generators too. What differs between two copies that do the same, nobody can repeat (time, numbers
of the operating system): such leaves of a row tell nothing, the others do.

Where no copy can be had or gives an answer (other systems than Linux, an accelerator in use, a data
set that needs a thread, a connection or a file that it writes to), the orders are made in this
process, and what is the user's own is put back in between: attributes of data sets and of objects
whose class is not of an installed package, containers there, variables and globals of functions.
Objects of libraries are left alone, such as connections and readers, which may not bear it.
"""

from __future__ import annotations

import functools
import os
import re
import secrets
import types
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import Any, TypeAlias, final

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import ConcatDataset, Subset

from discreet.errors import CoupledRecords, ModelError
from discreet.training.data.generators import OwnGenerators, is_own_module
from discreet.training.data.trees import leaves
from discreet.training.state.holders import LARGE, NAMESPACE, Kind, kind_of
from discreet.training.state.processes import can_copy, in_copies

__all__ = ["OwnState", "refuse_other_order"]

_DEPTH = 5
_DICTS = (dict, Counter, OrderedDict, defaultdict)
_CONTAINERS = frozenset({*_DICTS, list, set, deque})

_PATIENCE = 120  # seconds for a few entries in a copy of the process
_unanswered: set[int] = set()
"""Processes whose copies gave no answer: their data sets may wait for a thread."""

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_Told: TypeAlias = list[list[str]]
"""For each row what tells its leaves from others."""


def refuse_other_order(
    row_of: Callable[[int], Any],
    indices: list[int],
    roots: Sequence[Any],
    differ: Callable[[Any, Any], bool],
) -> None:
    """Make rows of these entries in both orders, from the same state, and compare.

    Args:
        row_of: makes the row of one entry, with the same random numbers at each call.
        indices: of a few entries; sensitive.
        roots: data set and function that make them.
        differ: whether two rows are different.

    Raises:
        CoupledRecords: a row is another one when others come before it.
    """
    coupled = _differ_in_copies(row_of, indices, roots)
    if coupled is None:
        coupled = _differ_here(row_of, indices, OwnState(*roots), differ)

    if coupled:
        raise CoupledRecords(
            expected="a data set and a collate function that make the same of a record whichever "
            "others came before it",
            got="another row when the same records are fetched in another order",
            do="Keep nothing from call to call on which entries depend: no vocabulary or label "
            "encoder that grows, no running statistic, no previous record. Fix it before the run, "
            "from public data. A cache of each record's own entry may stay.",
        )


# --- in copies of the process ---


def _differ_in_copies(
    row_of: Callable[[int], Any], indices: list[int], roots: Sequence[Any]
) -> bool | None:
    """Whether a row is another one in the other order; None if copies cannot tell."""
    if not can_copy() or os.getpid() in _unanswered:
        return None

    # Rows stay in the copies. What comes back says whether leaves are equal, and to nobody else.
    key = secrets.token_bytes(32)

    def told(order: Sequence[int]) -> _Told | None:
        # Whatever goes wrong there may be due to what a copy does not have, such as a connection.
        with suppress(Exception):
            generators = OwnGenerators(*roots)
            rows = {}
            for index in order:
                generators.put_back()
                rows[index] = _digests(row_of(index), key)

            return [rows[index] for index in indices]

        return None

    forward_task = functools.partial(told, indices)
    tasks = [forward_task, functools.partial(told, indices[::-1])]
    try:
        forward, backward = in_copies(tasks, _PATIENCE)
        if forward is None or backward is None:
            return None

        if forward == backward:
            return False

        (again,) = in_copies([forward_task], _PATIENCE)
    except ModelError:
        _unanswered.add(os.getpid())
        return None

    return again is not None and any(map(_is_another, forward, backward, again))


def _is_another(forward: list[str], backward: list[str], again: list[str]) -> bool:
    """Whether a row differs in what does not differ from copy to copy anyway."""
    if not len(forward) == len(backward) == len(again):
        return len(forward) == len(again)

    leaves_of_row = zip(forward, backward, again, strict=True)
    return any(leaf == repeated != reversed_leaf for leaf, reversed_leaf, repeated in leaves_of_row)


def _digests(row: Any, key: bytes) -> list[str]:
    """A digest of each leaf."""
    return [blake2b(_bytes_of(leaf), key=key, digest_size=16).hexdigest() for leaf in leaves(row)]


def _bytes_of(leaf: Any) -> bytes:
    if isinstance(leaf, Tensor):
        numbers = leaf.detach().cpu().reshape(-1).contiguous().view(torch.uint8).numpy()
        return f"{leaf.dtype}{tuple(leaf.shape)}".encode() + numbers.tobytes()

    if isinstance(leaf, (np.ndarray, np.void)) and not leaf.dtype.hasobject:
        return f"{leaf.dtype}{leaf.shape}".encode() + leaf.tobytes()

    # Objects that show nothing of themselves count as equal.
    return _ADDRESS.sub("", f"{type(leaf).__qualname__}{leaf!r}").encode()


# --- in this process ---


def _differ_here(
    row_of: Callable[[int], Any],
    indices: list[int],
    state: OwnState,
    differ: Callable[[Any, Any], bool],
) -> bool:
    """Whether a row is another one in the other order, after the user's own state was put back."""
    forward = [row_of(index) for index in indices]
    state.put_back()
    backward = [row_of(index) for index in reversed(indices)][::-1]
    # What is kept now stays, such as a file that was opened: it makes no difference.
    if not any(map(differ, forward, backward)):
        return False

    # Numbers that nobody can repeat, such as those of a generator of its own, tell nothing.
    state.put_back()
    return not any(map(differ, forward, [row_of(index) for index in indices]))


@final
class OwnState:
    """What a user's functions and objects keep of their own, as it is now.

    Args:
        roots: data sets and functions of the user.
    """

    __slots__ = ("_met", "_notes")

    def __init__(self, *roots: Any) -> None:
        self._met: dict[int, Any] = {}
        self._notes: list[tuple[Kind, Any, Any]] = []
        self._add(roots, _DEPTH)

    def put_back(self) -> None:
        """Let everything be again what it was."""
        for kind, holder, before in self._notes:
            if not kind.same(before, kind.read(holder)):
                kind.write(holder, before)

    def _add(self, things: Iterable[Any], depth: int) -> None:
        for thing in things:
            if id(thing) not in self._met:
                self._met[id(thing)] = thing
                parts = self._noted(thing, type(thing))
                if depth > 0:
                    self._add(list(parts), depth - 1)

    def _noted(self, thing: Any, kind: type) -> Iterable[Any]:
        """Note something that can be changed in place; returns what it holds."""
        if kind in _CONTAINERS:
            return self._noted_container(thing, kind)

        if kind is types.CellType:
            self._note(kind_of(kind), thing)
            return _content_of(thing)

        contents = _HELD.get(kind)
        if contents is not None:
            return contents(thing)

        return self._noted_object(thing, kind)

    def _noted_object(self, thing: Any, kind: type) -> Iterable[Any]:
        attributes = getattr(thing, "__dict__", None)
        if not is_own_module(kind.__module__) or not isinstance(attributes, dict):
            return ()

        self._note(NAMESPACE, attributes)
        called = (getattr(kind, name, None) for name in ("__getitem__", "__call__"))
        return *attributes.values(), *called

    def _noted_container(self, container: Any, kind: type) -> Iterable[Any]:
        # Very many entries are data, and no state.
        if len(container) > LARGE:
            return ()

        self._note(kind_of(kind), container)
        return list(container.values() if kind in _DICTS else container)

    def _note(self, kind: Kind | None, holder: Any) -> None:
        if kind is not None:
            self._notes.append((kind, holder, kind.read(holder)))


def _content_of(cell: types.CellType) -> tuple[Any, ...]:
    try:
        return (cell.cell_contents,)
    except ValueError:  # nothing was assigned to it yet
        return ()


def _globals_of(function: types.FunctionType) -> list[Any]:
    """What the globals hold that a function names: containers, and functions of its own module."""
    values = [function.__globals__.get(name) for name in function.__code__.co_names]
    home = function.__module__
    return [
        value
        for value in values
        if type(value) in _CONTAINERS
        or (type(value) is types.FunctionType and value.__module__ == home)
    ]


_HELD: dict[type, Callable[[Any], Iterable[Any]]] = {
    tuple: tuple,
    types.FunctionType: lambda function: (*(function.__closure__ or ()), *_globals_of(function)),
    types.MethodType: lambda method: (method.__self__, method.__func__),
    functools.partial: lambda part: (part.func, *part.args, *part.keywords.values()),
    # They hold the user's data set; what they keep themselves never changes.
    Subset: lambda subset: (subset.dataset,),
    ConcatDataset: lambda several: several.datasets,
}
"""What something holds that cannot be changed in place itself."""
