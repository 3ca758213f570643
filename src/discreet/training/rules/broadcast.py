"""Values that are combined with records number by number, or repeated for each record.

In y = f(x, w), with f a function of numbers in equal places and w broadcast along the axis of the
records, each record gets its own copy of w; autograd's gradient of copy i is the record's G_i. For
w repeated within a record as well, G_i is the sum over the repetitions.

Legend: m records.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from discreet.training.data.trees import refilled, tensors_in
from discreet.training.factors.factors import Dense, Factor, wide
from discreet.training.rules.call import Call, Rule
from discreet.training.rules.weights import Value
from discreet.training.separation.states import OneByOne, Rows

__all__ = ["RULES", "elementwise", "expand", "masked_fill"]

_ELEMENTWISE = (
    "__rpow__", "__rsub__", "add", "add_", "addcdiv", "addcmul", "div", "div_", "lerp", "maximum",
    "minimum", "mul", "mul_", "multiply", "pow", "rsub", "scaled_dot_product_attention", "sub",
    "sub_", "subtract", "true_divide", "where",
)  # fmt: skip


def elementwise(call: Call) -> Any:
    """A function of numbers in equal places: y = f(x, w).

    Each value becomes one copy for each record, broadcast as before: G_i is the gradient of copy i.
    """
    axes = max(tensor.ndim for tensor in call.tensors)
    place = _common_place(call, axes)
    if call.name.endswith("_") and call.value(call.args[0]) is not None:
        raise OneByOne("a parameter that is changed in place")

    # By id: a value that stands in two places has one copy for each record, and one gradient.
    values = {id(value.tensor): value for value in call.values()}
    copies = {key: _repeated(call, value, place, axes) for key, value in values.items()}

    arguments = [copies.get(id(tensor), tensor) for tensor in call.tensors]

    return call.func(*refilled(call.args, arguments), **refilled(call.kwargs, arguments))


def _common_place(call: Call, axes: int) -> Rows:
    # Shapes are broadcast from the right: axes are counted as if all had as many as the longest.
    places = {rows.at(rows.dim + axes - tensor.ndim) for tensor, rows in call.rows_in()}
    if len(places) != 1:
        raise OneByOne(f"the arguments of {call.name} have no common record axis")

    return places.pop()


def _repeated(call: Call, value: Value, place: Rows, axes: int) -> Tensor:
    """A value with one copy for each record along the record axis, repeated as its rows are."""
    dim = place.dim
    shape = (1,) * (axes - value.tensor.ndim) + tuple(value.tensor.shape)
    if shape[dim] != 1:
        raise OneByOne(f"a parameter's own axis is the record axis of {call.name}")

    copies = call.copies(value, dim, shape[:dim] + shape[dim + 1 :])
    if place.clear:
        return copies

    # The record axis has outer * m * inner entries: copy i goes where record i's entries are.
    before, after = copies.shape[:dim], copies.shape[dim + 1 :]
    spread = copies.unsqueeze(dim + 1).unsqueeze(dim)
    spread = spread.expand(*before, place.outer, call.m, place.inner, *after)

    return spread.reshape(*before, place.fold * call.m, *after)


def masked_fill(call: Call) -> Any:
    """The value in the places of a mask, x elsewhere: y = where(mask, w, x), entry by entry."""
    x, mask, value = call.get_all("input", "mask", "value")
    args = (mask, value, x)
    return elementwise(
        replace(call, func=torch.where, args=args, kwargs={}, tensors=tensors_in(args))
    )


def expand(call: Call) -> Tensor:
    """A value repeated for each record, such as a class token.

    G_i is the gradient of record i's copy, added up over the axes that are repeated within it.
    """
    tensor, place = call.args[0], call.guess
    if place is None and call.name == "expand_as":
        # It takes the shape of a tensor with records, and so the place of the records.
        place = call.axes[id(call.args[1])]

    value = call.value(tensor)
    if value is None or place is None or (not place.clear and place is not call.guess):
        raise OneByOne(f"{call.name} repeats something else than a value for each record")

    y = call.func(tensor.detach(), *call.args[1:], **call.kwargs)

    # The value's shape without its axis for the records, which is of size 1 if it is there at all,
    # unless all of it is repeated along that axis.
    record_axis = place.dim - (y.ndim - tensor.ndim) if place.clear else -1
    shape = [size for axis, size in enumerate(tensor.shape) if axis != record_axis]

    def make(gradient: Tensor) -> Factor:
        rows = call.split(wide(gradient), place)
        return Dense(_summed(rows, (call.m, *shape)).reshape(call.m, *tensor.shape))

    # A copy, also for one record: what comes next may change it in place, and the parameter must
    # stay as it is.
    return call.tap(y.clone(memory_format=torch.contiguous_format), (value, make), rows=place)


def _summed(rows: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Add up over the axes that were repeated within a record, until `shape` remains."""
    # New axes stand in front, behind that of the records.
    leading = rows.ndim - len(shape)
    rows = rows.sum(tuple(range(1, 1 + leading))) if leading else rows

    for dim in range(1, len(shape)):
        if shape[dim] == 1 != rows.shape[dim]:
            rows = rows.sum(dim, keepdim=True)

        # `repeat` of an axis: its copies stand one after the other.
        elif shape[dim] != rows.shape[dim]:
            rows = torch.unflatten(rows, dim, (-1, shape[dim])).sum(dim)

    return rows


RULES: dict[str, Rule] = {
    **dict.fromkeys(_ELEMENTWISE, elementwise),
    **dict.fromkeys(("broadcast_to", "expand", "expand_as", "repeat"), expand),
    "masked_fill": masked_fill,
}
