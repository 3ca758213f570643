"""Any function, with one copy of every value for each record."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from discreet.training.data.trees import refilled, tensors_in
from discreet.training.rules.call import Call
from discreet.training.separation.states import OneByOne, Rows

__all__ = ["changes_in_place", "one_copy_each"]


def one_copy_each(call: Call) -> Any:
    """Any function, by vmap over records, with one copy of every value for each: exact, whatever
    the function computes.
    """
    outs = _result_axes(call)
    arguments: list[Tensor] = []
    dims: list[int | None] = []
    for tensor in call.tensors:
        value, rows = call.value(tensor), call.axes[id(tensor)]
        if value is not None:
            arguments.append(call.copies(value, 0, tuple(tensor.shape)))
            dims.append(0)
        elif rows is None or rows.clear:
            arguments.append(tensor)
            dims.append(None if rows is None else rows.dim)
        else:
            raise OneByOne(f"{call.name} has an argument without a clear record axis")
    # Inside, a value has no axis for records, and everything else has one of length 1, as in a
    # batch of one record.
    places = [
        None if call.value(tensor) is not None else dim
        for tensor, dim in zip(call.tensors, dims, strict=True)
    ]

    def of_one_record(*parts: Tensor) -> Any:
        left = [
            part if dim is None else part.unsqueeze(dim)
            for part, dim in zip(parts, places, strict=True)
        ]
        out = call.func(*refilled(call.args, left), **refilled(call.kwargs, left))
        results = tensors_in(out)
        rows = tuple(
            _only_row(call, result, dim) for result, dim in zip(results, outs, strict=True)
        )
        return rows[0] if isinstance(out, Tensor) else rows

    out_dims = outs[0] if len(outs) == 1 else tuple(outs)
    return torch.vmap(
        of_one_record, in_dims=tuple(dims), out_dims=out_dims, randomness="different"
    )(*arguments)


def _result_axes(call: Call) -> list[int]:
    """The record axis of every result, from a first run with the values as they are."""
    if changes_in_place(call.name):
        raise OneByOne(f"{call.name} changes an argument that a weight meets")
    with torch.no_grad():
        left = [call.plain(tensor) for tensor in call.tensors]
        results = tensors_in(call.func(*refilled(call.args, left), **refilled(call.kwargs, left)))
    places: list[Rows] = [call.state_of(result) for result in results]
    if not places or not all(place.clear for place in places):
        raise OneByOne(f"{call.name} has a result without a clear record axis")
    return [place.dim for place in places]


def _only_row(call: Call, result: Tensor, dim: int) -> Tensor:
    if (
        result.shape[dim] != 1
    ):  # the number of records is among the arguments, as in tile(p, (m, 1))
        raise OneByOne(f"{call.name} makes more than one row of one record")
    return result.squeeze(dim)


def changes_in_place(name: str) -> bool:
    """Whether the function of this name changes its first argument."""
    if name.endswith("__"):
        return name == "__setitem__" or name.startswith("__i")
    return name.endswith("_") and name not in ("requires_grad_", "share_memory_")
