"""Hooks and modes of torch would be shown numbers of records: those of users are refused before
anything is charged.

A hook on a parameter, as trackers of experiments put there, is called with its gradient; one on a
module with activations, or with their gradients. Inside of a pass these are numbers of records,
neither clipped nor noised. Hooks that libraries put on modules to compute their forward pass
(weight norm, adapters) are part of the model: they run inside of the pass, and are proved with it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from operator import itemgetter
from types import MethodType
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module
from torch.utils._device import DeviceContext

from discreet.errors import ModelError
from discreet.training.state.reach import modules_of

__all__ = ["OwnHook", "refuse_hooks"]

_LIBRARIES = frozenset({"accelerate", "discreet", "peft", "torch", "transformers"})
_WATCHERS = ("transformers.debug_utils",)  # parts of these libraries that print what they see
_OURS = frozenset({"discreet"})
_NOBODY: frozenset[str] = frozenset()

# Attributes of a module that hold hooks: what they are called in messages, and whose are allowed.
# By hooks of the forward pass libraries compute; one of the backward pass is shown gradients.
_REGISTERS = {
    "_forward_hooks": ("a forward hook", _LIBRARIES),
    "_forward_pre_hooks": ("a forward pre-hook", _LIBRARIES),
    "_backward_hooks": ("a backward hook", _NOBODY),
    "_backward_pre_hooks": ("a backward pre-hook", _NOBODY),
}
_registers_of: Any = itemgetter(*_REGISTERS)
# Registers of hooks that torch calls for every module.
_GLOBAL = [
    (getattr(torch_module, f"_global{register}"), kind, allowed)
    for register, (kind, allowed) in _REGISTERS.items()
]


class OwnHook(functools.partial[None]):
    """A hook that a run puts on a parameter itself: it is looked into once, when it is made."""

    __slots__ = ()

    def __new__(cls, function: Callable[..., None], *args: object) -> Self:
        """Make one of a function of the library; of others it is refused."""
        _refuse((function,), "a hook of the run", _OURS)
        return super().__new__(cls, function, *args)


_NO_HOOKS: Mapping[int, object] = {}
_OF_RUN = frozenset({OwnHook})
# No public way to ask.
_saved_tensors_hooks: Any = torch._C._autograd._top_saved_tensors_default_hooks  # noqa: SLF001
_function_modes: Any = torch.overrides._get_current_function_mode_stack  # noqa: SLF001
_dispatch_modes: Any = torch.utils._python_dispatch._get_current_dispatch_mode_stack  # noqa: SLF001


def refuse_hooks(model: nn.Module, parameters: Mapping[str, Tensor]) -> None:
    """Refuse hooks that would see numbers of records. It is to be called before every step.

    Args:
        model: of the user.
        parameters: that are trained, by leaf.

    Raises:
        ModelError: there is such a hook; the message names it and what it hangs on.
    """
    for hooks, kind, allowed in _GLOBAL:
        _refuse(hooks.values(), f"{kind} on all modules", allowed)

    # They may stay installed around the whole loop, as offloading to the processor does.
    saved = _saved_tensors_hooks(True)
    if saved is not None:
        _refuse(saved, "a hook on the tensors that autograd saves", _LIBRARIES)

    for mode in (*_function_modes(), *_dispatch_modes()):
        if type(mode) is not DeviceContext:  # of torch.set_default_device, which reads no numbers
            raise ModelError(
                expected="no mode of torch around the training loop",
                got=f"{type(mode).__name__} of {type(mode).__module__}: it would be shown numbers "
                "of single records, while nobody follows them",
                do="Enter it outside of run.backward: around an evaluation on public data, or "
                "around a plain pass.",
            )

    # Most parameters and modules have none: whose hooks they are is asked only where there are any.
    for leaf, parameter in parameters.items():
        # Another library's hook would change a gradient that is never formed here.
        before = parameter._backward_hooks  # noqa: SLF001  (no public way to ask)
        after = parameter._post_accumulate_grad_hooks or _NO_HOOKS  # noqa: SLF001
        if before or not _OF_RUN.issuperset(map(type, after.values())):
            _refuse_on_parameter(leaf, parameter)

    for module in modules_of(model):
        if any(_registers_of(module.__dict__)):
            _refuse_on_module(model, module)


def _refuse_on_parameter(leaf: str, parameter: Tensor) -> None:
    on = f"on {leaf.removeprefix('grad/')}"
    registers = {
        "a gradient hook": parameter._backward_hooks,  # noqa: SLF001  (no public way to ask)
        "a post-accumulate hook": parameter._post_accumulate_grad_hooks,  # noqa: SLF001
    }

    for kind, hooks in registers.items():
        # A tensor has no register before its first hook.
        _refuse((hooks or {}).values(), f"{kind} {on}", _OURS)


def _refuse_on_module(model: nn.Module, module: nn.Module) -> None:
    path = next((name for name, submodule in model.named_modules() if submodule is module), "")
    on = f"on the layer {path!r}" if path else "on the model"

    for register, (kind, allowed) in _REGISTERS.items():
        _refuse(module.__dict__[register].values(), f"{kind} {on}", allowed)


def _refuse(hooks: Iterable[object], what: str, allowed: frozenset[str]) -> None:
    """Refuse hooks of others than the allowed libraries."""
    for hook in hooks:
        # Who wrote it decides, not who registered it: a wrapper of torch's may hold a user's.
        function = _innermost(hook)
        origin = _origin(function)
        library = origin.partition(".")[0]

        if library not in allowed or origin.startswith(_WATCHERS):
            name = getattr(function, "__qualname__", type(function).__qualname__)
            raise ModelError(
                expected="parameters and modules without hooks of others while a run lasts",
                got=f"{what}, {name} of {origin}: it would be shown numbers of single records",
                do="Remove it (handle.remove(), or the tracker's unwatch) before the run, and log "
                "released values instead: logs= of PrivateRun. What a model must do with its "
                "activations belongs into its forward().",
            )


def _innermost(hook: object) -> object:
    """The function that a hook calls, under partial arguments, methods and decorators."""
    function = hook

    # Until nothing is left to unwrap: any of them may be around any other.
    while True:
        if isinstance(function, functools.partial):
            function = function.func
        elif isinstance(function, MethodType):
            function = function.__func__
        elif (wrapped := getattr(function, "__wrapped__", None)) is not None:
            function = wrapped
        else:
            return function


def _origin(function: object) -> str:
    """The module in which a function, or the class of an object, is written."""
    # Some built-in functions and methods have none of their own.
    return str(getattr(function, "__module__", None) or type(function).__module__)
