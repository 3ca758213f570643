"""Rules of indexing by tensors.

A secret index may choose in a public table, or along the own axes of its record. Along the record
axis an index must be public, and its values must name all records in their order, each at the same
places of its own entries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias, TypeGuard

import torch
from torch import Tensor

from discreet.training.separation.marks import out_of_sight
from discreet.training.separation.states import Rows, State
from discreet.training.separation.table.joining import guesses
from discreet.training.separation.table.operands import (
    SUM,
    Operands,
    Rule,
    Unknown,
    require,
    same_for_all,
    uniform,
)

__all__ = ["RULES"]

_ALONG = "runs along records"
_MASKS = (torch.bool, torch.uint8)
_MOVED = "an index that moves records"


def _is_mask(index: Tensor | None) -> TypeGuard[Tensor]:
    """Whether an index names places by truth values, and not by their numbers."""
    return index is not None and index.dtype in _MASKS


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

        # The owner may change along one axis of the index only: that is the new record axis.
        changes = [owners != owners.narrow(dim, 0, 1) for dim in range(index.ndim)]
        varying = [dim for dim, change in enumerate(changes) if bool(change.any())]
        require(len(varying) == 1, _MOVED)
        (dim,) = varying

        # How often the first record comes in a row tells how the records are folded there, if they
        # all come, in their order.
        line = owners.movedim(dim, 0).reshape(index.shape[dim], -1)[:, 0].tolist()
        inner = next((number for number, owner in enumerate(line) if owner), 0)
        fits = inner > 0 and len(line) % (inner * operands.count) == 0
        require(fits, _MOVED)
        walk = Rows(dim, inner, len(line) // (inner * operands.count))
        expected = torch.arange(len(line)) // inner % operands.count
        in_order = bool((owners.movedim(dim, -1) == expected).all())

    # Places within a record's own entries must be the same for all, or places of the batch differ.
    alike = in_order and same_for_all(places, walk, operands.count)
    require(alike, _MOVED)
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
        self._tensor = tensor
        by_axis: list[Tensor | None] = []
        for index in indices:
            by_axis += self._where_true(index) if _is_mask(index) else [index]

        # By axis: the same index may stand for two, and only along one of them is it followed.
        self._indices = {axis: index for axis, index in enumerate(by_axis) if index is not None}
        self._block = max(index.ndim for index in self._indices.values())

        # The block takes the place of the indexed axes; if others lie between them, it comes first.
        indexed = list(self._indices)
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
        indices = dict(self._indices)
        places: set[Rows] = set()
        if of_tensor is not None:
            places.add(self._of_tensor(of_tensor, indices.pop(of_tensor.dim, None)))

        for index in indices.values():
            of_index = self._operands.rows(index)
            if of_index is not None:
                places.add(of_index.at(of_index.dim + self._shift(index)))

        require(len(places) == 1, "records meet other records")
        (common,) = places
        for axis, index in indices.items():
            is_public = self._operands.rows(index) is None
            if is_public and not self._indifferent(axis, of_tensor):
                self._operands.require_uniform(index, common.at(common.dim - self._shift(index)))

        return common

    def _indifferent(self, axis: int, of_tensor: Rows | None) -> bool:
        """Whether a public index walks along copies that are all the same, as vmap lets it."""
        if of_tensor is not None or self._tensor.shape[axis] != self._operands.count:
            return False

        self._operands.looked = True
        return uniform(self._tensor, Rows(axis), self._operands.count)

    def _of_tensor(self, rows: Rows, index: Tensor | None) -> Rows:
        """Where records of the tensor are in the result, if this index is along their axis."""
        if index is not None:
            walk = _walked(self._operands, index, rows, self._tensor.shape[rows.dim])
            return walk.at(walk.dim + self._shift(index))

        # Axes that are not indexed stay in their order, around the block.
        before = sum(axis not in self._indices for axis in range(rows.dim))
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

    subscript = _Subscript(operands, tensor, [*[None] * dim, index])
    return operands.kept(subscript.rows(of_tensor), operands.result)


def _taken(operands: Operands) -> State:
    """Entries of a public table, by their number."""
    operands.require_known("index", public=["self"])
    return operands.kept(operands.require_rows("index"), operands.result)


def _one_hot(operands: Operands) -> State:
    """A new last axis; its length must not be the largest class of the batch."""
    require(operands["num_classes"] >= 0, "as many classes as the records have")
    return operands.kept(operands.require_rows("self"), operands.result)


# --- writing by indices ---


def _put(operands: Operands) -> State:
    """Values are put at indices.

    Into a public tensor, as zeros when going back, records may be put where they could have come
    from.
    """
    operands.require_known("self", "indices", "values")
    target = operands["self"]
    mask = _secret_mask(operands, operands["indices"])
    if mask is not None:
        return _filled_where(operands, mask)

    of_target = operands.rows("self")
    if of_target is not None:
        return _put_into(operands, of_target)

    def put(guess: Rows) -> Rows:
        operands.require_uniform(target, guess)
        return _put_into(operands, guess)

    candidates = guesses(target.shape, operands.require_rows(*operands.tensors()), operands.count)
    placed = _first_known(put, candidates)
    if placed is not None:
        return placed

    # Otherwise values of several records may be added up in one place: the gradient of a public
    # table.
    require(operands["accumulate"], "records in places that are not theirs")
    return SUM


def _first_known(rule: Callable[[Rows], Rows], candidates: Iterable[Rows]) -> Rows | None:
    """Follow a rule for the first place of records that it knows something of, if there is one."""
    for guess in candidates:
        try:
            return rule(guess)
        except Unknown:
            continue

    return None


def _secret_mask(operands: Operands, indices: Sequence[Tensor | None]) -> Tensor | None:
    """The first index that is a mask made of records."""
    masks = filter(_is_mask, indices)
    return next((mask for mask in masks if operands.rows(mask) is not None), None)


def _put_into(operands: Operands, rows: Rows) -> Rows:
    """Return the rows of the target, if every record is put among its own entries."""
    values = operands["values"]
    subscript = _Subscript(operands, operands["self"], operands["indices"])
    frame = subscript.rows(rows)

    # Values are broadcast to what reading there would give.
    operands.require_records(values, frame.at(frame.dim - (subscript.ndim - values.ndim)))
    return operands.kept(rows, operands.result)


def _filled_where(operands: Operands, mask: Tensor) -> State:
    """`x[mask] = number`: entry by entry. With more values, all masks decide who gets which."""
    alone = len(operands["indices"]) == 1 and operands["indices"][0] is mask
    require(alone, "a mask among other indices")
    operands.require_public("values")
    require(operands["values"].numel() == 1, "as many values as all masks have places")
    return operands.kept(operands.matched([operands["self"], mask]), operands.result)


# --- along one axis ---


def _axis(operands: Operands) -> int:
    """The axis along which indices name places; the only one of a single number is its own."""
    axis: int = operands["dim"] % max(1, operands["self"].ndim)
    return axis


def _matched_in_full(operands: Operands, tensors: Sequence[Tensor]) -> Rows:
    """Where records are in tensors that meet from the first index on, and are not broadcast."""
    rows = operands.matched(tensors)
    ndim, length = tensors[0].ndim, rows.fold * operands.count

    # An index may be shorter than its table: then only the first records would be asked.
    in_full = all(tensor.ndim == ndim and tensor.shape[rows.dim] == length for tensor in tensors)
    require(in_full, "a part of the records")
    return rows


def _gathered(operands: Operands) -> State:
    """In a public table records may lie along `dim`, where it is asked by value, not by place."""
    operands.require_known("self", "index")
    dim = _axis(operands)
    if operands.rows("self") is None and operands.has_records_along(dim, ["index"]):
        return operands.kept(operands.require_rows("index"), operands.result)

    rows = _matched_in_full(operands, operands.tensors(["self", "index"]))
    require(rows.dim != dim, _ALONG)
    return operands.kept(rows, operands.result)


def _scattered(operands: Operands) -> State:
    """Entries of `src` go to places of `self` along `dim`, which must be their own record's."""
    operands.require_known("self", "index", "src")
    tensors = operands.tensors(["self", "index", "src"])
    if operands.has_records_along(_axis(operands), tensors):
        require(operands.name == "scatter_add", _ALONG)
        return SUM

    return operands.kept(_matched_in_full(operands, tensors), operands.result)


def _added_by_index(operands: Operands) -> State:
    """What lies at index i of `source` along `dim` goes to index[i] of `self`."""
    dim, tensors = _axis(operands), operands.tensors(["self", "source"])
    if operands.has_records_along(dim, tensors):
        return _added_to_records(operands, dim)

    operands.require_known("self", "source", public=["index", "value"])
    return operands.kept(_matched_in_full(operands, tensors), operands.result)


def _added_to_records(operands: Operands, dim: int) -> State:
    """Going back from an index that named all records in their order; else a sum over records."""
    require(operands.name == "index_add", _ALONG)
    target, source = operands["self"], operands.rows("source")
    of_target = operands.rows("self")
    if source is None or operands.rows("index") is not None:
        return SUM

    def added(guess: Rows) -> Rows:
        walk = _walked(operands, operands["index"], guess, target.shape[dim])
        require(guess.dim == dim and walk.at(dim) == source, "records meet other records")
        operands.require_uniform(target, guess)
        return operands.kept(guess, operands.result)

    candidates = guesses(target.shape, source, operands.count) if of_target is None else [of_target]
    return _first_known(added, candidates) or SUM


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
