"""Records, during an ordinary forward pass, every function in which a parameter meets records.

    forward: weights enter detached, every output gets an identity node ──> backward: each node's gradient makes a factor

Nothing about the model is touched: a mode of torch sees the functions that the model calls. A function that has a rule is
recorded by it; any other is recorded with one copy of the value for each record, through vmap: exact for whatever it computes.
What cannot be seen, or is not clear, raises `Unclear`, and the engine computes record by record instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Self, TypeAlias

import torch
from torch import Tensor

from discreet.training.batch_norm import Noting
from discreet.training.factors import Dense, Factor, wide
from discreet.training.guards import GUARDED, changes_in_place, refuse_change, refuse_coupling, refuse_shuffling
from discreet.training.structure import Axis, CallAxes, Structure, tensors_in
from discreet.training.tap import Receiver, new_anchor, spread_out, tap
from discreet.training.values import Computed, Looked, Part, Value, sources_of, view_of, whole
from discreet.training.watching import Unclear, Watching

__all__ = ["Call", "Recorder", "Rule", "Use"]

_SAME_ROWS = frozenset(
    {"add", "addmm", "clone", "contiguous", "div", "dropout", "embedding", "float", "gelu", "layer_norm", "linear"}
    | {"log_softmax", "matmul", "mm", "mul", "relu", "relu_", "rms_norm", "sigmoid", "silu", "softmax", "sub", "tanh", "to"}
)  # row i of the result comes from row i of what has records
_DIFFERENTIATE = frozenset({"backward", "grad"})
# One argument gives values, the other only its dtype and device.
_BY_KIND = frozenset({"new_empty", "new_full", "new_ones", "new_tensor", "new_zeros", "to", "type_as"})
_RESHAPES = frozenset({"view", "reshape", "flatten"})


@dataclass(slots=True, eq=False)
class Use:
    """One value met records once: the call's number, and its gradients once the backward pass has come by."""

    value: Value
    number: int
    factor: Factor | None = None
    inputs: tuple[tuple[Tensor, Axis | None], ...] = ()


class Recorder(Watching):
    """Records one forward pass over m records.

    Args:
        parameters: what is trained, by leaf.
        structure: of the pass.
        records: m; sensitive.
        rules: by name of the function; "*" for all others.
        finish: turns what a use caught into the form that is kept.
        noting: what batch normalisation does.
        keep_inputs: whether uses keep what they met, for whoever compares passes; it takes the memory of all activations.
    """

    def __init__(
        self,
        parameters: Mapping[str, Tensor],
        structure: Structure,
        records: int,
        rules: Mapping[str, Rule],
        finish: Callable[[Use, Factor], Factor],
        noting: Noting | None = None,
        *,
        keep_inputs: bool = False,
    ) -> None:
        super().__init__(noting)
        self.records = records
        self._keep_inputs = keep_inputs
        self.uses: list[Use] = []
        self.anchor = new_anchor(next(iter(parameters.values())).device if parameters else torch.device("cpu"))
        self._structure = structure
        self._rules = rules
        self._finish = finish
        self._parameters = dict(parameters)
        self._values: dict[int, Value] = {id(p): Part(p, leaf, whole(p)) for leaf, p in parameters.items()}
        self._folded: dict[int, tuple[Tensor | None, int]] = {}  # held, so that no other tensor gets the same id
        self._entered = 0

    def __enter__(self) -> Self:
        self._entered += 1
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *what: object) -> None:
        self._entered -= 1
        if not self._entered:  # from here on activations are held by their graph alone, which frees them
            self._folded = {number: (None, outer) for number, (_, outer) in self._folded.items()}
        super().__exit__(*what)  # type: ignore[no-untyped-call]

    # --- forward ---

    def _called(self, number: int, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        axes = self._axes(number, func)
        if _guarded(axes.name):  # in every pass: a layer may have been put into another mode since
            self._refuse(axes, args)
        leaf = self.noting.leaf_of(args, kwargs) if axes.name == "batch_norm" else None
        if leaf is not None:
            self._note(leaf, self._call(number, axes, func, args, kwargs))
        meets = torch.is_grad_enabled() and self._meets(args, kwargs)
        out = self._meeting(number, axes, func, args, kwargs) if meets else func(*args, **kwargs)
        if axes.outputs and axes.outputs[0] is not None and axes.outputs[0].fold > 1:
            self._follow_rows(axes, tensors_in(args, kwargs), out)
        return out

    def _refuse(self, axes: CallAxes, args: Sequence[Any]) -> None:
        refuse_coupling(axes.name, args)
        refuse_change(axes.name, args, self._parameters)
        refuse_shuffling(axes)
        if axes.name in _DIFFERENTIATE:
            raise Unclear("the model is differentiated within its own forward pass")

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
        tensors = tensors_in(args, kwargs)
        if len(tensors) != len(axes.inputs):
            raise Unclear(f"{func.__name__} has other arguments than before")
        known = dict(zip(map(id, tensors), axes.inputs, strict=True))
        return Call(self, number, func, args, kwargs, known, axes.outputs, tensors)

    def _note(self, leaf: str, call: Call) -> None:
        """Every record's moments, for private statistics."""
        x = call.get(0, "input")
        axis = call.axes[id(x)]
        self._check_rows(call.func.__name__, x, axis)
        rows = call.rows(x)
        self.noting.note(leaf, rows, 2 if axis is not None and axis.dim > 1 else rows.ndim - x.ndim + 1)

    def _meeting(self, number: int, axes: CallAxes, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        call = self._call(number, axes, func, args, kwargs)
        tensors = call.tensors
        aside = func.__name__ in _BY_KIND
        if aside and any(axis is not None for axis in axes.outputs):
            return func(*args, **kwargs)
        if not aside and any(axis is not None for axis in (*axes.inputs, *axes.outputs)):
            for tensor, axis in zip(tensors, axes.inputs, strict=True):
                self._check_rows(func.__name__, tensor, axis)
            # The rules' formulas are for real numbers; autograd knows the others.
            name = "*" if any(map(torch.is_complex, tensors)) else func.__name__
            return _attempted(self._rules.get(name, self._rules["*"]), call)
        if any(tensor.requires_grad and self.value(tensor) is None for tensor in tensors):
            raise Unclear(f"{func.__name__} joins a parameter with something that was computed before the pass")
        out = func(*args, **kwargs)
        for tensor in tensors_in(out):
            if tensor.requires_grad:
                self._values[id(tensor)] = self._derived(call, tensor)
        return out

    def _check_rows(self, name: str, tensor: Tensor, axis: Axis | None) -> None:
        if axis is None or axis.dim < 0:
            return
        rows = tensor.shape[axis.dim] if tensor.ndim > axis.dim else -1
        if rows < 0 or rows % max(1, self.records) or (axis.fold == 1 and rows != self.records):
            raise Unclear(f"an argument of {name} does not have one row for each record")

    def _derived(self, call: Call, tensor: Tensor) -> Value:
        values = list(call.values())
        sources = dict(pair for value in values for pair in sources_of(value, self._parameters))
        if len(sources) == 1:
            ((leaf, parameter),) = sources.items()
            region = view_of(tensor, parameter)
            if region is not None and all(isinstance(value, Part) for value in values):
                return Part(tensor, leaf, region)
        looked = _looked(call, tensor)
        return looked if looked is not None else Computed(tensor, tuple(sources.items()))

    def _follow_rows(self, axes: CallAxes, tensors: list[Tensor], out: Any) -> None:
        """Remember how the first axis of a result runs over records: `outer` times over all of them."""
        to = axes.outputs[0]
        before = [(tensor, axis) for tensor, axis in zip(tensors, axes.inputs, strict=True) if axis is not None]
        if to is None or to.dim or not isinstance(out, Tensor) or not before:
            return
        first, axis = before[0]
        if axes.name in _RESHAPES and axis.clear:
            self.mark_in_order(out, math.prod(first.shape[: axis.dim]))
        elif axes.name in _RESHAPES | _SAME_ROWS:
            orders = {self.in_order(one) if one.shape[:1] == out.shape[:1] else None for one, _ in before}
            if len(orders) == 1 and None not in orders:
                self.mark_in_order(out, int(orders.pop() or 0))

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

    def receiver(self, value: Value, call: Call, make: Callable[[Tensor], Factor], *, watch: bool = True) -> Receiver:
        """What turns the gradient of an output into the value's factor. `make` is let go of once it was used.

        `watch`: `make` holds arguments of the call, which must not change in place; autograd watches over its own.
        """
        inputs, name = call.records_in(), call.func.__name__  # not the call: it holds its arguments
        use = Use(value, call.number, inputs=tuple((x.detach(), axis) for x, axis in inputs) if self._keep_inputs else ())
        self.uses.append(use)
        waiting = [make]
        used = [value.tensor, *(tensor for tensor, _ in inputs if watch)]
        versions = [tensor._version for tensor in used]  # noqa: SLF001  (what autograd itself goes by)

        def receive(gradient: Tensor) -> None:
            if not waiting or self._entered:
                raise Unclear("the model is differentiated within its own forward pass, or more than once")
            if [tensor._version for tensor in used] != versions:  # noqa: SLF001
                raise Unclear(f"an argument of {name} was changed in place after it was used")
            used.clear()
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
    tensors: list[Tensor]

    @property
    def m(self) -> int:
        """Records."""
        return self.recorder.records

    def get(self, position: int, name: str, default: Any = None) -> Any:
        """An argument by position or name."""
        return self.args[position] if position < len(self.args) else self.kwargs.get(name, default)

    def values(self) -> Iterator[Value]:
        """All values among the arguments."""
        for tensor in self.tensors:
            value = self.recorder.value(tensor)
            if value is not None:
                yield value

    def records_in(self) -> tuple[tuple[Tensor, Axis | None], ...]:
        """The other tensors among the arguments, with their axes."""
        return tuple((tensor, self.axes[id(tensor)]) for tensor in self.tensors if self.recorder.value(tensor) is None)

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
            inner, rest = divmod(tensor.shape[0], max(1, outer * self.m))
            if rest:
                raise Unclear(f"an argument of {self.func.__name__} mixes records in one row")
            return tensor.reshape(outer, self.m, inner, *tensor.shape[1:]).movedim(1, 0)
        return tensor.movedim(axis.dim, 0) if axis.dim else tensor

    def tap(self, out: Tensor, *pairs: tuple[Value | None, Callable[[Tensor], Factor]]) -> Tensor:
        """The output, whose gradient makes the factor of each value."""
        receivers = [self.recorder.receiver(value, self, make) for value, make in pairs if value is not None]

        def receive(gradient: Tensor) -> None:
            for one in receivers:
                one(gradient)

        return tap(out, self.recorder.anchor, receive) if receivers else out

    def copies(self, value: Value, dim: int, shape: tuple[int, ...]) -> Tensor:
        """The value viewed as `shape`, with one copy for each record along a new axis at `dim`."""

        def make(gradient: Tensor) -> Factor:
            return Dense(wide(gradient).movedim(dim, 0).reshape(self.m, *value.tensor.shape))

        receive = self.recorder.receiver(value, self, make, watch=False)
        one = value.tensor.detach().reshape(*shape[:dim], 1, *shape[dim:])
        return spread_out(one, (*shape[:dim], self.m, *shape[dim:]), self.recorder.anchor, receive)


Rule: TypeAlias = Callable[[Call], Any]


@cache
def _guarded(name: str) -> bool:
    """Whether a function of this name may do what `_refuse` refuses."""
    return name in _DIFFERENTIATE or name in GUARDED or changes_in_place(name)


def _attempted(rule: Rule, call: Call) -> Any:
    """A rule's result; what the rule stumbles over is not clear, and the user's own mistakes show again without it."""
    try:
        return rule(call)
    except torch.OutOfMemoryError:
        raise
    except (IndexError, RuntimeError, TypeError, ValueError) as reason:
        raise Unclear(f"{call.func.__name__} is called in a way that its rule does not know") from reason


def _looked(call: Call, tensor: Tensor) -> Looked | None:
    """Rows of a table at fixed places, each place once."""
    table = call.value(call.get(0, "weight")) if call.func.__name__ == "embedding" else None
    ids, padding = call.get(1, "indices"), call.get(2, "padding_idx", -1)
    if not isinstance(table, Part) or not isinstance(ids, Tensor) or padding >= 0 or len(torch.unique(ids)) < ids.numel():
        return None
    return Looked(tensor, table.leaf, table.region, ids)
