"""What a loss and a model can reach of Python's values: where state may be kept.

The search goes by code. From a function: the variables of enclosing functions, its defaults and
attributes, the globals and the modules of Python that its code names. From a class: what it and its
bases define under a name that any code has which was met, or that Python or a library calls by
itself (`__enter__`, `forward`). From an object: its attributes and its class. From there on through
containers, without end: whatever code is met may name more, until nothing new is named.

Code and objects of installed packages are followed for a few steps, and for what they themselves
name. Torch, NumPy and Python's own library are not looked into, modules of torch and plain
containers excepted: their state is not a loss's (`origins.py`).
"""

from __future__ import annotations

import argparse
import collections
import dis
import functools
import gc
import importlib.util
import os
import queue
import sys
import threading
import types
import weakref
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple, final

import numpy as np
import torch
from torch import Tensor, nn

from discreet.errors import ModelError
from discreet.training.state.holders import (
    CLASS,
    LARGE,
    NAMES,
    NAMESPACE,
    SLOTS,
    Kind,
    Names,
    kind_of,
    slot_names,
)
from discreet.training.state.origins import Origin, origin_of_class, origin_of_namespace

__all__ = ["OF_TORCH", "Reach", "attributes_of", "modules_of", "parameters_of"]

_STEPS = 3  # through installed packages: a forward pass, a method that it calls, a global of this
_MOST = 1 << 19  # things

OF_TORCH = frozenset(vars(nn.Module()))
"""Attributes that every module has: registers, which are looked at by themselves, and hooks."""

_ATOMS = frozenset(
    {type(None), bool, int, float, complex, str, bytes, range, slice}
    | {torch.Size, torch.device, torch.dtype, torch.layout, nn.Parameter}
)
"""Kinds of values that hold no other, or are followed by the proof of a pass."""

_PLAIN_OBJECTS = (
    *(types.SimpleNamespace, argparse.Namespace, threading.local, type(os.environ), queue.Queue),
    *(collections.UserDict, collections.UserList, collections.ChainMap),
    *(weakref.WeakKeyDictionary, weakref.WeakValueDictionary, weakref.WeakSet, Tensor),
)
"""Objects of libraries with attributes that are the user's: a tensor may have such, too."""

_CONTAINERS: tuple[Any, ...] = (dict, list, tuple, set, frozenset, deque)
_WRAPPERS = frozenset(
    {functools.partial, types.MethodType, types.BuiltinMethodType, types.MethodWrapperType}
    | {classmethod, staticmethod, property, type(lru_cache(len)), types.MappingProxyType}
    | {map, filter}
)
"""Kinds that are written in C, and tell the garbage collector what they are made of."""

_OFTEN_CALLED = frozenset({"forward", "_member_map_"})
"""Names of members that are used without being named: by modules of torch, by enumerations."""

_REGISTERS = ("_parameters", "_buffers", "_modules")
_HOOKS = tuple(sorted(name for name in OF_TORCH if name.startswith(("_forward", "_backward"))))


def modules_of(model: nn.Module) -> list[nn.Module]:
    """Every module of a model once, itself first: as `model.modules()`, several times as fast."""
    modules = [model]
    met = {id(model), id(None)}  # an entry of a register may be None

    for module in modules:  # grows meanwhile
        register = module.__dict__.get("_modules")
        # Modules that torch.jit has traced keep their register in C++.
        children = module.children() if register is None else register.values()

        for child in children:
            if id(child) not in met:
                met.add(id(child))
                modules.append(child)

    return modules


def parameters_of(module: nn.Module) -> Iterable[Tensor | None]:
    """The parameters of a module itself; None where one was registered as missing."""
    register = module.__dict__.get("_parameters")
    # As in `modules_of`.
    return module.parameters(recurse=False) if register is None else register.values()


def attributes_of(value: Any, kind: type) -> dict[str, Any]:
    """The attributes of an object, without asking it where possible: some take long to answer."""
    attributes: dict[str, Any]
    try:
        attributes = object.__getattribute__(value, "__dict__")
    except AttributeError:
        # An object with slots, or one whose dictionary is made on demand: `threading.local`.
        attributes = {name: getattr(value, name, None) for name in slot_names(kind)}
        attributes |= getattr(value, "__dict__", {})  # of a thread's own

    return attributes


class _Uses(NamedTuple):
    """What a code names.

    Args:
        names: of globals and attributes, and texts that may be such.
        globals_written: names of globals that it assigns or deletes.
        attributes_written: names of attributes that it assigns or deletes, of whatever object.
        imports: modules of Python, each with the number of dots before its name.
    """

    names: frozenset[str] = frozenset()
    globals_written: frozenset[str] = frozenset()
    attributes_written: frozenset[str] = frozenset()
    imports: frozenset[tuple[int, str]] = frozenset()

    def joined(self, uses: _Uses) -> _Uses:
        """What two codes name together."""
        return _Uses(
            self.names | uses.names,
            self.globals_written | uses.globals_written,
            self.attributes_written | uses.attributes_written,
            self.imports | uses.imports,
        )


@lru_cache(maxsize=4096)
def _uses_of(code: types.CodeType) -> _Uses:
    """What a code names, functions within it included."""
    steps = list(dis.get_instructions(code))
    texts = [text for text in code.co_consts if isinstance(text, str) and text.isidentifier()]

    def named_by(*operations: str) -> frozenset[str]:
        return frozenset(step.argval for step in steps if step.opname in operations)

    uses = _Uses(
        names=frozenset({*code.co_names, *texts}),
        globals_written=named_by("STORE_GLOBAL", "DELETE_GLOBAL"),
        attributes_written=named_by("STORE_ATTR", "DELETE_ATTR"),
        # Before the name of a module its level is loaded, and what is taken from it.
        imports=frozenset(
            (steps[place - 2].argval, step.argval)
            for place, step in enumerate(steps)
            if step.opname == "IMPORT_NAME"
        ),
    )
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            uses = uses.joined(_uses_of(constant))

    return uses


def _imported(namespace: Mapping[str, Any], uses: _Uses) -> Iterable[Any]:
    """Modules of Python that a code imports, packages around them and parts of them included."""
    package = namespace.get("__package__") or ""
    for level, name in uses.imports:
        with suppress(ImportError):  # a relative import outside of a package
            whole = importlib.util.resolve_name("." * level + name, package)
            parts = whole.split(".")
            names = [".".join(parts[:count]) for count in range(1, len(parts) + 1)]
            names += [f"{whole}.{name}" for name in uses.names]
            yield from (sys.modules[name] for name in names if name in sys.modules)


def _member(owner: type, name: str) -> Any:
    """What a class or one of its bases defines under a name, as it stands there."""
    return next((vars(base)[name] for base in owner.__mro__ if name in vars(base)), None)


@lru_cache(maxsize=4096)
def _unnamed_calls(kind: type) -> frozenset[str]:
    """Names of members of an own class which Python or a base of others calls by itself."""
    own = [base for base in kind.__mro__ if origin_of_class(base) is Origin.OWN]
    others = [base for base in kind.__mro__ if base not in own]
    special = [name for name in set().union(*map(vars, own)) if name.startswith("__")]
    return _OFTEN_CALLED.union(special, *map(vars, others))


@lru_cache(maxsize=4096)
def _calls_of_installed(kind: type) -> frozenset[str]:
    """Names of members of an installed class which its calls name, a few methods far."""
    names = {"forward", "__call__"}
    for _ in range(_STEPS - 1):
        members = [_member(kind, name) for name in names]
        for member in members:
            if isinstance(member, types.FunctionType):
                names |= _uses_of(member.__code__).names

    return frozenset(name for name in names if _member(kind, name) is not None)


@final
class Reach:
    """Everything that can be changed in place, of what a model and a loss reach.

    Args:
        model: of the user.
        function: of the user, or None.

    Attributes:
        registers: the attributes of modules, and their registers of parameters, buffers and
            modules.
        hooks: registers of hooks, which libraries fill when a model runs for the first time.
        holders: all others, with their kinds.

    Raises:
        ModelError: there are too many things to look at each of them.
    """

    __slots__ = (
        "_attributes_written",
        "_globals_written",
        "_met",
        "_names",
        "_spaces",
        "_waiting",
        "holders",
        "hooks",
        "registers",
    )

    def __init__(self, model: nn.Module, function: Any = None) -> None:
        self.registers: list[dict[str, Any]] = []
        self.hooks: list[dict[Any, Any]] = []
        self.holders: list[tuple[Kind, Any]] = []

        self._met: dict[int, int] = {}  # how far one may go on from a thing
        self._waiting: list[tuple[Any, int]] = []
        self._names: set[str] = set()  # that own code has
        self._spaces: list[tuple[Mapping[str, Any], int]] = []  # of classes and Python's modules
        self._attributes_written: set[str] = set()
        self._globals_written: dict[int, tuple[dict[str, Any], set[str]]] = {}

        self._add_all([model, function], _STEPS)
        # A loss of our own has one of the user's in it, and an augmentation.
        kind: type = type(function)
        if kind is not types.FunctionType and origin_of_class(kind) is Origin.LIBRARY:
            self._add_all(attributes_of(function, kind).values(), _STEPS)

        self._search()

    def _search(self) -> None:
        """Look at all that waits, until no code names anything new."""
        names: set[str] = set()

        while self._waiting:
            while self._waiting:
                self._add(*self._waiting.pop())

            new_names = self._names - names
            names |= new_names
            for space, steps in self._spaces:
                self._add_named(space, new_names, steps)

        for space, _ in self._spaces:
            if isinstance(space, dict):  # of a module: classes are noted as a whole
                self._note_globals(space, self._attributes_written)

        self.holders += [
            (NAMES, Names(space, frozenset(written)))
            for space, written in self._globals_written.values()
        ]

    def _note_globals(self, space: dict[str, Any], names: AbstractSet[str]) -> None:
        if names:
            self._globals_written.setdefault(id(space), (space, set()))[1].update(names)

    def _add_all(self, values: Iterable[Any], steps: int) -> None:
        # Most are plain values, of which there may be many: they are not worth a call.
        self._waiting += [(value, steps) for value in values if type(value) not in _ATOMS]

    def _add_named(self, space: Mapping[str, Any], names: AbstractSet[str], steps: int) -> None:
        self._add_all([space[name] for name in names & space.keys()], steps)

    def _add(self, value: Any, steps: int) -> None:
        """A thing, with what it holds and names.

        Args:
            value: whatever was met.
            steps: how far to go on through code and objects of installed packages.
        """
        # What was met from further away is looked at again.
        met = self._met.get(id(value), -1)
        kind = type(value)
        if met >= steps:
            return

        if issubclass(kind, nn.Module):
            self._add_modules(value)
            return

        self._met[id(value)] = steps
        if len(self._met) > _MOST:
            raise _too_many()

        noted = kind_of(kind)
        if noted is not None and met < 0:
            self.holders.append((noted, value))

        self._add_parts(value, kind, steps, is_new=met < 0)

    def _add_parts(self, value: Any, kind: type, steps: int, *, is_new: bool) -> None:
        if kind is types.FunctionType:
            self._add_function(value, steps)
        elif kind in _WRAPPERS:
            self._add_all(gc.get_referents(value), steps)
        elif kind in _HELD:
            with suppress(ReferenceError, ValueError):  # what is referred to is gone
                self._add_all(_HELD[kind](value), steps)
        elif issubclass(kind, type):
            self._add_class(value, steps, is_new=is_new)
        elif issubclass(kind, types.ModuleType):
            self._add_space(vars(value), origin_of_namespace(vars(value)), steps)
        else:
            if issubclass(kind, _CONTAINERS):
                self._add_entries(value, steps)

            self._add_object(value, kind, steps, is_new=is_new)

    def _add_modules(self, root: nn.Module) -> None:
        """A module with all of its own, their attributes, and the code of their classes."""
        for module in modules_of(root):
            if id(module) in self._met:
                continue

            self._met[id(module)] = _STEPS

            attributes = module.__dict__
            self.registers.append(attributes)
            for name in _REGISTERS:
                entries = attributes.get(name)
                if isinstance(entries, dict):  # those of torch.jit are in C++
                    self.registers.append(entries)

            hooks = [attributes[name] for name in _HOOKS if name in attributes]
            self.hooks += hooks
            for register in filter(None, hooks):  # nearly all are empty
                self._add_all(register.values(), _STEPS)

            kind = type(module)
            if id(kind) not in self._met:
                self._add(kind, _STEPS)

            self._add_all([attributes[name] for name in attributes.keys() - OF_TORCH], _STEPS)

    def _add_entries(self, container: Any, steps: int) -> None:
        # By the methods of the base: a derived class may compute its entries when it is asked.
        base = next(kind for kind in _CONTAINERS if isinstance(container, kind))
        if base.__len__(container) > LARGE:  # data, not state
            return

        # Plain values alone are passed over at the speed of C.
        values = list(base.__iter__(container))
        if base is dict:
            values += dict.values(container)

        if not _ATOMS.issuperset(map(type, values)):
            self._add_all(values, steps)

        if isinstance(container, defaultdict):
            self._add_all([container.default_factory], steps)

    def _add_object(self, value: Any, kind: type, steps: int, *, is_new: bool) -> None:
        origin = origin_of_class(kind)
        if origin is Origin.LIBRARY and not issubclass(kind, _PLAIN_OBJECTS):
            return

        if origin is Origin.INSTALLED:
            steps -= 1

        if steps < 0:
            return

        if is_new:
            with suppress(AttributeError):  # an object with slots alone
                self.holders.append((NAMESPACE, object.__getattribute__(value, "__dict__")))

            if slot_names(kind):
                self.holders.append((SLOTS, value))

        self._add_all([*attributes_of(value, kind).values(), kind], steps)

    # --- code ---

    def _add_class(self, kind: type, steps: int, *, is_new: bool) -> None:
        """What a class and its bases define: what is named, and what is called without a name."""
        origin = origin_of_class(kind)
        if origin is Origin.LIBRARY:
            # A method may have been exchanged for one of the user's.
            self._add_all([getattr(kind, "forward", None)], steps)
            return

        if is_new:
            self.holders.append((CLASS, kind))

        bases = [base for base in kind.__mro__ if origin_of_class(base) is not Origin.LIBRARY]
        if origin is Origin.INSTALLED:
            self._add_all([_member(kind, name) for name in _calls_of_installed(kind)], steps)
        else:
            for base in bases:
                self._add_named(vars(base), _unnamed_calls(kind), steps)

        self._add_space(vars(kind), origin, steps)
        self._add_all([*bases, type(kind)], steps)

    def _add_space(self, space: Mapping[str, Any], origin: Origin, steps: int) -> None:
        """What a class or a module of Python defines under names that own code has."""
        if origin is Origin.INSTALLED:
            steps -= 1

        if origin is not Origin.LIBRARY and steps >= 0:
            self._spaces.append((space, steps))
            self._add_named(space, self._names, steps)

    def _add_function(self, function: types.FunctionType, steps: int) -> None:
        """Variables of enclosing functions, attributes, defaults, and what a code names."""
        namespace = function.__globals__
        origin = origin_of_namespace(namespace)
        cells = function.__closure__ or ()

        # A decorator of a library has the user's function in a variable.
        if origin is Origin.LIBRARY:
            self._add_all([*map(_content_of, cells), *function.__dict__.values()], steps)
            return

        if origin is Origin.INSTALLED:
            steps -= 1

        if steps < 0:
            return

        self._add_all([*cells, function.__dict__, function.__kwdefaults__], steps)
        self._add_all(function.__defaults__ or (), steps)

        uses = _uses_of(function.__code__)
        if "environ" in uses.names:
            self._add_all([os.environ], steps)

        self._note_globals(namespace, uses.globals_written)
        self._add_named(namespace, uses.names, steps)
        if uses.imports:
            self._add_all(_imported(namespace, uses), steps)

        if origin is Origin.OWN:
            self._names |= uses.names
            self._attributes_written |= uses.attributes_written


def _content_of(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # nothing was assigned to it yet
        return None


def _objects_of(array: Any) -> list[Any]:
    return list(array.flat) if array.dtype == object and array.size <= LARGE else []


_HELD: dict[type, Callable[[Any], Iterable[Any]]] = {
    types.CellType: lambda cell: (_content_of(cell),),
    memoryview: lambda view: (view.obj,),
    np.ndarray: _objects_of,
    weakref.ref: lambda reference: (reference(),),
    # A proxy hands everything on: what a method of it is bound to is the thing itself.
    weakref.ProxyType: lambda proxy: (proxy.__init__.__self__,),
    weakref.CallableProxyType: lambda proxy: (proxy.__init__.__self__,),
}
"""What something holds that does not show it to the garbage collector."""


def _too_many() -> ModelError:
    return ModelError(
        expected=f"a loss and a model that reach at most {_MOST} objects of Python",
        got="more: what they keep cannot be noted before each pass",
        do="Keep data sets and vocabularies out of what the loss and the model hold or name, or in "
        f"containers of more than {LARGE} entries, arrays and tensors, which are not looked into.",
    )
