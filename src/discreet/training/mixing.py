"""Where numbers of several records may come together, read off a pass: also where these records do not show it.

The check of isolation sees couplings that move numbers of the few records it tries. Some sleep until a record is large, or
until there are many: `h * min(1, 1000 / h.norm())`, the hardest 64 losses of a batch. Their traces can be seen in every pass:

    mixed     a tensor without records, computed from records, meets records again
    ragged    how many rows there are is counted from what records hold, so that a row need not be a record
    along     a function runs along the records: sorts them, adds them up, moves them
    left      a number of theirs becomes one of Python's, which may come back anywhere

None of it must be wrong; all of it is computed record by record.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor

from discreet.training.guards import changes_in_place
from discreet.training.structure import Axis, CallAxes, Structure, tensors_in

__all__ = ["Flow", "Flows", "mixing_of"]

_BY_SHAPE = frozenset(
    {"arange", "empty_like", "new_empty", "new_ones", "new_zeros", "ones_like", "rand_like", "randn_like", "zeros_like"}
)  # what they take from a tensor is its shape, its type or a length
_RAGGED = frozenset(
    {"_pack_padded_sequence", "argwhere", "bincount", "masked_scatter", "masked_scatter_", "masked_select", "nonzero"}
    | {"unique", "unique_consecutive"}
)
_ALONG = {
    **dict.fromkeys(("argsort", "cummax", "cummin", "cumprod", "cumsum", "flip", "gather", "log_softmax", "logcumsumexp"), 1),
    **dict.fromkeys(("index_add", "index_copy", "index_select", "msort", "scatter", "scatter_add", "scatter_reduce"), 1),
    **dict.fromkeys(("diff", "renorm", "roll", "take_along_dim", "topk"), 2),
    **dict.fromkeys(("softmax", "sort"), 1),
}  # by the place of `dim`
_TO_PYTHON = frozenset({"__array__", "__float__", "item", "numpy", "tolist"})
_MASKS = (torch.bool, torch.uint8)


@dataclass(frozen=True, slots=True)
class Flow:
    """One call: numbers of the tensors that go in and come out; whether it counts; along which axes it runs; what it leaves."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    changed: int | None
    ragged: bool
    along: tuple[int, ...]
    left: bool


@final
class Flows:
    """The calls of one pass. Keeps none of its tensors alive: the graph may hold who notes."""

    def __init__(self) -> None:
        self.calls: list[Flow] = []
        self._seen: dict[int, tuple[weakref.ref[Tensor], int]] = {}
        self._count = 0

    def note(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> None:
        """One call, in the order of a pass."""
        inputs = tuple(map(self._number, tensors_in(args, kwargs)))
        changed = inputs[0] if inputs and changes_in_place(name) else None
        outputs = tuple(map(self._number, tensors_in(out)))
        left = name in _TO_PYTHON and any(map(torch.is_floating_point, tensors_in(args)))
        self.calls.append(Flow(inputs, outputs, changed, _counts(name, args, kwargs), _along(name, args, kwargs), left))

    def _number(self, tensor: Tensor) -> int:
        seen, number = self._seen.get(id(tensor), (None, -1))
        if seen is None or seen() is not tensor:  # new, or in the place of one that is gone
            number, self._count = self._count, self._count + 1
            self._seen[id(tensor)] = (weakref.ref(tensor), number)
        return number


def _counts(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    if name in ("__getitem__", "__setitem__"):
        return any(one.dtype in _MASKS for one in tensors_in(args[1])) and (
            name == "__getitem__" or (isinstance(args[2], Tensor) and args[2].ndim > 0)
        )
    if name == "repeat_interleave":
        return any(True for _ in tensors_in(args[1:], kwargs))
    return name in _RAGGED or (name == "where" and len(args) + len(kwargs) == 1)


def _along(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[int, ...]:
    place = _ALONG.get(name.removesuffix("_"))
    if place is None or not args or not isinstance(args[0], Tensor):
        return ()
    given = args[place] if len(args) > place else kwargs.get("dim", kwargs.get("dims", -1))
    axes: int = args[0].ndim
    if name == "msort" or (name == "roll" and given == -1):  # over the first axis; over all of them as one
        return (0,) if name == "msort" else tuple(range(axes))
    dims = given if isinstance(given, (list, tuple)) else (given,)
    return tuple(dim % max(1, axes) for dim in dims if isinstance(dim, int))


def mixing_of(structure: Structure, flows: Sequence[Flow]) -> str | None:
    """The first trace of it, in words; None if there is none."""
    mixed: set[int] = set()
    for call, flow in zip(structure.calls, flows, strict=True):
        if call.name in _BY_SHAPE:
            continue
        carried = any(axis is not None for axis in call.inputs)
        met = any(one in mixed for one in flow.inputs)
        spread = any(axis is not None for axis in call.outputs)
        if (carried or spread) and met:
            return f"{call.name} joins records with what several of them made: each is computed alone"
        if (carried or met) and flow.left:
            return f"{call.name} makes a number of Python's of what records made: each is computed alone"
        if carried and (flow.ragged or _among(call, flow)):
            return f"{call.name} runs along the records, or counts entries of theirs: each is computed alone"
        if carried or met:
            mixed.update(one for one, axis in zip(flow.outputs, call.outputs, strict=True) if axis is None)
            mixed.update(_without(call.inputs[:1], flow.changed))
    return None


def _among(call: CallAxes, flow: Flow) -> bool:
    first = call.inputs[0]
    return bool(flow.along) and first is not None and first.dim in (*flow.along, -1)


def _without(first: Sequence[Axis | None], changed: int | None) -> set[int]:
    return set() if changed is None or first[0] is not None else {changed}
