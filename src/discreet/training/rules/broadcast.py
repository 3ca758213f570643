"""Values that are added to or multiplied with records, number by number, and values that are repeated for each record."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from discreet.training.factors import Dense, Factor, wide
from discreet.training.recording import Call
from discreet.training.structure import refilled, tensors_in
from discreet.training.watching import Unclear

__all__ = ["elementwise", "expand", "masked_fill"]


def elementwise(call: Call) -> Any:
    """A function of numbers in equal places: each value gets one copy for each record, broadcast as before."""
    (axis, *others) = call.outputs
    if axis is None or others or not (axis.clear or axis.dim == 0):
        raise Unclear(f"the result of {call.func.__name__} has no clear record axis")
    tensors = call.tensors
    if call.func.__name__.endswith("_") and call.value(call.args[0]) is not None:
        raise Unclear("a parameter that is changed in place")
    axes = max(tensor.ndim for tensor in tensors)
    given: dict[int, Tensor] = {}
    for tensor in tensors:
        value = call.value(tensor)
        if value is None or id(tensor) in given:
            continue
        shape = (1,) * (axes - tensor.ndim) + tuple(tensor.shape)
        if shape[axis.dim] != 1:
            raise Unclear(f"a parameter's own axis is the record axis of {call.func.__name__}")
        copies = call.copies(value, axis.dim, shape[: axis.dim] + shape[axis.dim + 1 :])
        given[id(tensor)] = copies if axis.fold == 1 else _for_rows(call, copies)
    left = [given.get(id(tensor), tensor) for tensor in tensors]
    return call.func(*refilled(call.args, left), **refilled(call.kwargs, left))


def masked_fill(call: Call) -> Any:
    """A value in the places of a mask."""
    x, mask, value = (call.get(i, name) for i, name in enumerate(("input", "mask", "value")))
    args = (mask, value, x)
    return elementwise(replace(call, func=torch.where, args=args, kwargs={}, tensors=tensors_in(args)))


def _for_rows(call: Call, copies: Tensor) -> Tensor:
    """(m, ...) repeated as the rows of folded arguments are: outer times over the records, inner times each."""
    folded = [tensor for tensor, axis in call.records_in() if axis is not None]
    orders = {(call.recorder.in_order(tensor), tensor.shape[0], tensor.ndim == copies.ndim) for tensor in folded}
    outer, rows, alike = orders.pop()
    if orders or outer is None or not alike or rows % max(1, outer * call.m):
        raise Unclear(f"{call.func.__name__} mixes records and positions in one axis")
    spread = copies[None, :, None].expand(outer, -1, rows // max(1, outer * call.m), *copies.shape[1:])
    return spread.reshape(rows, *copies.shape[1:])


def expand(call: Call) -> Tensor:
    """A value repeated for each record, such as a class token."""
    tensor, (axis, *_) = call.args[0], call.outputs
    value = call.value(tensor)
    if value is None or axis is None or not axis.clear:
        raise Unclear(f"{call.func.__name__} repeats something else than a value for each record")
    y = call.func(tensor.detach(), *call.args[1:], **call.kwargs)
    added = y.ndim - tensor.ndim
    own = axis.dim - added  # place of the record axis in the value, if it is there, with size 1
    if own >= 0 and tensor.shape[own] != 1:
        raise Unclear("a value with a record axis of its own")

    def make(gradient: Tensor) -> Factor:
        rows = wide(gradient).movedim(axis.dim, 0)
        rest = tensor.shape if own < 0 else tensor.shape[:own] + tensor.shape[own + 1 :]
        return Dense(_summed(rows, (call.m, *rest)).reshape(call.m, *tensor.shape))

    # A copy, also for one record: what comes next may change it in place, and the parameter must stay as it is.
    return call.tap(y.clone(memory_format=torch.contiguous_format), (value, make))


def _summed(rows: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Added up over the axes that were repeated within a record."""
    lead = rows.ndim - len(shape)
    rows = rows.sum(tuple(range(1, 1 + lead))) if lead else rows
    for dim in range(1, len(shape)):
        if shape[dim] != rows.shape[dim]:
            rows = torch.unflatten(rows, dim, (-1, shape[dim])).sum(dim) if shape[dim] > 1 else rows.sum(dim, keepdim=True)
    return rows
