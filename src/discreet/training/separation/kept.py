"""What a model keeps after a pass must not hold what the pass computed from its records.

Marks on storages tell it (`marks.py`). A tensor that holds records and is found on the model after
a pass would be released without noise in the next checkpoint, and would enter the next pass. Looked
at are parameters, their gradients, buffers, and the plain attributes of every module, through
lists, tuples, sets, dicts and objects.

Numbers of Python are not looked at: nothing of a record becomes one but by a door (`doors.py`).
"""

from __future__ import annotations

import functools
import types
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from operator import is_
from typing import Any, TypeAlias, final

import torch
from torch import Tensor, nn

from discreet.errors import CoupledRecords
from discreet.training.separation.marks import holds_records

__all__ = [
    "OF_TORCH",
    "Attributes",
    "Moved",
    "attributes_of",
    "modules_near",
    "modules_of",
    "refill",
    "refuse_kept",
]

_DEPTH = 3  # containers and objects on the way to a tensor: a cache, its layers, one of them

_ATOMS = frozenset(
    {type(None), bool, int, float, complex, str, bytes, range, slice, type}
    | {types.BuiltinFunctionType, types.FunctionType, types.MethodType, types.ModuleType}
    | {torch.Generator, torch.Size, torch.device, torch.dtype, torch.layout}
)
"""Kinds of values in which there is no tensor, or none that a pass has put there."""

OF_TORCH = frozenset(vars(nn.Module()))
"""Attributes that every module has: registers, which are looked at by themselves, and hooks."""

_REGISTERS_AND_HOOKS = OF_TORCH - {"training"}

_Assigned: TypeAlias = tuple[dict[str, Any], str, Any]
"""The attributes of a module, the name of one of them, and its value."""

_ABSENT = object()
_FUNCTIONS = (types.FunctionType, types.MethodType, functools.partial)
_CONTAINERS = frozenset({dict, list, tuple, set, frozenset, deque})
_NONE: Mapping[str, Any] = {}


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


def modules_near(function: Any, depth: int = 2) -> list[nn.Module]:
    """The modules that a function has at hand, and theirs: itself, what it is bound to, what its
    closure, its defaults and the arguments of a partial hold, globals that it names.

    Args:
        function: of the user, or None.
        depth: how many functions there may be on the way, one within the closure of the other.
    """
    at_hand: list[Any] = [function, getattr(function, "__self__", None)]
    if isinstance(function, functools.partial):
        at_hand += [function.func, *function.args, *function.keywords.values()]
    else:
        # An empty cell is one to which nothing was assigned yet; only such are equal to a new one.
        cells = getattr(function, "__closure__", None) or ()
        at_hand += [cell.cell_contents for cell in cells if cell != types.CellType()]
        at_hand += getattr(function, "__defaults__", None) or ()
        names = getattr(getattr(function, "__code__", None), "co_names", ())
        at_hand += [getattr(function, "__globals__", _NONE).get(name) for name in names]

    modules: list[nn.Module] = []
    for thing in at_hand:
        if isinstance(thing, nn.Module):
            modules += modules_of(thing)
        elif depth and thing is not function and isinstance(thing, _FUNCTIONS):
            modules += modules_near(thing, depth - 1)
    return modules


def refuse_kept(model: nn.Module) -> None:
    """Refuse a model that holds what a pass computed from its records.

    It is to be called after every pass, outside of the modes of torch that watch the pass.

    Raises:
        CoupledRecords: a parameter, a gradient, a buffer or an attribute holds records; the
            message names it.
    """
    search = _Search(model)

    for module in search.modules:  # grows meanwhile
        place = search.place_in(module)
        if place is not None:
            raise _refusal(model, module, place)


@final
class _Search:
    """Looks for tensors that hold records.

    Attributes:
        modules: of the model, and those that are met in its attributes without being registered,
            such as a teacher in a list.
    """

    __slots__ = ("_depths", "_known", "modules")

    def __init__(self, model: nn.Module) -> None:
        self.modules = modules_of(model)
        self._known: set[int] = set()  # modules, once one is met that is not registered
        self._depths: dict[int, int] = {}  # how deep each container and object was searched

    def place_in(self, module: nn.Module) -> str | None:
        """The attribute of a module that holds records; None if there is none."""
        attributes = module.__dict__

        # Modules that torch.jit compiled have no registers: their tensors are in C++.
        for name, parameter in attributes.get("_parameters", _NONE).items():
            if _holds(parameter):
                return str(name)
            if _holds(getattr(parameter, "grad", None)):
                return f"{name}.grad"

        for name, buffer in attributes.get("_buffers", _NONE).items():
            if _holds(buffer):
                return str(name)

        names = attributes.keys() - OF_TORCH
        return self._first_place(((name, attributes[name]) for name in names), _DEPTH)

    def _first_place(self, parts: Iterable[tuple[str, Any]], depth: int) -> str | None:
        """The first of these parts that holds records, and where in it; None if there is none."""
        for name, part in parts:
            # Most are plain values, of which there may be many: they are not worth a call.
            if type(part) not in _ATOMS:
                place = self.place(part, depth)
                if place is not None:
                    return name + place

        return None

    def place(self, value: Any, depth: int = _DEPTH) -> str | None:
        """Where in a value there is a tensor that holds records; None if nowhere."""
        # Objects may answer isinstance themselves, which takes long: configurations do.
        kind = type(value)
        if issubclass(kind, Tensor):
            return _place_at(value)

        # Configurations are shared by all modules. What was searched from further away is searched
        # again, because the search goes deeper now.
        if self._depths.get(id(value), 0) >= depth:
            return None
        self._depths[id(value)] = depth

        # A module has registers, which an object has not: it is searched like those of the model.
        if issubclass(kind, nn.Module):
            self._meet(value)
            return None

        return self._first_place(_parts(value, kind), depth - 1)

    def _meet(self, module: nn.Module) -> None:
        """Search a module later, if it is not registered."""
        # Most models never come here: the set is made when it is needed.
        self._known = self._known or set(map(id, self.modules))

        if id(module) not in self._known:
            self.modules += [new for new in modules_of(module) if id(new) not in self._known]
            self._known.update(map(id, self.modules))


def _holds(tensor: Tensor | None) -> bool:
    return tensor is not None and holds_records(tensor)


def _place_at(tensor: Tensor) -> str | None:
    if holds_records(tensor):
        return ""

    # torch warns where the gradient of another tensor than a leaf is asked for.
    has_gradient = tensor.is_leaf and tensor.requires_grad
    return ".grad" if has_gradient and _holds(tensor.grad) else None


def _parts(value: Any, kind: type) -> Iterable[tuple[str, Any]]:
    """Entries of a container and attributes of an object, with what a message says of them.

    Keys and places are not named: they may have been chosen by a record.
    """
    if issubclass(kind, dict):
        yield from _entries(value.values())
        yield from _entries(value.keys())
    elif issubclass(kind, (list, tuple, set, frozenset, deque)):
        yield from _entries(value)

    if kind not in _CONTAINERS:  # others may be subclasses of these, and have both
        attributes = attributes_of(value, kind)
        yield from [(f".{name}", entry) for name, entry in attributes.items()]


def _entries(values: Collection[Any]) -> Iterable[tuple[str, Any]]:
    """The entries of a container, each under the same words."""
    # Plain values alone are passed over at the speed of C: a model may hold a vocabulary.
    if _ATOMS.issuperset(map(type, values)):
        return ()

    return [("[...]", entry) for entry in values]


def attributes_of(value: Any, kind: type) -> dict[str, Any]:
    """The attributes of an object, without asking it where possible: some take long to answer."""
    attributes: dict[str, Any]
    try:
        attributes = object.__getattribute__(value, "__dict__")
    except AttributeError:
        # An object with slots, or one whose dictionary is made on demand: `threading.local`.
        slots = getattr(kind, "__slots__", ())
        names = (slots,) if isinstance(slots, str) else slots
        attributes = {name: getattr(value, name, None) for name in names}
        attributes |= getattr(value, "__dict__", {})  # of a thread's own

    return attributes


def _refusal(model: nn.Module, module: nn.Module, place: str) -> CoupledRecords:
    names = {id(submodule): name for name, submodule in model.named_modules()}
    layer = names.get(id(module), f"a {type(module).__name__} that is not registered")
    where = f"{layer}.{place}".removeprefix(".")  # the model itself has no name
    what = "a gradient" if place.endswith(".grad") else "what it computed from them"

    return CoupledRecords(
        expected="a pass that keeps nothing of its records",
        got=f"{what} in {where}, on the model, after the pass",
        do="Return what the loss needs, and keep no outputs, caches, banks or running values on "
        "modules (transformers: use_cache=False); leave out backward(). They would be released "
        "without noise, detached or not. Do not go on with this model and do not save it: build "
        "it again.",
    )


@final
class Attributes:
    """The attributes of modules before a pass.

    Args:
        modules: of the user: those of the model, and those that the loss has at hand.
    """

    __slots__ = ("_before",)

    def __init__(self, modules: Iterable[nn.Module]) -> None:
        self._before: list[tuple[dict[str, Any], dict[str, Any]]] = []

        for module in modules:
            attributes = module.__dict__
            registers = [attributes.get(name) for name in ("_parameters", "_buffers", "_modules")]

            for entries in (attributes, *registers):
                if isinstance(entries, dict):  # those of torch.jit are in C++
                    self._before.append((entries, entries.copy()))

    def put_back(self) -> list[_Assigned]:
        """Attributes that were assigned are again what they were; what they became is returned.

        What was put into a list or another container that was there before stays in it.
        """
        changes: list[_Assigned] = []

        for entries, before in self._before:
            # Nearly always nothing was assigned, which is seen at the speed of C.
            if len(entries) == len(before) and all(map(is_, entries.values(), before.values())):
                continue

            for name in {**before, **entries}.keys() - _REGISTERS_AND_HOOKS:
                value, earlier = entries.get(name, _ABSENT), before.get(name, _ABSENT)
                if value is not earlier:
                    changes.append((entries, name, value))
                    _assign(entries, name, earlier)

        return changes


def _assign(entries: dict[str, Any], name: str, value: Any) -> None:
    """Give an attribute this value, or take it away."""
    if value is _ABSENT:
        entries.pop(name, None)
    else:
        entries[name] = value


@final
@dataclass(slots=True, eq=False)
class Moved:
    """Public state that one pass has changed, and what it became; the state itself was put back.

    How many passes a step has follows from the size of its sample. So state moves once a step: by
    what its first pass made of it.

    Args:
        attributes: of modules.
        memory: storages that were there before the pass, with copies.
        generators: of the user's own, with their states.
    """

    attributes: list[_Assigned] = field(default_factory=list)
    memory: list[tuple[Any, Any]] = field(default_factory=list)
    generators: list[tuple[torch.Generator, Tensor]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.attributes or self.memory or self.generators)

    def write(self) -> None:
        """Let the state become what the pass made of it."""
        for storage, content in self.memory:
            refill(storage, content)

        # An attribute that the pass took away may be gone already.
        for entries, name, value in self.attributes:
            _assign(entries, name, value)

        for generator, state in self.generators:
            generator.set_state(state)


def refill(storage: Any, content: Any) -> None:
    """Give a storage the size and the bytes of another."""
    # The pass may have resized it.
    if storage.nbytes() != content.nbytes():
        storage.resize_(content.nbytes())

    storage.copy_(content)
