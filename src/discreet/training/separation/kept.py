"""What a model keeps after a pass must not hold what the pass computed from its records.

Marks on storages tell it (`marks.py`). A tensor that holds records and is found on the model after
a pass would be released without noise in the next checkpoint, and would enter the next pass. Looked
at are parameters, their gradients, buffers, and the plain attributes of every module, through
lists, tuples, sets, dicts and objects.

Numbers of Python are not looked at: nothing of a record becomes one but by a door (`doors.py`).
"""

from __future__ import annotations

import types
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from typing import Any, final

import torch
from torch import Tensor, nn

from discreet.errors import CoupledRecords
from discreet.training.separation.marks import holds_records
from discreet.training.state.reach import OF_TORCH, attributes_of, modules_of

__all__ = ["refuse_kept"]

_DEPTH = 3  # containers and objects on the way to a tensor: a cache, its layers, one of them

_ATOMS = frozenset(
    {type(None), bool, int, float, complex, str, bytes, range, slice, type}
    | {types.BuiltinFunctionType, types.FunctionType, types.MethodType, types.ModuleType}
    | {torch.Generator, torch.Size, torch.device, torch.dtype, torch.layout}
)
"""Kinds of values in which there is no tensor, or none that a pass has put there."""

_CONTAINERS = frozenset({dict, list, tuple, set, frozenset, deque})
_NONE: Mapping[str, Any] = {}


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
            if parameter is None:
                continue

            if holds_records(parameter):
                return str(name)

            if parameter.grad is not None and holds_records(parameter.grad):
                return f"{name}.grad"

        for name, buffer in attributes.get("_buffers", _NONE).items():
            if buffer is not None and holds_records(buffer):
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


def _place_at(tensor: Tensor) -> str | None:
    if holds_records(tensor):
        return ""

    # torch warns where the gradient of another tensor than a leaf is asked for.
    gradient = tensor.grad if tensor.is_leaf and tensor.requires_grad else None
    return ".grad" if gradient is not None and holds_records(gradient) else None


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
