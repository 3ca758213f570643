"""Any function, with one copy of every value for each record."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from discreet.training.guards import changes_in_place
from discreet.training.recording import Call
from discreet.training.structure import refilled, tensors_in
from discreet.training.watching import Unclear

__all__ = ["one_copy_each"]


def one_copy_each(call: Call) -> Any:
    """Any function, by vmap over records, with one copy of every value for each: exact, whatever the function computes."""
    tensors = call.tensors
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
    if len(outs) < len(call.outputs) or not outs or changes_in_place(call.func.__name__):
        raise Unclear(f"{call.func.__name__} has a result without a clear record axis")

    places = [None if call.value(tensor) is not None else dim for tensor, dim in zip(tensors, dims, strict=True)]

    def one(*parts: Tensor) -> Any:  # a batch of one record
        left = [part if dim is None else part.unsqueeze(dim) for part, dim in zip(parts, places, strict=True)]
        out = call.func(*refilled(call.args, left), **refilled(call.kwargs, left))
        rows = tuple(_of_one(call, part, dim) for part, dim in zip(tensors_in(out), outs, strict=True))
        return rows[0] if isinstance(out, Tensor) else rows

    out_dims = outs[0] if len(outs) == 1 else tuple(outs)
    return torch.vmap(one, in_dims=tuple(dims), out_dims=out_dims, randomness="different")(*given)


def _of_one(call: Call, out: Tensor, dim: int) -> Tensor:
    if out.shape[dim] != 1:  # the number of records is among the arguments, as in tile(p, (m, 1))
        raise Unclear(f"{call.func.__name__} makes more than one row of one record")
    return out.squeeze(dim)
