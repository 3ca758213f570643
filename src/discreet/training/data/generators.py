"""Random generators that a user's data set, transforms and collate function hold themselves.

To make rows of the same entry with the same random numbers, they have to stand where they stood.
They are looked for in whatever holds them, objects of libraries included (pipelines of images keep
generators), by what Python's garbage collector knows of an object: no code of anybody's runs.
"""

from __future__ import annotations

import gc
import random
import sys
import types
from collections import deque
from collections.abc import Iterable
from typing import Any, final

import numpy as np
import torch

from discreet.training.state.holders import Kind, kind_of

__all__ = ["OwnGenerators", "is_own_module"]

_GENERATORS = (random.Random, np.random.Generator, np.random.RandomState, torch.Generator)
_ATOMS = frozenset({bool, bytes, complex, float, int, str, type(None)})
_MOST = 1 << 17  # objects that are looked at
_MANY = 1 << 12  # entries of a container from which on it is data
_INSTALLED = ("site-packages", "dist-packages")


@final
class OwnGenerators:
    """Generators within reach of some objects, and where they stand now.

    Args:
        roots: data sets and functions of the user.
    """

    __slots__ = ("_notes",)

    def __init__(self, *roots: Any) -> None:
        self._notes: list[tuple[Kind, Any, Any]] = []
        for generator in _reached(roots):
            kind = kind_of(type(generator))
            if kind is not None:
                self._notes.append((kind, generator, kind.read(generator)))

    def put_back(self) -> None:
        """Let all of them stand where they stood."""
        for kind, generator, before in self._notes:
            if not kind.same(before, kind.read(generator)):
                kind.write(generator, before)


def _reached(roots: Iterable[Any]) -> list[Any]:
    """All generators within reach; the nearest first."""
    # Objects and not their numbers alone: those of objects that are gone are given out again.
    known: dict[int, Any] = {}
    waiting, generators = deque(roots), []
    while waiting and len(known) < _MOST:
        thing = waiting.popleft()
        if type(thing) in _ATOMS or id(thing) in known:
            continue

        known[id(thing)] = thing
        if issubclass(type(thing), _GENERATORS):
            generators.append(thing)
        else:
            waiting.extend(_held(thing))

    return generators


def _held(thing: Any) -> Iterable[Any]:
    kind = type(thing)
    if kind is types.FunctionType:
        return _held_by_function(thing)

    # The namespace of everybody else is no part of a data set.
    if kind is types.ModuleType or issubclass(kind, type):
        name = thing.__name__ if kind is types.ModuleType else thing.__module__
        return list(vars(thing).values()) if is_own_module(name) else ()

    if kind in (dict, list, set, tuple) and len(thing) > _MANY:
        return ()

    return gc.get_referents(thing)


def _held_by_function(function: types.FunctionType) -> list[Any]:
    """Its defaults and variables, and what the globals hold that it names."""
    named = [function.__globals__.get(name) for name in _names(function.__code__)]
    parts = (function.__defaults__, function.__kwdefaults__, function.__closure__)
    return [*parts, function.__dict__, *named]


def _names(code: types.CodeType) -> list[str]:
    """Names in its code, and in that of functions within it."""
    inner = [part for part in code.co_consts if isinstance(part, types.CodeType)]
    return [*code.co_names, *(name for part in inner for name in _names(part))]


def is_own_module(name: str) -> bool:
    """Whether a module is the user's, and not of Python or of an installed package."""
    if name.partition(".")[0] in sys.stdlib_module_names | {"builtins", "torch", "discreet"}:
        return name == "__main__"

    file = getattr(sys.modules.get(name), "__file__", None) or ""
    return not any(place in file for place in _INSTALLED)
