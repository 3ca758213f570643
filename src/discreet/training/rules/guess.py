"""Weights that are repeated for each record before they meet one: a class token, prompts, an
embedding of constant ids.

Nothing of a record is in such a call, so the proof cannot say which axis will tell the record. It
is guessed from sizes: a new axis as long as there are records. A wrong guess cannot harm: the
gradient that comes back must have its records along this axis, by the proof, or the guess is
dropped and the pass repeated (`WrongGuess`).
"""

from __future__ import annotations

from typing import TypeAlias

from torch import Tensor

from discreet.training.rules.call import Call
from discreet.training.separation.states import Rows
from discreet.training.separation.table.operands import uniform

__all__ = ["repeated_axes"]

_Guess: TypeAlias = tuple[Rows, dict[int, Rows | None]]
"""The record axis of the result, and of each argument."""

_EXPANDING = frozenset({"broadcast_to", "expand", "expand_as", "repeat", "tile"})
_ENTRY_BY_ENTRY = frozenset(
    {"add", "addcmul", "div", "mul", "multiply", "sub", "subtract", "true_divide", "where"}
)


def repeated_axes(call: Call) -> _Guess | None:
    """Guess where records are in a call of a value with constants.

    Returns:
        None if no axis is as long as there are records.
    """
    if call.name in _EXPANDING:
        return _expanded(call)

    if call.name in _ENTRY_BY_ENTRY:
        return _entry_by_entry(call)

    # Constant ids, such as the same positions for each record.
    ids = call.get(1, "indices")
    if call.name == "embedding" and isinstance(ids, Tensor):
        return _along(call, ids, _axis(call, ids))

    return None


def _axis(call: Call, tensor: Tensor) -> int | None:
    # The record axis is the first axis, or the second where positions come first.
    return next((dim for dim, size in enumerate(tensor.shape[:2]) if size == call.m), None)


def _along(call: Call, tensor: Tensor, dim: int | None) -> _Guess | None:
    if dim is None or call.value(tensor) is not None:
        return None

    # A constant that differs from record to record would send the gradient of a record to where its
    # place says.
    if not uniform(tensor, Rows(dim), call.m):
        return None

    axes: dict[int, Rows | None] = dict.fromkeys(call.axes)
    axes[id(tensor)] = Rows(dim)

    return Rows(dim), axes


def _expanded(call: Call) -> _Guess | None:
    """A value that gets a new axis, or whose axis of length 1 becomes that of the records."""
    value = call.args[0]
    if not isinstance(value, Tensor) or call.value(value) is None:
        return None

    # The function itself tells the shape of its result; new axes stand in front.
    sizes = call.func(value.detach(), *call.args[1:], **call.kwargs).shape
    lead = len(sizes) - value.ndim

    for dim, size in enumerate(sizes[: lead + 2]):
        is_new = dim < lead or value.shape[dim - lead] == 1
        if size == call.m and is_new:
            return Rows(dim), dict.fromkeys(call.axes)

    return None


def _entry_by_entry(call: Call) -> _Guess | None:
    """A value that is broadcast along an axis of a constant."""
    axes = max(tensor.ndim for tensor in call.tensors)
    values = [value.tensor for value in call.values()]
    shapes = [(1,) * (axes - value.ndim) + tuple(value.shape) for value in values]

    # An axis of a constant along which every value is one entry, repeated.
    for tensor in call.others():
        dim = _axis(call, tensor)
        if dim is None or tensor.ndim < axes:
            continue

        if all(shape[dim] == 1 for shape in shapes):
            return _along(call, tensor, dim)

    return None
