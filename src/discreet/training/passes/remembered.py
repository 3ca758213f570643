"""What Python remembers of a pass over one record: nothing.

Where records are computed one by one, a loss may look at their numbers: nothing leaves for another
record, as long as Python keeps nothing of it. Tensors tell by their marks (`kept.py`). Numbers,
texts and truth values have none. So all that are within reach of the loss and the model are read
before and after such a pass, and a change is refused, whatever it is: nobody can tell whether a
record caused it. A whole number may grow by the same step in every pass: it counts passes.

Within reach are: attributes of modules and of their classes, what a function takes from its
closure, defaults and globals, and the functions that it calls; lists, dicts, sets, arrays and
objects on the way; variables of the environment and of the context. Not seen: files, the inside of
libraries and of iterators, arrays of more than a megabyte.
"""

from __future__ import annotations

import contextvars
import functools
import os
import sys
import sysconfig
import types
from collections import deque
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, final

import numpy as np
from torch import Tensor, nn

from discreet.errors import CoupledRecords
from discreet.training.separation.kept import OF_TORCH, attributes_of, modules_of

__all__ = ["Remembered"]

_DEPTH = 6  # containers, functions and objects on the way to a value
_LARGE = 2**20  # bytes of an array
_PLAIN = frozenset({type(None), bool, int, float, complex, str, bytes})
_SEQUENCES = (list, tuple, set, frozenset, deque)
_OPAQUE = (Tensor, types.ModuleType, types.BuiltinFunctionType, types.CodeType)
_WRAPPERS = (types.MethodType, functools.partial, property, staticmethod, classmethod)
# Loggers note which levels they met, generators of random numbers go on, compilers count.
_SKIPPED = frozenset({"discreet", "logging", "random", "torch"})
_LIBRARIES = (sysconfig.get_paths()["stdlib"], sysconfig.get_paths()["purelib"])


@final
class Remembered:
    """Sees to it that Python keeps nothing of the records that it is shown.

    Args:
        model: of the user.
    """

    __slots__ = ("_before", "_counters", "_loss", "_model", "_names")

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._names = {id(module): name or "the model" for name, module in model.named_modules()}
        self._loss: Callable[..., Any] = len
        self._before: dict[str, Any] = {}
        self._counters: dict[str, int] | None = None  # by how much they grow; None before the first

    def begin(self, loss: Callable[..., Any]) -> None:
        """Read what is remembered. It is to be called before the first record of a step.

        Args:
            loss: that is about to be computed for each record by itself.
        """
        self._loss = loss
        self._before = self._read()

    def refuse_changes(self) -> None:
        """Refuse what a pass has changed. It is to be called after each record.

        Raises:
            CoupledRecords: something is remembered that was not before; the message names it.
        """
        after = self._read()
        changed = self._changes(self._before, after)
        self._before = after
        if changed is not None:
            raise CoupledRecords(
                expected="a loss that keeps nothing of a record for the next one",
                got=f"{changed.partition('[')[0]}, which a pass over one record changed",
                do="This loss looks at numbers of records, so what it keeps may tell of them: keep "
                "no running values, flags, histories or texts in attributes, closures and globals. "
                "Count steps in the loop, and log released values (logs= of PrivateRun).",
            )

    def _read(self) -> dict[str, Any]:
        return _Reading(self._model, self._names, self._loss).values

    def _changes(self, before: dict[str, Any], after: dict[str, Any]) -> str | None:
        """What has changed otherwise than by counting; None if nothing has."""
        steps: dict[str, int] = {}
        for path in before.keys() | after.keys():
            old, new = before.get(path, _MISSING), after.get(path, _MISSING)
            if _is_same(old, new):
                continue
            if type(old) is not int or type(new) is not int:
                return path
            steps[path] = new - old
        if self._counters is None:
            self._counters = steps
        return next((path for path, _ in steps.items() ^ self._counters.items()), None)


_MISSING = object()


def _is_same(old: Any, new: Any) -> bool:
    """Whether a value is the same: also one that is not equal to itself."""
    return old is new or (type(old) is type(new) and (old == new or (old != old and new != new)))  # noqa: PLR0124  (NaN)


@final
class _Reading:
    """The plain values within reach of a loss and a model.

    Attributes:
        values: by where they are.
    """

    __slots__ = ("_depths", "values")

    def __init__(self, model: nn.Module, names: Mapping[int, str], loss: Callable[..., Any]) -> None:
        # Where Python keeps it as it is: decoding every variable would take longer than the rest.
        environment = getattr(os.environ, "_data", os.environ)
        self.values: dict[str, Any] = {"a variable of the environment": dict(environment)}
        self._depths: dict[int, int] = {}
        for module in modules_of(model):
            self._module(names.get(id(module), type(module).__name__), module)
        self._visit("the loss", loss, _DEPTH)
        for variable, value in contextvars.copy_context().items():
            self._visit(f"the context variable {variable.name}", value, _DEPTH)

    def _visit(self, path: str, value: Any, depth: int) -> None:
        kind = type(value)
        if kind in _PLAIN:
            self.values[path] = value
            return
        if issubclass(kind, _OPAQUE) or self._depths.get(id(value), 0) >= depth:
            return
        self._depths[id(value)] = depth
        if issubclass(kind, types.FunctionType):
            self._function(path, value, depth - 1)
        elif issubclass(kind, _WRAPPERS):
            for part in _wrapped_by(value):
                self._visit(path, part, depth - 1)
        elif issubclass(kind, nn.Module):
            self._module(path, value)
        elif issubclass(kind, type):
            self._class(value, depth - 1)
        else:
            self._data(path, value, kind, depth)

    def _data(self, path: str, value: Any, kind: type, depth: int) -> None:
        """A container, an array or an object."""
        if issubclass(kind, np.generic):
            self.values[path] = value.item()
        elif issubclass(kind, np.ndarray):
            if value.nbytes <= _LARGE:
                self.values[path] = (value.shape, value.dtype.str, value.tobytes())
        elif issubclass(kind, dict):
            self._entries(f"{path}[keys]", list(value), depth)
            self._entries(path, list(value.values()), depth)
        elif issubclass(kind, _SEQUENCES):
            self._entries(path, list(value), depth)
        elif kind.__module__.partition(".")[0] not in _SKIPPED:
            self._object(path, value, depth - 1)

    def _entries(self, path: str, entries: list[Any], depth: int) -> None:
        self.values[f"{path}[]"] = (len(entries),)
        if _PLAIN.issuperset(map(type, entries)):
            self.values[path] = entries
            return
        for number, entry in enumerate(entries):
            self._visit(f"{path}[{number}]", entry, depth - 1)

    def _object(self, path: str, value: Any, depth: int) -> None:
        for name, entry in list(attributes_of(value, type(value)).items()):
            self._visit(f"{path}.{name}", entry, depth)
        self._visit("", type(value), depth)

    def _module(self, path: str, module: nn.Module) -> None:
        for name in module.__dict__.keys() - OF_TORCH:
            self._visit(f"{path}.{name}", module.__dict__[name], _DEPTH)
        self._visit("", type(module), _DEPTH)

    def _class(self, kind: type, depth: int) -> None:
        """Attributes of a class, and what its functions take from elsewhere."""
        for base in kind.__mro__:
            if not _is_of_library(base.__module__):
                for name, entry in list(vars(base).items()):
                    if not name.startswith("__"):
                        self._visit(f"{base.__qualname__}.{name}", entry, depth)

    def _function(self, path: str, function: types.FunctionType, depth: int) -> None:
        """What a function takes from its closure, its defaults and its globals."""
        if _is_of_library(function.__globals__.get("__name__", "")):  # a wrapper around another
            self._visit(path, getattr(function, "__wrapped__", None), depth)
            return
        self._visit(path, function.__defaults__, depth)
        self._visit(path, function.__kwdefaults__, depth)
        self._visit(path, function.__dict__, depth)
        names = function.__code__.co_freevars
        for name, cell in zip(names, function.__closure__ or (), strict=True):
            try:
                self._visit(f"{name}, in the closure of {function.__name__}", cell.cell_contents, depth)
            except ValueError:  # not assigned yet
                continue
        for name in _global_names(function.__code__):
            if name in function.__globals__:
                self._visit(f"the global {name}", function.__globals__[name], depth)


def _wrapped_by(value: Any) -> tuple[Any, ...]:
    """What a method or another wrapper of a function holds."""
    if isinstance(value, types.MethodType):
        return value.__func__, value.__self__
    if isinstance(value, functools.partial):
        return value.func, value.args, value.keywords
    if isinstance(value, property):
        return value.fget, value.fset
    return (value.__func__,)


@lru_cache(4096)
def _global_names(code: types.CodeType) -> tuple[str, ...]:
    """Names that a function, or one within it, looks up elsewhere."""
    inner = [part for part in code.co_consts if isinstance(part, types.CodeType)]
    names = [*code.co_names, *(name for part in inner for name in _global_names(part))]
    return tuple(dict.fromkeys(names))


@lru_cache(4096)
def _is_of_library(name: str) -> bool:
    """Whether a module of Python was installed: what a user wrote is elsewhere."""
    if name == "__main__":
        return False
    file = getattr(sys.modules.get(name), "__file__", None)
    return file is None or file.startswith(_LIBRARIES) or name.partition(".")[0] == "discreet"
