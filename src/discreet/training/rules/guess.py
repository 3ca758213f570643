"""Weights that are repeated for each record before they meet one: a class token, prompts, an
embedding of constant ids, a linear map or a cell that begins with zeros, a bias of attention plus a
mask that is repeated for each record.

Nothing of a record is in such a call, so the proof cannot say which axis will tell the record. It
is guessed from sizes: an axis as long as there are records, or a multiple of that. A wrong guess
cannot harm: the gradient that comes back must have its records along this axis, by the proof, or
the guess is dropped and the pass repeated (`WrongGuess`).
"""

from __future__ import annotations

from typing import TypeAlias

from torch import Tensor

from discreet.training.rules.call import Call
from discreet.training.separation.states import Rows, is_public
from discreet.training.separation.table.operands import uniform

__all__ = ["passed_on", "repeated_axes"]

_Guess: TypeAlias = tuple[Rows, dict[int, Rows | None]]
"""The record axis of the result, and of each argument."""

_EXPANDING = frozenset({"broadcast_to", "expand", "expand_as", "repeat", "tile"})
_MAPS = {"addmm": "mat1", "linear": "input", "matmul": "input", "mm": "input"}
"""Linear maps, and what they call the rows that a weight meets."""
_NORMS = frozenset({"layer_norm", "rms_norm"})
_CELLS = frozenset({"gru_cell", "lstm_cell", "rnn_relu_cell", "rnn_tanh_cell"})
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
        return _first_along(call, ids, _places(call, ids))

    if call.name in _MAPS or call.name in _CELLS:
        return _mapped(call)

    return None


def passed_on(call: Call) -> Rows | None:
    """Guess where records are in what a layer makes of a weight that was repeated for each of them.

    Returns:
        None for other calls.
    """
    if call.name not in _MAPS and call.name not in _NORMS:
        return None

    position = 1 if call.name == "addmm" else 0
    rows = call.get(position, _MAPS.get(call.name, "input"))
    met = [tensor for tensor, _ in call.rows_in()]
    if len(met) != 1 or met[0] is not rows or not is_public(call.uses.proof.state(rows)):
        return None

    # A rule keeps what the weight met: it must be the same for all records.
    place = call.axes[id(rows)]
    return place if place is not None and uniform(rows, place, call.m) else None


def _mapped(call: Call) -> _Guess | None:
    """Constant rows, such as the zeros from which a state begins, that a linear map meets."""
    position = 1 if call.name == "addmm" else 0
    rows = call.get(position, _MAPS.get(call.name, "input"))
    if not isinstance(rows, Tensor) or rows.ndim < 2:
        return None

    # Along the last axis the map adds up; a vector or a matrix of weights has no records.
    inputs = rows.ndim - 1
    places = [place for place in _places(call, rows) if place.dim < inputs]

    return _first_along(call, rows, places)


def _places(call: Call, tensor: Tensor) -> list[Rows]:
    """Where records could be in a constant: the likelier come first."""
    if not call.m:
        return []

    # The record axis is the first axis, or the second where positions come first.
    clear = [Rows(dim) for dim, size in enumerate(tensor.shape[:2]) if size == call.m]
    fold, remainder = divmod(tensor.shape[0] if tensor.ndim else 0, call.m)

    # Several rows of each record stand in a row, as windows of a picture do, or records in turn.
    folded = [Rows(0, fold), Rows(0, 1, fold)] if fold > 1 and not remainder else []

    return clear + folded


def _first_along(call: Call, tensor: Tensor, places: list[Rows]) -> _Guess | None:
    """The first of these places where a constant is the same for all records."""
    if call.value(tensor) is not None:
        return None

    # A constant that differs from record to record would send the gradient of a record to where its
    # place says.
    place = next((place for place in places if uniform(tensor, place, call.m)), None)
    if place is None:
        return None

    axes: dict[int, Rows | None] = dict.fromkeys(call.axes)
    axes[id(tensor)] = place

    return place, axes


def _expanded(call: Call) -> _Guess | None:
    """A value that gets a new axis, or whose axis of length 1 becomes that of the records; or one
    that is repeated as a whole along its first axis, as the heads of attention are.
    """
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

    entries = value.shape[0] if value.ndim and not lead else 0
    if call.name == "repeat" and entries > 1 and sizes[0] == entries * call.m:
        return Rows(0, entries), dict.fromkeys(call.axes)

    return None


def _entry_by_entry(call: Call) -> _Guess | None:
    """A value that is broadcast along an axis of a constant."""
    axes = max(tensor.ndim for tensor in call.tensors)
    values = [value.tensor for value in call.values()]
    shapes = [(1,) * (axes - value.ndim) + tuple(value.shape) for value in values]

    # An axis of a constant along which every value is one entry, repeated.
    for tensor in call.others():
        if tensor.ndim < axes:
            continue

        along = [
            place
            for place in _places(call, tensor)
            if all(shape[place.dim] == 1 for shape in shapes)
        ]
        guess = _first_along(call, tensor, along)
        if guess is not None:
            return guess

    return None
