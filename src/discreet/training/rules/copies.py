"""The rule for any function: one copy of every value for each record, by vmap.

For y = f(x, w), record i's gradient of w is that of its own copy w_i in y_i = f(x_i, w_i): exact,
whatever f computes, in the memory of m values.

Legend: m records.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from discreet.training.data.trees import refilled, tensors_in
from discreet.training.rules.call import Call, Rule
from discreet.training.separation.states import OneByOne

__all__ = ["RULES", "changes_in_place", "one_copy_each"]


def one_copy_each(call: Call) -> Any:
    """Any function, by vmap over records: G_i is the gradient of record i's copy of the value."""
    result_dims = _result_axes(call)

    # Where vmap finds the records in each argument, and where an argument has an axis for records
    # inside of vmap.
    arguments: list[Tensor] = []
    dims: list[int | None] = []
    places: list[int | None] = []

    for tensor in call.tensors:
        value, rows = call.value(tensor), call.axes[id(tensor)]
        if rows is not None and not rows.clear:
            raise OneByOne(f"{call.name} has an argument without a clear record axis")

        dim = None if rows is None else rows.dim
        arguments.append(tensor if value is None else call.copies(value, 0, tuple(tensor.shape)))
        dims.append(dim if value is None else 0)

        # A value has no axis for records; everything else has one of length 1, as in a batch of
        # one record.
        places.append(dim if value is None else None)

    def of_one_record(*parts: Tensor) -> Any:
        batch = [
            part if dim is None else part.unsqueeze(dim)
            for part, dim in zip(parts, places, strict=True)
        ]

        # vmap adds the axis of the records again: a result gives its own one up.
        out = call.func(*refilled(call.args, batch), **refilled(call.kwargs, batch))
        results = zip(tensors_in(out), result_dims, strict=True)
        rows = tuple([_only_row(call, result, dim) for result, dim in results])

        return rows[0] if isinstance(out, Tensor) else rows

    out_dims = result_dims[0] if len(result_dims) == 1 else tuple(result_dims)
    mapped = torch.vmap(of_one_record, tuple(dims), out_dims, randomness="different")

    return mapped(*arguments)


def _result_axes(call: Call) -> list[int]:
    """The record axis of every result, from a first run with the values as they are."""
    if changes_in_place(call.name):
        raise OneByOne(f"{call.name} changes an argument that a weight meets")

    # The proof follows this run, and knows the states of its results; inside of vmap it sees
    # nothing.
    with torch.no_grad():
        plain = [call.plain(tensor) for tensor in call.tensors]
        out = call.func(*refilled(call.args, plain), **refilled(call.kwargs, plain))

    places = [call.state_of(result) for result in tensors_in(out)]
    if not places or not all(place.clear for place in places):
        raise OneByOne(f"{call.name} has a result without a clear record axis")

    return [place.dim for place in places]


def _only_row(call: Call, result: Tensor, dim: int) -> Tensor:
    # There are several where the number of records is among the arguments, as in tile(p, (m, 1)).
    if result.shape[dim] != 1:
        raise OneByOne(f"{call.name} makes more than one row of one record")

    return result.squeeze(dim)


def changes_in_place(name: str) -> bool:
    """Whether the function of this name changes its first argument."""
    # Of the methods with two underscores, `__iadd__` and its kind.
    if name.endswith("__"):
        return name == "__setitem__" or name.startswith("__i")

    # By torch's own custom; these two change no number.
    return name.endswith("_") and name not in ("requires_grad_", "share_memory_")


RULES: dict[str, Rule] = {"*": one_copy_each}
