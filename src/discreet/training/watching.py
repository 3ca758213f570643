"""Watches a forward pass: a mode of torch that numbers every function that the model calls, and looks inside Python's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode

from discreet.training.batch_norm import Noting
from discreet.training.guards import refuse_change, refuse_coupling
from discreet.training.mixing import Flows
from discreet.training.opened import is_python, opened
from discreet.training.structure import CallShapes, tensors_in

__all__ = ["Tracer", "Unclear", "Watching"]


class Unclear(Exception):
    """No rule covers this pass; the reason, in words."""


class Watching(TorchFunctionMode):
    """Numbers the functions that are called; looks inside those that are written in Python."""

    def __init__(self, noting: Noting | None = None) -> None:
        super().__init__()
        self.calls = 0
        self.noting = noting or Noting()

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        del types
        args, named = self.noting.released_only(func, args, kwargs or {})
        if is_python(func):
            with self:
                return opened(func)(*args, **named)
        number = self.calls
        self.calls += 1
        return self._called(number, func, args, named)

    def _called(self, number: int, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        raise NotImplementedError


class Tracer(Watching):
    """Notes the shapes of one pass.

    Args:
        noting: private batch statistics.
        look: called with the number, the name and the results of every function; None to note shapes only.
        parameters: what is trained, by leaf: not to be changed.
    """

    def __init__(
        self,
        noting: Noting | None = None,
        look: Callable[[int, str, Any], None] | None = None,
        parameters: Mapping[str, Tensor] | None = None,
    ) -> None:
        super().__init__(noting)
        self.shapes: list[CallShapes] = []
        self.flows = Flows()
        self._look = look
        self._parameters = dict(parameters or {})

    def _called(self, number: int, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        refuse_coupling(func.__name__, args)
        refuse_change(func.__name__, args, self._parameters)
        inputs = tuple(map(_shape, tensors_in(args, kwargs)))
        out = func(*args, **kwargs)
        self.shapes.append(CallShapes(func.__name__, inputs, tuple(map(_shape, tensors_in(out)))))
        self.flows.note(func.__name__, args, kwargs, out)
        if self._look is not None:
            self._look(number, func.__name__, out)
        return out


def _shape(tensor: Tensor) -> tuple[int, ...]:
    if tensor.is_nested:
        raise Unclear("the model uses nested tensors")
    return tuple(tensor.shape)
