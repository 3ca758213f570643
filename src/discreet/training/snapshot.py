"""A model as it is, so that whoever only looks at it can leave it so.

    tensors       numbers, memory, whether they require a gradient, and gradients, of all that modules hold
    containers    entries of lists, dicts, sets and deques, and attributes of modules and objects
    generators    of torch, NumPy and Python: the global ones, and those that modules hold

Everything is put back in place: the same objects have the same contents. Not looked at are
closures, globals, objects without a `__dict__`, and what is deeper than a few containers and
objects below a module.
"""

from __future__ import annotations

import types
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeAlias, final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from discreet.training.data.seeding import generators_seeded, put_back
from discreet.training.separation.kept import modules_of

__all__ = ["Snapshot", "unchanged"]

_DEPTH = 3  # containers and objects below a module: a cache, its layers, one of them
_DICTS = frozenset({dict, OrderedDict, defaultdict, Counter})
_CODE = (type, types.FunctionType, types.MethodType, types.ModuleType, types.BuiltinFunctionType)

_PutBack: TypeAlias = Callable[[], object]


@contextmanager
def unchanged(*roots: object) -> Iterator[None]:
    """For the time of a block modules may do what they like: afterwards they, and global
    generators, are what they were.

    Args:
        roots: modules; anything else is passed over.
    """
    snapshot = Snapshot(root for root in roots if isinstance(root, nn.Module))
    with generators_seeded():
        try:
            yield
        finally:
            snapshot.put_back()


@final
class Snapshot:
    """What modules hold, as it is now. It takes as much memory as their tensors do.

    Args:
        modules: of the user.

    >>> layer = nn.Linear(2, 1)
    >>> before = Snapshot([layer])
    >>> layer.calls, layer.training = 1, False
    >>> before.put_back()
    >>> layer.training, "calls" in vars(layer)
    (True, False)
    """

    __slots__ = ("_depths", "_met", "_steps")

    def __init__(self, modules: Iterable[nn.Module]) -> None:
        self._steps: list[_PutBack] = []
        self._met: list[object] = []  # kept alive, so that no other object gets the number of one
        self._depths: dict[int, int] = {}
        for module in modules:
            self._note(module, _DEPTH)

    def put_back(self) -> None:
        """Everything is what it was. What has not changed is not written to."""
        for step in self._steps:
            step()

    # --- what there is ---

    def _note(self, thing: Any, depth: int) -> None:
        """Note a thing and what is below it, once; again only if more of it is within reach."""
        kind = type(thing)
        if issubclass(kind, _CODE) or depth <= self._depths.get(id(thing), -1):
            return
        is_new = id(thing) not in self._depths
        self._depths[id(thing)] = depth
        if is_new:
            self._met.append(thing)
            self._steps += _steps_of(thing, kind)
        if issubclass(kind, nn.Module):
            self._note_module(thing)
        elif issubclass(kind, Tensor):
            self._note_all([thing.grad if thing.is_leaf else None], _DEPTH)
        elif depth:
            self._note_all(_parts(thing, kind), depth - 1)

    def _note_all(self, parts: Iterable[Any], depth: int) -> None:
        for part in parts:
            if part is not None:
                self._note(part, depth)

    def _note_module(self, module: nn.Module) -> None:
        """The registers of every module below, wherever torch keeps them, and its attributes."""
        for each in modules_of(module):
            self._depths[id(each)] = _DEPTH
            self._met.append(each)
            self._steps += _of_attributes(each)
            self._steps.append(partial(_set_mode, each, mode=each.training))
            tensors = (*each.parameters(recurse=False), *each.buffers(recurse=False))
            self._note_all((*tensors, *vars(each).values()), _DEPTH)


def _parts(thing: Any, kind: type) -> list[Any]:
    """Entries of a container, attributes of an object."""
    if kind in _DICTS:
        return [*thing.values()]
    if issubclass(kind, (list, tuple, set, frozenset, deque)):
        return [*thing]
    return [*_attributes(thing).values()]


def _attributes(thing: Any) -> dict[str, Any]:
    try:
        attributes = object.__getattribute__(thing, "__dict__")
    except AttributeError:
        return {}
    return attributes if type(attributes) is dict else {}


# --- how it is put back ---


def _steps_of(thing: Any, kind: type) -> list[_PutBack]:
    """What puts one thing back, without what is below it; modules are noted by themselves."""
    if issubclass(kind, nn.Module):
        return []
    if issubclass(kind, Tensor):
        return _of_tensor(thing)
    if kind in _DICTS:
        return [partial(_refill_dict, thing, dict(thing))]
    if kind in (list, set, deque):
        return [partial(_refill, thing, [*thing])]
    if kind is np.ndarray:
        return [partial(_rewrite, thing, thing.copy())]
    generator = put_back(thing)
    return _of_attributes(thing) if generator is None else [generator]


def _of_attributes(thing: Any) -> list[_PutBack]:
    attributes = _attributes(thing)
    return [partial(_refill_dict, attributes, dict(attributes))] if attributes else []


def _of_tensor(tensor: Tensor) -> list[_PutBack]:
    if is_lazy(tensor) or tensor.layout is not torch.strided or tensor.is_meta:
        return []
    memory = tensor.detach()
    cells = _cells(memory)
    steps: list[_PutBack] = [
        partial(_move_back, tensor, memory),
        partial(_write_back, cells, cells.clone()),
    ]
    if tensor.is_leaf:
        steps.append(partial(_require, tensor, tensor.grad, required=tensor.requires_grad))
    return steps


def _cells(tensor: Tensor) -> Tensor:
    """The same memory, of an expanded tensor each number once."""
    for axis, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        if size > 1 and not stride:
            tensor = tensor.narrow(axis, 0, 1)
    return tensor


def _move_back(tensor: Tensor, memory: Tensor) -> None:
    """A tensor is in its own memory again."""
    if tensor.data_ptr() != memory.data_ptr() or tensor.shape != memory.shape:
        tensor.data = memory


@torch.no_grad()
def _write_back(cells: Tensor, numbers: Tensor) -> None:
    """Memory holds its own numbers again."""
    if not torch.equal(cells, numbers):
        cells.copy_(numbers)


def _require(tensor: Tensor, gradient: Tensor | None, *, required: bool) -> None:
    if tensor.requires_grad != required:
        tensor.requires_grad_(required)
    if tensor.grad is not gradient:
        tensor.grad = gradient


def _set_mode(module: nn.Module, *, mode: bool) -> None:
    if module.training != mode:
        module.training = mode


def _refill_dict(entries: Any, before: dict[Any, Any]) -> None:
    now = [(id(key), id(value)) for key, value in entries.items()]
    if now != [(id(key), id(value)) for key, value in before.items()]:
        entries.clear()
        entries.update(before)


def _refill(entries: Any, before: list[Any]) -> None:
    if [*map(id, entries)] != [*map(id, before)]:
        entries.clear()
        entries.update(before) if isinstance(entries, set) else entries.extend(before)


def _rewrite(array: Any, before: Any) -> None:
    if array.flags.writeable:
        array[...] = before
