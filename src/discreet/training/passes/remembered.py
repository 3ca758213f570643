"""What Python remembers of a pass over one record: nothing.

Where records are computed one by one, a loss may look at their numbers: nothing leaves for another
record, as long as Python keeps nothing of it. Tensors tell by their marks (`kept.py`). Numbers,
texts and truth values have none. So all that are within reach of the loss and the model are read
before and after such a pass, and a change is refused, whatever it is: nobody can tell whether a
record caused it. A whole number may grow by the same step in every pass: it counts passes.

Within reach are: attributes of modules, of tensors and of their classes, what a function takes from
its closure, defaults and globals, from modules of the user, and the functions that it calls; lists,
dicts, sets, queues, caches, arrays and objects on the way; tensors that are not the model's own;
variables of the environment and of the context. Which of two things a name stands for is read too.
What is not seen is listed in docs/training.md: files, the inside of libraries, where an iterator
is, generators of random numbers but torch's, arrays of more than 16 megabytes.
"""

from __future__ import annotations

import array
import contextvars
import functools
import gc
import io
import os
import queue
import sys
import sysconfig
import types
import weakref
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any, final

import numpy as np
import torch
from torch import Tensor, nn

from discreet.errors import CoupledRecords
from discreet.training.data.datasets import slots_of
from discreet.training.separation.kept import OF_TORCH, attributes_of, modules_of

__all__ = ["Remembered"]

_DEPTH = 6  # containers, functions and objects on the way to a value
_LARGE = 2**20  # bytes that are compared one by one; of more only a checksum is
_LARGEST = 2**24  # bytes of an array that are read at all
_PLAIN = frozenset(
    {type(None), bool, int, float, complex, str, bytes, Decimal, Fraction, date, datetime, timedelta, torch.device, torch.dtype}
)
_SEQUENCES = (list, tuple, set, frozenset, deque)
_BUILT_IN = frozenset({dict, *_SEQUENCES, np.ndarray})  # without attributes
_BYTES = (array.array, bytearray, io.BytesIO, io.StringIO, np.ndarray, np.generic, torch.Generator)
_OPAQUE = (types.ModuleType, types.CodeType)
_CACHES = (functools._lru_cache_wrapper,)  # noqa: SLF001  (Python has no other name for it)
# What they hold is not in attributes, or takes long to ask for; the collector of garbage knows it.
_COLLECTED = (
    *(*_CACHES, queue.SimpleQueue, types.GeneratorType),
    *(functools.partial, property, staticmethod, classmethod),
    *(types.BuiltinFunctionType, types.MethodType, types.MethodWrapperType),
)
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
        for path in before | after:
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

    __slots__ = ("_depths", "_own", "_times", "values")

    def __init__(self, model: nn.Module, names: Mapping[int, str], loss: Callable[..., Any]) -> None:
        # Where Python keeps it as it is: decoding every variable would take longer than the rest.
        environment = getattr(os.environ, "_data", os.environ)
        self.values: dict[str, Any] = {"a variable of the environment": dict(environment)}
        self._times: dict[str, int] = {}  # how often something was noted under the same name
        self._depths: dict[int, tuple[int, str]] = {}  # how deep each thing was read, and where
        modules = modules_of(model)
        self._own = {id(tensor) for module in modules for tensor in _registered(module).values()}
        for module in modules:
            self._depths[id(module)] = _DEPTH, names.get(id(module), type(module).__name__)
        for module in modules:
            self._module(self._depths[id(module)][1], module)
        self._visit("the loss", loss, _DEPTH)
        for variable, value in contextvars.copy_context().items():
            self._visit(f"the context variable {variable.name}", value, _DEPTH)

    def _note(self, path: str, value: Any) -> None:
        """Note a value; functions and globals of different modules may have the same names."""
        times = self._times[path] = self._times.get(path, 0) + 1
        self.values[path if times == 1 else f"{path}[{times}]"] = value

    def _visit(self, path: str, value: Any, depth: int) -> None:
        kind = type(value)
        if kind in _PLAIN:
            self._note(path, value)
        elif not issubclass(kind, _OPAQUE) and self._is_new(path, value, depth):
            self._inside(path, value, kind, depth)

    def _is_new(self, path: str, value: Any, depth: int) -> bool:
        """Whether a thing was not read as deep as this; if it was, where."""
        known, place = self._depths.get(id(value), (0, path))
        if place != path:  # within reach at two places
            self._note(f"{path}[is]", (place,))
        self._depths[id(value)] = max(known, depth), place
        return known < depth

    def _inside(self, path: str, value: Any, kind: type, depth: int) -> None:
        if issubclass(kind, types.FunctionType):
            self._function(path, value, depth - 1)
        elif issubclass(kind, weakref.ref):
            self._visit(path, value(), depth)
        elif issubclass(kind, _COLLECTED):
            uses = value.cache_info() if isinstance(value, _CACHES) else ()
            self._parts(path, [getattr(value, "__qualname__", ""), *uses, *gc.get_referents(value)], depth)
        elif issubclass(kind, Tensor):
            self._tensor(path, value, depth)
        elif issubclass(kind, nn.Module):
            for name, module in value.named_modules():
                self._module(f"{path}.{name}".rstrip("."), module)
        elif issubclass(kind, type):
            self._class(path, value, depth - 1)
        else:
            self._data(path, value, kind, depth)

    def _data(self, path: str, value: Any, kind: type, depth: int) -> None:
        """A container, an array or an object; a container of a user's class has attributes too."""
        if issubclass(kind, np.ndarray) and value.dtype.hasobject:
            self._entries(path, value.ravel().tolist(), depth)
        elif issubclass(kind, _BYTES):
            self._note(path, _content(value))
        elif issubclass(kind, dict):
            self._entries(f"{path}[keys]", list(value), depth)
            self._entries(path, list(value.values()), depth)
        elif issubclass(kind, _SEQUENCES):
            self._entries(path, list(value), depth)
        is_skipped = kind.__module__.partition(".")[0] in _SKIPPED and not kind.__module__.startswith("torch.optim")
        if kind not in _BUILT_IN and not is_skipped:
            self._object(path, value, depth - 1)

    def _tensor(self, path: str, tensor: Tensor, depth: int) -> None:
        """What is on a tensor and, if it is not of the model, in it."""
        self._entries(path, [*vars(tensor), *vars(tensor).values()], depth)
        if id(tensor) not in self._own:
            self._note(f"{path}[numbers]", _numbers(tensor))
            if tensor.is_leaf and tensor.grad is not None:
                self._visit(f"{path}.grad", tensor.grad, depth - 1)

    def _entries(self, path: str, entries: list[Any], depth: int) -> None:
        self._note(f"{path}[]", (len(entries),))
        if _PLAIN.issuperset(map(type, entries)):
            self._note(path, entries)
            return
        self._parts(path, entries, depth)

    def _parts(self, path: str, parts: Iterable[Any], depth: int) -> None:
        for number, part in enumerate(parts):
            self._visit(f"{path}[{number}]", part, depth - 1)

    def _object(self, path: str, value: Any, depth: int) -> None:
        for name, entry in [*attributes_of(value, type(value)).items(), *slots_of(value).items()]:
            self._visit(f"{path}.{name}", entry, depth)
        self._visit(f"{path}.__class__", type(value), depth)

    def _module(self, path: str, module: nn.Module) -> None:
        for name in module.__dict__.keys() - OF_TORCH:
            self._visit(f"{path}.{name}", module.__dict__[name], _DEPTH)
        for name, tensor in _registered(module).items():
            if id(tensor) not in self._own or vars(tensor):
                self._visit(f"{path}.{name}", tensor, _DEPTH)
        self._visit(f"{path}.__class__", type(module), _DEPTH)

    def _class(self, path: str, kind: type, depth: int) -> None:
        """Attributes of a class, and what its functions take from elsewhere."""
        self._note(f"{path}[class]", (id(kind),))
        for base in kind.__mro__:
            if not _is_of_library(base.__module__):
                for name, entry in list(vars(base).items()):
                    if not name.startswith("__"):
                        self._visit(f"{base.__qualname__}.{name}", entry, depth)

    def _function(self, path: str, function: types.FunctionType, depth: int) -> None:
        """What a function takes from its closure, its defaults and its globals."""
        self._note(f"{path}[code]", function.__code__)
        if _is_of_library(function.__globals__.get("__name__", "")):  # a wrapper around another
            self._visit(path, getattr(function, "__wrapped__", None), depth)
            return
        self._visit(path, function.__defaults__, depth)
        self._visit(path, function.__kwdefaults__, depth)
        self._visit(path, function.__dict__, depth)
        names = _global_names(function.__code__)
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            try:
                self._named(f"{name}, in the closure of {function.__name__}", cell.cell_contents, names, depth)
            except ValueError:  # not assigned yet
                continue
        for name in names:
            # A module may be imported inside of the function.
            value = function.__globals__.get(name, sys.modules.get(name))
            if value is not None:
                self._named(f"the global {name}", value, names, depth)

    def _named(self, path: str, value: Any, names: tuple[str, ...], depth: int) -> None:
        """Visit what a function names; of a module of the user, what it names there."""
        if not isinstance(value, types.ModuleType):
            self._visit(path, value, depth)
        elif depth and not _is_of_library(value.__name__):
            for name in vars(value).keys() & names:
                self._named(f"{path}.{name}", vars(value)[name], names, depth - 1)


def _registered(module: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers of a module itself; those of torch.jit are in C++."""
    entries = {**module.__dict__.get("_parameters", {}), **module.__dict__.get("_buffers", {})}
    return {name: tensor for name, tensor in entries.items() if tensor is not None}


def _content(value: Any) -> tuple[Any, ...]:
    """The bytes in a value, or their checksum."""
    if isinstance(value, (io.BytesIO, io.StringIO)):
        return () if value.closed else (value.getvalue(), value.tell())
    if isinstance(value, torch.Generator):  # that of torch itself is seeded for every record
        return () if value is torch.default_generator else (value.get_state().numpy().tobytes(),)
    if isinstance(value, bytearray):
        value = np.frombuffer(bytes(value), np.uint8)
    numbers = np.asarray(value)
    content = numbers.tobytes() if numbers.nbytes <= _LARGEST else b""
    return numbers.shape, numbers.dtype.str, content if len(content) <= _LARGE else zlib.crc32(content)


def _numbers(tensor: Tensor) -> tuple[Any, ...]:
    """The numbers of a tensor; of one that is large or elsewhere, whether it is the same and was written to."""
    if tensor.device.type == "cpu" and tensor.layout is torch.strided and tensor.nbytes <= _LARGE:
        try:
            return _content(tensor.detach().reshape(-1).view(torch.uint8).numpy())
        except (RuntimeError, TypeError):  # of a subclass, which may have no numbers
            pass
    # The method of a tensor is equal to that of the same one only, and keeps its memory from being used again.
    return tensor.data_ptr, None if tensor.is_inference() else tensor._version  # noqa: SLF001  (torch has no other name for it)


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
