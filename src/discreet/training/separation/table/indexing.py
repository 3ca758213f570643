"""Rules of indexing by tensors.

A secret index may choose in a public table, or along the own axes of its record. Along the record
axis an index must be public, and its values must name all records in their order, each at the same
places of its own entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from discreet.training.separation.marks import out_of_sight
from discreet.training.separation.states import Rows, State
from discreet.training.separation.table.joining import guesses
from discreet.training.separation.table.operands import SUM, Operands, Rule, Unknown, uniform

__all__ = ["RULES"]

_MASKS = (torch.bool, torch.uint8)


def _walked(operands: Operands, index: Tensor, rows: Rows, size: int) -> Rows:
    """Where records are in an index of public values into a record axis with `size` entries.

    Raises:
        Unknown: it does not name all records in their order, or not the same places of each.
    """
    values = operands.values(index)
    with out_of_sight():
        values = values.long() % size
        owners = values // rows.inner % operands.count
        places = values // (rows.inner * operands.count) * rows.inner + values % rows.inner
        changes = [owners != owners.narrow(dim, 0, 1) for dim in range(index.ndim)]
        varying = [dim for dim, change in enumerate(changes) if bool(change.any())]
        if len(varying) != 1:
            raise Unknown("an index that moves records")
        dim = varying[0]
        line = owners.movedim(dim, 0).reshape(index.shape[dim], -1)[:, 0].tolist()
        inner = next((number for number, owner in enumerate(line) if owner), 0)
        if not inner or len(line) % (inner * operands.count):
            raise Unknown("an index that moves records")
        walk = Rows(dim, inner, len(line) // (inner * operands.count))
        expected = torch.arange(len(line)) // inner % operands.count
        in_order = bool((owners.movedim(dim, -1) == expected).all())
    if not in_order or not uniform(places, walk, operands.count):
        raise Unknown("an index that moves records")
    return walk


_Indices: TypeAlias = Sequence[Tensor | None]


class _Subscript:
    """The frame of `tensor[indices]`: axes that are not indexed, and the block where indices meet.

    Args:
        operands: of the call.
        tensor: that is indexed.
        indices: for its leading axes; None leaves an axis as it is, a mask stands for its places.

    Attributes:
        ndim: of the result.
    """

    def __init__(self, operands: Operands, tensor: Tensor, indices: _Indices) -> None:
        self._operands = operands
        self._sizes = tensor.shape
        self._tensor = tensor
        by_axis: list[Tensor | None] = []
        for index in indices:
            if index is None or index.dtype not in _MASKS:
                by_axis.append(index)
            else:
                by_axis += self._where_true(index)
        by_axis += [None] * (tensor.ndim - len(by_axis))
        self._by_axis = by_axis
        indexed = [axis for axis, index in enumerate(by_axis) if index is not None]
        self._block = max(index.ndim for index in by_axis if index is not None)
        adjacent = indexed == list(range(indexed[0], indexed[-1] + 1))
        self._start = indexed[0] if adjacent else 0
        self.ndim = tensor.ndim - len(indexed) + self._block

    def _where_true(self, mask: Tensor) -> list[Tensor]:
        values = self._operands.values(mask)
        with out_of_sight():
            return list(values.nonzero(as_tuple=True))

    def _shift(self, index: Tensor) -> int:
        """Axis k of an index is axis k + shift of the result."""
        return self._start + self._block - index.ndim

    def rows(self, of_tensor: Rows | None) -> Rows:
        """Where records are in the result, if the tensor has them there, or is public."""
        places: list[Rows] = []
        # By axis: the same index may stand for two, and only along one of them is it followed.
        indices = {axis: index for axis, index in enumerate(self._by_axis) if index is not None}
        if of_tensor is not None:
            places.append(self._of_tensor(of_tensor, indices.pop(of_tensor.dim, None)))
        for index in indices.values():
            of_index = self._operands.rows(index)
            if of_index is not None:
                places.append(of_index.at(of_index.dim + self._shift(index)))
        if len(set(places)) != 1:
            raise Unknown("records meet other records")
        for axis, index in indices.items():
            if self._operands.rows(index) is None and not self._indifferent(axis, of_tensor):
                place = places[0].dim - self._shift(index)
                self._operands.require_uniform(index, places[0].at(place))
        return places[0]

    def _indifferent(self, axis: int, of_tensor: Rows | None) -> bool:
        """Whether a public index walks along copies that are all the same, as vmap lets it."""
        if of_tensor is not None or self._sizes[axis] != self._operands.count:
            return False
        self._operands.looked = True
        return uniform(self._tensor, Rows(axis), self._operands.count)

    def _of_tensor(self, rows: Rows, index: Tensor | None) -> Rows:
        if index is not None:
            walk = _walked(self._operands, index, rows, self._sizes[rows.dim])
            return walk.at(walk.dim + self._shift(index))
        before = sum(index is None for index in self._by_axis[: rows.dim])
        return rows.at(before + (self._block if before >= self._start else 0))


def _indexed(operands: Operands) -> State:
    operands.require_known("self", "indices")
    subscript = _Subscript(operands, operands["self"], operands["indices"])
    return operands.kept(subscript.rows(operands.rows("self")), operands.result)


def _selected(operands: Operands) -> State:
    """`index_select`: an index of one axis, or a single number that leaves an axis of length 1."""
    operands.require_known("self", "index")
    tensor, index = operands["self"], operands["index"]
    dim = operands["dim"] % tensor.ndim
    of_tensor = operands.rows("self")
    if index.ndim == 0:
        if of_tensor is None or of_tensor.dim == dim:
            raise Unknown("a single record")
        return operands.kept(of_tensor, operands.result)
    subscript = _Subscript(operands, tensor, [*(None for _ in range(dim)), index])
    return operands.kept(subscript.rows(of_tensor), operands.result)


def _taken(operands: Operands) -> State:
    """Entries of a public table, by their number."""
    operands.require_known("index", public=["self"])
    return operands.kept(operands.require_rows("index"), operands.result)


def _one_hot(operands: Operands) -> State:
    """A new last axis; its length must not be the largest class of the batch."""
    if operands["num_classes"] < 0:
        raise Unknown("as many classes as the records have")
    return operands.kept(operands.require_rows("self"), operands.result)


# --- writing by indices ---


def _put(operands: Operands) -> State:
    """Values are put at indices.

    Into a public tensor, as zeros when going back, records may be put where they could have come
    from.
    """
    operands.require_known("self", "indices", "values")
    target, indices = operands["self"], operands["indices"]
    mask = _secret_mask(operands, indices)
    if mask is not None:
        return _filled_where(operands, mask)
    of_target = operands.rows("self")
    if of_target is not None:
        return _put_into(operands, of_target)
    secret = next(rows for rows in map(operands.rows, operands.tensors()) if rows is not None)
    for guess in guesses(target.shape, secret, operands.count):
        try:
            operands.require_uniform(target, guess)
            return _put_into(operands, guess)
        except Unknown:
            continue
    if operands["accumulate"]:
        return SUM  # the gradient of a public table
    raise Unknown("records in places that are not theirs")


def _secret_mask(operands: Operands, indices: Sequence[Tensor | None]) -> Tensor | None:
    """The first index that is a mask made of records."""
    masks = [index for index in indices if index is not None and index.dtype in _MASKS]
    return next((mask for mask in masks if operands.rows(mask) is not None), None)


def _put_into(operands: Operands, rows: Rows) -> Rows:
    """Return the rows of the target, if every record is put among its own entries."""
    values = operands["values"]
    subscript = _Subscript(operands, operands["self"], operands["indices"])
    frame = subscript.rows(rows)
    shift = subscript.ndim - values.ndim
    of_values = operands.rows("values")
    if of_values is None:
        operands.require_uniform(values, frame.at(frame.dim - shift))
    elif of_values.at(of_values.dim + shift) != frame:
        raise Unknown("records meet other records")
    return operands.kept(rows, operands.result)


def _filled_where(operands: Operands, mask: Tensor) -> State:
    """`x[mask] = number`: entry by entry. With more values, all masks decide who gets which."""
    if operands["indices"][0] is not mask or len(operands["indices"]) != 1:
        raise Unknown("a mask among other indices")
    operands.require_public("values")
    if operands["values"].numel() != 1:
        raise Unknown("as many values as all masks have places")
    return operands.kept(operands.agreed([(operands["self"], 0), (mask, 0)]), operands.result)


# --- along one axis ---


def _agreed_in_full(operands: Operands, tensors: Sequence[Tensor]) -> Rows:
    """Where records are in tensors that meet from the first index on, and are not broadcast."""
    rows = operands.agreed((tensor, 0) for tensor in tensors)
    ndim = tensors[0].ndim
    length = rows.fold * operands.count
    if any(tensor.ndim != ndim or tensor.shape[rows.dim] != length for tensor in tensors):
        raise Unknown("a part of the records")
    return rows


def _gathered(operands: Operands) -> State:
    """In a public table records may lie along `dim`, where it is asked by value, not by place."""
    operands.require_known("self", "index")
    table, index = operands["self"], operands["index"]
    dim = operands["dim"] % max(1, table.ndim)
    along = operands.rows("index")
    if operands.rows("self") is None and along is not None and along.dim == dim:
        return operands.kept(along, operands.result)
    rows = _agreed_in_full(operands, [table, index])
    if rows.dim == dim:
        raise Unknown("runs along records")
    return operands.kept(rows, operands.result)


def _scattered(operands: Operands) -> State:
    operands.require_known("self", "index", "src")
    tensors = operands.tensors(["self", "index", "src"])
    dim = operands["dim"] % max(1, tensors[0].ndim)
    if any(rows is not None and rows.dim == dim for rows in map(operands.rows, tensors)):
        if operands.name == "scatter_add":
            return SUM
        raise Unknown("runs along records")
    return operands.kept(_agreed_in_full(operands, tensors), operands.result)


def _added_by_index(operands: Operands) -> State:
    """What lies at index i of `source` along `dim` goes to index[i] of `self`."""
    tensors = operands.tensors(["self", "source"])
    dim = operands["dim"] % max(1, tensors[0].ndim)
    if any(rows is not None and rows.dim == dim for rows in map(operands.rows, tensors)):
        return _added_to_records(operands, dim)
    operands.require_known("self", "source", public=["index", "value"])
    return operands.kept(_agreed_in_full(operands, tensors), operands.result)


def _added_to_records(operands: Operands, dim: int) -> State:
    """Going back from an index that named all records in their order; else a sum over records."""
    if operands.name != "index_add":
        raise Unknown("runs along records")
    target, source = operands["self"], operands.rows("source")
    of_target = operands.rows("self")
    if source is None or operands.rows("index") is not None:
        return SUM
    candidates = guesses(target.shape, source, operands.count) if of_target is None else [of_target]
    for guess in candidates:
        try:
            walk = _walked(operands, operands["index"], guess, target.shape[dim])
            if guess.dim == dim and walk.at(dim) == source:
                operands.require_uniform(target, guess)
                return operands.kept(guess, operands.result)
        except Unknown:
            continue
    return SUM


RULES: dict[str, Rule] = {
    "index": _indexed,
    "_unsafe_index": _indexed,
    "index_select": _selected,
    "take": _taken,
    "one_hot": _one_hot,
    "index_put": _put,
    "_index_put_impl": _put,
    "_unsafe_index_put": _put,
    "gather": _gathered,
    "scatter": _scattered,
    "scatter_add": _scattered,
    "scatter_reduce": _scattered,
    "index_add": _added_by_index,
    "index_copy": _added_by_index,
    "index_fill": _added_by_index,
    "index_reduce": _added_by_index,
}
"""By name of the operation."""
