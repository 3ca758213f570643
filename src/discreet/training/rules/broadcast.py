"""Values that are added to or multiplied with records, number by number, and values that are
repeated for each record.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from discreet.training.data.trees import refilled, tensors_in
from discreet.training.factors.factors import Dense, Factor, wide
from discreet.training.rules.call import Call
from discreet.training.rules.weights import Value
from discreet.training.separation.states import OneByOne, Rows

__all__ = ["elementwise", "expand", "masked_fill"]


def elementwise(call: Call) -> Any:
    """A function of numbers in equal places: each value gets one copy for each record, broadcast as
    before.
    """
    axes = max(tensor.ndim for tensor in call.tensors)
    place = _common_place(call, axes)
    if call.name.endswith("_") and call.value(call.args[0]) is not None:
        raise OneByOne("a parameter that is changed in place")
    copies: dict[int, Tensor] = {}
    for tensor in call.tensors:
        value = call.value(tensor)
        if value is not None and id(tensor) not in copies:
            copies[id(tensor)] = _repeated(call, value, place, axes)
    left = [copies.get(id(tensor), tensor) for tensor in call.tensors]
    return call.func(*refilled(call.args, left), **refilled(call.kwargs, left))


def _common_place(call: Call, axes: int) -> Rows:
    """Where the records are in the broadcast shape of all arguments."""
    places = {rows.at(rows.dim + axes - tensor.ndim) for tensor, rows in call.rows_in()}
    if len(places) != 1:
        raise OneByOne(f"the arguments of {call.name} have no common record axis")
    return places.pop()


def _repeated(call: Call, value: Value, place: Rows, axes: int) -> Tensor:
    """A value with one copy for each record along the record axis, repeated as its rows are."""
    shape = (1,) * (axes - value.tensor.ndim) + tuple(value.tensor.shape)
    if shape[place.dim] != 1:
        raise OneByOne(f"a parameter's own axis is the record axis of {call.name}")
    copies = call.copies(value, place.dim, shape[: place.dim] + shape[place.dim + 1 :])
    if place.clear:
        return copies
    dim, size = place.dim, copies.shape
    spread = copies.unsqueeze(dim + 1).unsqueeze(dim)
    spread = spread.expand(*size[:dim], place.outer, call.m, place.inner, *size[dim + 1 :])
    return spread.reshape(*size[:dim], place.fold * call.m, *size[dim + 1 :])


def masked_fill(call: Call) -> Any:
    """A value in the places of a mask."""
    x, mask, value = (call.get(i, name) for i, name in enumerate(("input", "mask", "value")))
    args = (mask, value, x)
    return elementwise(
        replace(call, func=torch.where, args=args, kwargs={}, tensors=tensors_in(args))
    )


def expand(call: Call) -> Tensor:
    """A value repeated for each record, such as a class token."""
    tensor, place = call.args[0], call.guess
    if place is None and call.name == "expand_as":
        place = call.axes[id(call.args[1])]  # as a tensor with records, of which it takes the shape
    value = call.value(tensor)
    if value is None or place is None or not place.clear:
        raise OneByOne(f"{call.name} repeats something else than a value for each record")
    y = call.func(tensor.detach(), *call.args[1:], **call.kwargs)
    own = place.dim - (
        y.ndim - tensor.ndim
    )  # the record axis in the value, if it is there, with size 1

    def make(gradient: Tensor) -> Factor:
        rows = wide(gradient).movedim(place.dim, 0)
        rest = tensor.shape if own < 0 else tensor.shape[:own] + tensor.shape[own + 1 :]
        return Dense(_summed(rows, (call.m, *rest)).reshape(call.m, *tensor.shape))

    # A copy, also for one record: what comes next may change it in place, and the parameter must
    # stay as it is.
    return call.tap(y.clone(memory_format=torch.contiguous_format), (value, make), rows=place)


def _summed(rows: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Added up over the axes that were repeated within a record."""
    lead = rows.ndim - len(shape)
    rows = rows.sum(tuple(range(1, 1 + lead))) if lead else rows
    for dim in range(1, len(shape)):
        if shape[dim] != rows.shape[dim]:
            rows = (
                torch.unflatten(rows, dim, (-1, shape[dim])).sum(dim)
                if shape[dim] > 1
                else rows.sum(dim, keepdim=True)
            )
    return rows
