"""Does an entry depend on which others were fetched before it? An experiment, to tell the user.

A vocabulary that grows while records are read numbers a word by who came first; so does whatever
else a data set or a collate function keeps from call to call. Entries are made in one order, what
the code keeps is put back, and they are made in the opposite order: each must be the same. A cache
of a record's own entry changes what is kept and no entry, so it is no reason to refuse.

Put back is only what is the user's own: attributes of data sets and of objects whose class is not
of an installed package, containers there, variables and globals of functions. Objects of libraries
are left alone, such as connections and readers, which may not bear it.
"""

from __future__ import annotations

import functools
import sys
import types
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from typing import Any, final

from torch.utils.data import ConcatDataset, Subset

from discreet.errors import CoupledRecords
from discreet.training.state.holders import LARGE, NAMESPACE, Kind, kind_of

__all__ = ["OwnState", "refuse_other_order"]

_DEPTH = 5
_DICTS = (dict, Counter, OrderedDict, defaultdict)
_CONTAINERS = frozenset({*_DICTS, list, set, deque})
_INSTALLED = ("site-packages", "dist-packages")


def refuse_other_order(
    row_of: Callable[[int], Any],
    indices: list[int],
    state: OwnState,
    differ: Callable[[Any, Any], bool],
) -> None:
    """Make rows of these entries in both orders, from the same state, and compare.

    Args:
        row_of: makes the row of one entry, with the same random numbers at each call.
        indices: of a few entries; sensitive.
        state: what the code that makes them keeps, as it is now.
        differ: whether two rows are different.

    Raises:
        CoupledRecords: a row is another one when others come before it.
    """
    forward = [row_of(index) for index in indices]
    state.put_back()
    backward = [row_of(index) for index in reversed(indices)][::-1]
    # What is kept now stays, such as a file that was opened: it makes no difference.
    if not any(map(differ, forward, backward)):
        return

    # Numbers that nobody can repeat, such as those of a generator of its own, tell nothing.
    state.put_back()
    if any(map(differ, forward, [row_of(index) for index in indices])):
        return

    raise CoupledRecords(
        expected="a data set and a collate function that make the same of a record whichever "
        "others came before it",
        got="another row when the same records are fetched in another order",
        do="Keep nothing from call to call on which entries depend: no vocabulary or label encoder "
        "that grows, no running statistic, no previous record. Fix it before the run, from public "
        "data. A cache of each record's own entry may stay.",
    )


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
        if not _is_own(kind) or not isinstance(attributes, dict):
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


def _is_own(kind: type) -> bool:
    """Whether a class is the user's, and not of Python or of an installed package."""
    name = kind.__module__
    if name.partition(".")[0] in sys.stdlib_module_names | {"builtins", "torch", "discreet"}:
        return name == "__main__"

    file = getattr(sys.modules.get(name), "__file__", None) or ""
    return not any(place in file for place in _INSTALLED)
