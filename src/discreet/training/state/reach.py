"""What a loss and a model can reach of Python's values: where state may be kept.

From a function: the variables of enclosing functions, its defaults and attributes, the globals that
its code names, the object to which it is bound. From a module: its attributes, and what the code of
its forward pass names. From there on through containers, objects and helper functions, a few steps
far. Classes of torch, NumPy and Python's own library are not looked into, modules of torch and
plain containers excepted: their state is not a loss's.
"""

from __future__ import annotations

import argparse
import dis
import functools
import sys
import types
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple, final

import torch
from torch import Tensor, nn

from discreet.training.state.holders import (
    LARGE,
    NAMES,
    NAMESPACE,
    SLOTS,
    Kind,
    Names,
    kind_of,
    slot_names,
)

__all__ = ["OF_TORCH", "Reach", "attributes_of", "modules_of", "parameters_of"]

_DEPTH = 5  # steps from a loss to a holder: its variable, an object, a dict, a tuple, a list
_DEPTH_OF_CODE = 3  # from the forward pass of a module: a method that it calls, a global, its entry

OF_TORCH = frozenset(vars(nn.Module()))
"""Attributes that every module has: registers, which are looked at by themselves, and hooks."""

_ATOMS = frozenset(
    {type(None), bool, int, float, complex, str, bytes, range, slice, types.BuiltinFunctionType}
    | {torch.Size, torch.device, torch.dtype, torch.layout, Tensor, nn.Parameter}
)
"""Kinds of values that hold no other, or are followed by the proof of a pass."""

_NOT_THEIRS = frozenset({"builtins", "discreet", "numpy", "torch"} | sys.stdlib_module_names)
"""Packages whose classes and functions hold no state of a loss."""

_PLAIN_OBJECTS = (types.SimpleNamespace, argparse.Namespace)
_CONTAINERS: tuple[Any, ...] = (dict, list, tuple, set, frozenset, deque)
_FUNCTIONS = (types.FunctionType, types.MethodType, functools.partial)
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
        globals_read: names of globals.
        globals_written: those that it assigns or deletes.
        attributes: names of attributes, of whatever object.
        attributes_written: those that it assigns or deletes.
    """

    globals_read: frozenset[str] = frozenset()
    globals_written: frozenset[str] = frozenset()
    attributes: frozenset[str] = frozenset()
    attributes_written: frozenset[str] = frozenset()

    def joined(self, uses: _Uses) -> _Uses:
        """What two codes name together."""
        return _Uses(*[mine | theirs for mine, theirs in zip(self, uses, strict=True)])


_READS = {"LOAD_GLOBAL": 0, "LOAD_NAME": 0, "LOAD_ATTR": 2, "LOAD_METHOD": 2}
_WRITES = {"STORE_GLOBAL": 1, "DELETE_GLOBAL": 1, "STORE_ATTR": 3, "DELETE_ATTR": 3}
_PLACES = _READS | _WRITES
"""Which field of `_Uses` an instruction of Python belongs to."""


@lru_cache(maxsize=4096)
def _uses_of(code: types.CodeType) -> _Uses:
    """What a code names, functions within it included."""
    names: list[set[str]] = [set(), set(), set(), set()]
    for instruction in dis.get_instructions(code):
        place = _PLACES.get(instruction.opname)
        if place is not None:
            names[place].add(instruction.argval)

    uses = _Uses(*map(frozenset, names))
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            uses = uses.joined(_uses_of(constant))

    return uses


def _is_package_of_theirs(name: str) -> bool:
    return name.partition(".")[0] not in _NOT_THEIRS


def _is_theirs(thing: Any) -> bool:
    """Whether a class or a function is a user's, or of a library that a user builds on."""
    return _is_package_of_theirs(str(getattr(thing, "__module__", "")))


def _member(owner: type, name: str) -> Any:
    """What a class or one of its bases defines under a name, as it stands there."""
    return next((vars(base)[name] for base in owner.__mro__ if name in vars(base)), None)


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
    """

    __slots__ = ("_met", "holders", "hooks", "registers")

    def __init__(self, model: nn.Module, function: Any = None) -> None:
        self.registers: list[dict[str, Any]] = []
        self.hooks: list[dict[Any, Any]] = []
        self.holders: list[tuple[Kind, Any]] = []
        self._met: dict[int, int] = {}  # how far one may go on from a value

        self._add_modules(model)
        self._add_all([function], _DEPTH)
        # A loss of our own has one of the user's in it, and an augmentation.
        kind = type(function)
        if kind not in _FUNCTIONS and not _is_theirs(kind):
            self._add_all(attributes_of(function, kind).values(), _DEPTH)

    def _add_modules(self, root: nn.Module) -> None:
        """A module with all of its own, their attributes, and the code of their classes."""
        for module in modules_of(root):
            if id(module) in self._met:
                continue
            self._met[id(module)] = _DEPTH

            attributes = module.__dict__
            self.registers.append(attributes)
            for name in _REGISTERS:
                entries = attributes.get(name)
                if isinstance(entries, dict):  # those of torch.jit are in C++
                    self.registers.append(entries)
            self.hooks += [attributes[name] for name in _HOOKS if name in attributes]

            kind = type(module)
            if id(kind) not in self._met:
                self._met[id(kind)] = 1
                self._add_function(_member(kind, "forward"), _DEPTH_OF_CODE, owner=kind)

            for name in attributes.keys() - OF_TORCH:
                value = attributes[name]
                if type(value) not in _ATOMS:
                    self._add(value, _DEPTH - 1)

    def _add_all(self, values: Iterable[Any], depth: int) -> None:
        for value in values:
            # Most are plain values, of which there may be many: they are not worth a call.
            if type(value) not in _ATOMS:
                self._add(value, depth)

    def _add(self, value: Any, depth: int) -> None:
        """A value, and what it holds, as many steps far as `depth` says."""
        kind = type(value)
        if issubclass(kind, nn.Module):
            self._add_modules(value)
            return

        # What was met from further away is searched again: the search goes deeper now.
        met = self._met.get(id(value), 0)
        if met >= depth or issubclass(kind, Tensor):
            return
        self._met[id(value)] = depth

        if issubclass(kind, _FUNCTIONS):
            self._add_callable(value, depth)
            return

        noted = kind_of(kind)
        if noted is not None and not met:
            self.holders.append((noted, value))

        if issubclass(kind, _CONTAINERS):
            self._add_entries(value, depth)
        elif noted is None:
            self._add_object(value, kind, depth, is_new=not met)

    def _add_entries(self, container: Any, depth: int) -> None:
        # By the methods of the base: a derived class may compute its entries when it is asked.
        base = next(kind for kind in _CONTAINERS if isinstance(container, kind))
        if base.__len__(container) > LARGE:  # data, not state
            return

        # Plain values alone are passed over at the speed of C.
        values = list(dict.values(container) if base is dict else base.__iter__(container))
        if not _ATOMS.issuperset(map(type, values)):
            self._add_all(values, depth - 1)

    def _add_object(self, value: Any, kind: type, depth: int, *, is_new: bool) -> None:
        # Classes and modules of Python are everybody's: only names that a code has are noted.
        is_shared = issubclass(kind, (type, types.ModuleType))
        if is_shared or not (_is_theirs(kind) or issubclass(kind, _PLAIN_OBJECTS)):
            return

        if is_new:
            self._note_attributes(value, kind)
        self._add_all(list(attributes_of(value, kind).values()), depth - 1)
        self._add_function(getattr(kind, "__call__", None), depth - 1, owner=kind)  # noqa: B004

    def _note_attributes(self, value: Any, kind: type) -> None:
        with suppress(AttributeError):  # an object with slots alone
            self.holders.append((NAMESPACE, object.__getattribute__(value, "__dict__")))
        if slot_names(kind):
            self.holders.append((SLOTS, value))

    # --- functions ---

    def _add_callable(self, value: Any, depth: int) -> None:
        """A function, a method or a partial."""
        if isinstance(value, functools.partial):
            self._add_all([value.func, *value.args, *value.keywords.values()], depth)
        elif isinstance(value, types.MethodType):
            self._add_all([value.__self__], depth)
            self._add_function(value.__func__, depth, owner=type(value.__self__))
        else:
            self._add_function(value, depth)

    def _add_function(self, function: Any, depth: int, owner: type | None = None) -> None:
        """Variables of enclosing functions, attributes, defaults, and globals that are named.

        Args:
            function: or whatever an attribute of a class is.
            depth: how far to go on.
            owner: the class whose method it is.
        """
        if not isinstance(function, types.FunctionType) or not _is_theirs(function) or depth <= 0:
            return

        cells = function.__closure__ or ()
        self._add_all(cells, depth)
        self._add_all(map(_content_of, cells), depth - 1)
        self._add_all([function.__dict__, function.__kwdefaults__], depth)
        self._add_all(function.__defaults__ or (), depth - 1)

        uses = _uses_of(function.__code__)
        self._add_globals(function.__globals__, uses, depth)
        if owner is not None and _is_theirs(owner):
            self._add_names(owner, uses.attributes_written)
            self._add_members(owner, uses.attributes, depth - 1)

    def _add_members(self, owner: type, names: frozenset[str], depth: int) -> None:
        """Methods and values of a class which one of its methods names, and may call or change."""
        if depth <= 0 or self._met.get(id(owner), 0) > depth:
            return

        self._met[id(owner)] = depth + 1
        for name in names:
            member = _member(owner, name)
            if type(member) is types.FunctionType:
                self._add_function(member, depth, owner)
            else:
                self._add_all([member], depth)

    def _add_globals(self, namespace: dict[str, Any], uses: _Uses, depth: int) -> None:
        """Globals that a code assigns, and what those hold that it reads."""
        self._add_names(namespace, uses.globals_written)

        for name in uses.globals_read & namespace.keys():
            value = namespace[name]
            if issubclass(type(value), type) and _is_theirs(value):
                self._add_names(value, uses.attributes_written)
                self._add_members(value, uses.attributes, depth - 1)
            elif type(value) is types.ModuleType and _is_package_of_theirs(value.__name__):
                self._add_names(vars(value), uses.attributes_written)
            else:
                self._add_all([value], depth - 1)

    def _add_names(self, owner: Any, names: frozenset[str]) -> None:
        if names:
            self.holders.append((NAMES, Names(owner, names)))


def _content_of(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # nothing was assigned to it yet
        return None
