"""Records, during an ordinary forward pass, every function in which a parameter meets records.

    forward: weights enter detached, every output gets an identity node ──> backward: each node's gradient makes a factor

Nothing about the model is touched: a mode of torch sees the functions that the model calls. A function that has a rule is
recorded by it; any other is recorded with one copy of the value for each record, through vmap: exact for whatever it computes.
What cannot be seen, or is not clear, raises `Unclear`, and the engine computes record by record instead.
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from discreet.training.batch_norm import Noting
from discreet.training.factors import Dense, Factor, wide
from discreet.training.structure import Axis, CallAxes, CallShapes, Structure, tensors_in
from discreet.training.tap import Receiver, new_anchor, spread_out, tap
from discreet.training.values import Computed, Looked, Part, Value, view_of, whole

__all__ = ["Call", "Recorder", "Rule", "Tracer", "Unclear", "Use", "one_copy_each"]

_GUARDS = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")
_SAME_ROWS = frozenset({"relu", "relu_", "gelu", "silu", "tanh", "sigmoid", "dropout", "contiguous", "to", "float", "clone"})
_RESHAPES = frozenset({"view", "reshape", "flatten"})


class Unclear(Exception):
    """No rule covers this pass; the reason, in words."""


@dataclass(slots=True, eq=False)
class Use:
    """One value met records once: the call's number, and its gradients once the backward pass has come by."""

    value: Value
    number: int
    factor: Factor | None = None
    inputs: tuple[tuple[Tensor, Axis | None], ...] = ()


class _Watching(TorchFunctionMode):
    """Numbers the functions that are called; looks inside those that are written in Python."""

    def __init__(self, noting: Noting | None = None) -> None:
        super().__init__()
        self.calls = 0
        self.noting = noting or Noting()
        self._inside: list[Any] = []

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        del types
        args, named = self.noting.released_only(func, args, kwargs or {})
        if type(func) is _Function and func.__module__ == "torch.nn.functional" and func not in self._inside:
            self._inside.append(func)
            try:
                with self:
                    return _unguarded(func)(*args, **named)
            finally:
                self._inside.pop()
        number = self.calls
        self.calls += 1
        return self._called(number, func, args, named)

    def _called(self, number: int, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        raise NotImplementedError


_Function = types.FunctionType
_without_guards: dict[Any, Any] = {}


def _unguarded(func: Any) -> Any:
    """The same function, without its question whether a mode wants to see it: it does, and it sees what happens inside."""
    found = _without_guards.get(func)
    if found is None:
        names = dict(func.__globals__) | dict.fromkeys(_GUARDS, _no)
        found = _Function(func.__code__, names, func.__name__, func.__defaults__, func.__closure__)
        found.__kwdefaults__ = func.__kwdefaults__
        _without_guards[func] = found
    return found


def _no(*_: object) -> bool:
    return False


class Tracer(_Watching):
    """Notes the shapes of one pass.

    Args:
        noting: private batch statistics.
        look: called with the number, the name and the results of every function; None to note shapes only.
    """

    def __init__(self, noting: Noting | None = None, look: Callable[[int, str, Any], None] | None = None) -> None:
        super().__init__(noting)
        self.shapes: list[CallShapes] = []
        self._look = look

    def _called(self, number: int, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        inputs = tuple(tuple(tensor.shape) for tensor in tensors_in(args, kwargs))
        out = func(*args, **kwargs)
        outputs = tuple(tuple(tensor.shape) for tensor in tensors_in(out))
        self.shapes.append(CallShapes(func.__name__, inputs, outputs))
        if self._look is not None:
            self._look(number, func.__name__, out)
        return out


class Recorder(_Watching):
    """Records one forward pass over m records.

    Args:
        parameters: what is trained, by leaf.
        structure: of the pass.
        records: m; sensitive.
        rules: by name of the function.
        finish: turns what a use caught into the form that is kept.
        noting: what batch normalisation does.
    """

    def __init__(
        self,
        parameters: Mapping[str, Tensor],
        structure: Structure,
        records: int,
        rules: Mapping[str, Rule],
        finish: Callable[[Use, Factor], Factor],
        noting: Noting | None = None,
    ) -> None:
        super().__init__(noting)
        self.records = records
        self.uses: list[Use] = []
        self.anchor = new_anchor(next(iter(parameters.values())).device if parameters else torch.device("cpu"))
        self._structure = structure
        self._rules = rules
        self._finish = finish
        self._parameters = dict(parameters)
        self._values: dict[int, Value] = {id(p): Part(p, leaf, whole(p)) for leaf, p in parameters.items()}
        self._folded: dict[int, tuple[Tensor, int]] = {}  # held, so that no other tensor gets the same id

    # --- forward ---

    def _called(self, number: int, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        axes = self._axes(number, func)
        leaf = self.noting.layer(args, kwargs) if func.__name__ == "batch_norm" else None
        if leaf is not None:
            self._note(leaf, self._call(number, axes, func, args, kwargs))
        if torch.is_grad_enabled() and self._meets(args, kwargs):
            return self._meeting(number, axes, func, args, kwargs)
        out = func(*args, **kwargs)
        if axes.outputs and axes.outputs[0] is not None and axes.outputs[0].fold > 1:
            self._follow_rows(axes, args, out)
        return out

    def _axes(self, number: int, func: Any) -> CallAxes:
        calls = self._structure.calls
        if number >= len(calls) or calls[number].name != func.__name__:
            raise Unclear("the model does not call the same functions in every pass")
        return calls[number]

    def _meets(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        values = self._values
        for thing in args:
            if id(thing) in values:
                return True
            if isinstance(thing, (list, tuple)) and any(id(one) in values for one in tensors_in(thing)):
                return True
        return any(id(one) in values for one in tensors_in(kwargs)) if kwargs else False

    def _call(self, number: int, axes: CallAxes, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Call:
        tensors = list(tensors_in(args, kwargs))
        if len(tensors) != len(axes.inputs):
            raise Unclear(f"{func.__name__} has other arguments than before")
        return Call(self, number, func, args, kwargs, dict(zip(map(id, tensors), axes.inputs, strict=True)), axes.outputs)

    def _note(self, leaf: str, call: Call) -> None:
        """Every record's moments, for private statistics."""
        x = call.get(0, "input")
        axis = call.axes[id(x)]
        self._check_rows(call.func.__name__, x, axis)
        rows = call.rows(x)
        self.noting.note(leaf, rows, 2 if axis is not None and axis.dim > 1 else rows.ndim - x.ndim + 1)

    def _meeting(self, number: int, axes: CallAxes, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        call = self._call(number, axes, func, args, kwargs)
        tensors = list(tensors_in(args, kwargs))
        if any(axis is not None for axis in (*axes.inputs, *axes.outputs)):
            for tensor, axis in zip(tensors, axes.inputs, strict=True):
                self._check_rows(func.__name__, tensor, axis)
            rule = self._rules.get(func.__name__)
            return one_copy_each(call) if rule is None else rule(call)
        out = func(*args, **kwargs)
        for tensor in tensors_in(out):
            if tensor.requires_grad:
                self._values[id(tensor)] = self._derived(call, tensor)
        return out

    def _check_rows(self, name: str, tensor: Tensor, axis: Axis | None) -> None:
        if axis is None or axis.dim < 0:
            return
        if (
            tensor.ndim <= axis.dim
            or tensor.shape[axis.dim] % max(1, self.records)
            or (axis.fold == 1 and tensor.shape[axis.dim] != self.records)
        ):
            raise Unclear(f"an argument of {name} does not have one row for each record")

    def _derived(self, call: Call, tensor: Tensor) -> Value:
        sources = dict(pair for value in call.values() for pair in _sources(value, self._parameters))
        if len(sources) == 1:
            ((leaf, parameter),) = sources.items()
            region = view_of(tensor, parameter)
            if region is not None and all(isinstance(value, Part) for value in call.values()):
                return Part(tensor, leaf, region)
        looked = _looked(call, tensor)
        return looked if looked is not None else Computed(tensor, tuple(sources.items()))

    def _follow_rows(self, axes: CallAxes, args: Sequence[Any], out: Any) -> None:
        """Remember how the first axis of a reshaped tensor runs over records: `outer` times over all of them."""
        first, to = axes.inputs[0] if axes.inputs else None, axes.outputs[0]
        if first is None or to is None or to.dim or not isinstance(out, Tensor) or not isinstance(args[0], Tensor):
            return
        before = args[0]
        if axes.name in _RESHAPES and first.clear:
            self.mark_in_order(out, math.prod(before.shape[: first.dim]))
        elif axes.name in _RESHAPES | _SAME_ROWS and before.shape[:1] == out.shape[:1] and id(before) in self._folded:
            self.mark_in_order(out, self._folded[id(before)][1])

    # --- for rules ---

    def value(self, thing: object) -> Value | None:
        """The value behind a tensor, if it is one."""
        return self._values.get(id(thing))

    def in_order(self, tensor: Tensor) -> int | None:
        """How many times the first axis of a folded tensor runs over all records; None if that is not known for certain."""
        return self._folded[id(tensor)][1] if id(tensor) in self._folded else None

    def mark_in_order(self, tensor: Tensor, outer: int) -> None:
        """Say so of a result."""
        self._folded[id(tensor)] = (tensor, outer)

    def receiver(self, value: Value, call: Call, make: Callable[[Tensor], Factor]) -> Receiver:
        """What turns the gradient of an output into the value's factor. `make` is let go of once it was used."""
        use = Use(value, call.number, inputs=call.records_in())
        self.uses.append(use)
        waiting = [make]

        def receive(gradient: Tensor) -> None:
            if not waiting:
                raise Unclear("a part of the model is differentiated more than once")
            use.factor = self._finish(use, waiting.pop()(gradient))

        return receive


@dataclass(slots=True, eq=False)
class Call:
    """One function in which values met records, for rules to look at."""

    recorder: Recorder
    number: int
    func: Any
    args: Sequence[Any]
    kwargs: dict[str, Any]
    axes: dict[int, Axis | None]
    outputs: tuple[Axis | None, ...]

    @property
    def m(self) -> int:
        """Records."""
        return self.recorder.records

    def get(self, position: int, name: str, default: Any = None) -> Any:
        """An argument by position or name."""
        return self.args[position] if position < len(self.args) else self.kwargs.get(name, default)

    def values(self) -> Iterator[Value]:
        """All values among the arguments."""
        for tensor in tensors_in(self.args, self.kwargs):
            value = self.recorder.value(tensor)
            if value is not None:
                yield value

    def records_in(self) -> tuple[tuple[Tensor, Axis | None], ...]:
        """The other tensors among the arguments, with their axes."""
        tensors = tensors_in(self.args, self.kwargs)
        return tuple((tensor, self.axes[id(tensor)]) for tensor in tensors if self.recorder.value(tensor) is None)

    def value(self, thing: object) -> Value | None:
        """The value behind an argument, if it is one."""
        return self.recorder.value(thing)

    def plain(self, thing: Any) -> Any:
        """An argument as the function may have it: a value without its gradient."""
        return thing.detach() if self.recorder.value(thing) is not None else thing

    def rows(self, tensor: Tensor, *, like: Tensor | None = None) -> Tensor:
        """(m, ...): the record axis first, what was folded into it second. `like`: has the same axes."""
        axis = self.axes[id(tensor if like is None else like)]
        if axis is None or axis.dim < 0:
            raise Unclear(f"an argument of {self.func.__name__} has no clear record axis")
        if axis.fold > 1:
            outer = self.recorder.in_order(tensor if like is None else like)
            if axis.dim or outer is None:
                raise Unclear(f"an argument of {self.func.__name__} mixes records and positions in one axis")
            inner = tensor.shape[0] // max(1, outer * self.m)
            return tensor.reshape(outer, self.m, inner, *tensor.shape[1:]).movedim(1, 0)
        return tensor.movedim(axis.dim, 0)

    def tap(self, out: Tensor, *pairs: tuple[Value | None, Callable[[Tensor], Factor]]) -> Tensor:
        """The output, whose gradient makes the factor of each value."""
        receivers = [self.recorder.receiver(value, self, make) for value, make in pairs if value is not None]

        def receive(gradient: Tensor) -> None:
            while receivers:
                receivers.pop(0)(gradient)

        return tap(out, self.recorder.anchor, receive) if receivers else out

    def copies(self, value: Value, dim: int, shape: tuple[int, ...]) -> Tensor:
        """The value viewed as `shape`, with one copy for each record along a new axis at `dim`."""

        def make(gradient: Tensor) -> Factor:
            return Dense(wide(gradient).movedim(dim, 0).reshape(self.m, *value.tensor.shape))

        receive = self.recorder.receiver(value, self, make)
        one = value.tensor.detach().reshape(*shape[:dim], 1, *shape[dim:])
        return spread_out(one, (*shape[:dim], self.m, *shape[dim:]), self.recorder.anchor, receive)


Rule: TypeAlias = Callable[[Call], Any]


def one_copy_each(call: Call) -> Any:
    """Any function, by vmap over records, with one copy of every value for each: exact, whatever the function computes."""
    tensors = list(tensors_in(call.args, call.kwargs))
    given: list[Tensor] = []
    dims: list[int | None] = []
    for tensor in tensors:
        value, axis = call.value(tensor), call.axes[id(tensor)]
        if value is not None:
            given.append(call.copies(value, 0, tuple(tensor.shape)))
            dims.append(0)
        elif axis is None or axis.clear:
            given.append(tensor)
            dims.append(None if axis is None else axis.dim)
        else:
            raise Unclear(f"{call.func.__name__} has an argument without a clear record axis")
    outs = [axis.dim for axis in call.outputs if axis is not None and axis.clear]
    if len(outs) < len(call.outputs) or not outs or set(dims) == {None} or call.func.__name__.endswith("_"):
        raise Unclear(f"{call.func.__name__} has a result without a clear record axis")

    places = [None if call.value(tensor) is not None else dim for tensor, dim in zip(tensors, dims, strict=True)]

    def one(*parts: Tensor) -> Any:  # a batch of one record
        left = [part if dim is None else part.unsqueeze(dim) for part, dim in zip(parts, places, strict=True)]
        out = call.func(*_filled(call.args, left), **_filled(call.kwargs, left))
        return (
            out.squeeze(outs[0])
            if isinstance(out, Tensor)
            else tuple(part.squeeze(dim) for part, dim in zip(out, outs, strict=True))
        )

    out_dims = outs[0] if len(outs) == 1 else tuple(outs)
    try:
        return torch.vmap(one, in_dims=tuple(dims), out_dims=out_dims, randomness="different")(*given)
    except RuntimeError as reason:
        raise Unclear(f"{call.func.__name__} cannot be computed with one copy of its parameters for each record") from reason


def _filled(thing: Any, left: list[Tensor]) -> Any:
    """The same structure with tensors from the list, in the order of `tensors_in`."""
    if isinstance(thing, Tensor):
        return left.pop(0)
    if isinstance(thing, (list, tuple)):
        return type(thing)(_filled(one, left) for one in thing)
    if isinstance(thing, Mapping):
        return {name: _filled(one, left) for name, one in thing.items()}
    return thing


def _sources(value: Value, parameters: Mapping[str, Tensor]) -> tuple[tuple[str, Tensor], ...]:
    return value.sources if isinstance(value, Computed) else ((value.leaf, parameters[value.leaf]),)


def _looked(call: Call, tensor: Tensor) -> Looked | None:
    """Rows of a table at fixed places, each place once."""
    table = call.value(call.get(0, "weight")) if call.func.__name__ == "embedding" else None
    ids, padding = call.get(1, "indices"), call.get(2, "padding_idx", -1)
    if not isinstance(table, Part) or not isinstance(ids, Tensor) or padding >= 0 or len(torch.unique(ids)) < ids.numel():
        return None
    return Looked(tensor, table.leaf, table.region, ids)
