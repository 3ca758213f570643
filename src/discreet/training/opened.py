"""Functions of torch.nn.functional, opened: what they call can be seen, as if the user had called it."""

from __future__ import annotations

import types
from functools import cache
from typing import Any

__all__ = ["is_python", "opened"]

_GUARDS = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")
_Function = types.FunctionType
_found: dict[Any, Any] = {}


def is_python(func: Any) -> bool:
    """Whether the function is written in Python, in torch.nn.functional, and can be opened."""
    return type(func) is _Function and _can_be_opened(func)


@cache
def _can_be_opened(func: Any) -> bool:
    # Without a guard of its own it chooses between others by a flag, as max_pool2d does: these ask for it again, without end.
    return func.__module__ == "torch.nn.functional" and not set(_GUARDS).isdisjoint(func.__code__.co_names)


def opened(func: Any) -> Any:
    """The same function, without its question whether a mode wants to see it: it does, and it sees what happens inside."""
    found = _found.get(func)
    if found is None:
        names = dict(func.__globals__) | dict.fromkeys(_GUARDS, _no)
        found = _Function(func.__code__, names, func.__name__, func.__defaults__, func.__closure__)
        found.__kwdefaults__ = func.__kwdefaults__
        _found[func] = found
    return found


def _no(*_: object) -> bool:
    return False
