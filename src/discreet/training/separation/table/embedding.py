"""Rules of tables of vectors that are looked up by the indices of records."""

from __future__ import annotations

from bisect import bisect_right

from discreet.training.separation.states import PUBLIC, Rows, State
from discreet.training.separation.table.operands import INSIDE, SUM, Operands, Rule, Unknown

__all__ = ["RULES"]


def _embedding(operands: Operands) -> State:
    """A row of a public table for each index. The axes of the indices come first."""
    operands.require_known("indices", public=["weight"])
    if operands["scale_grad_by_freq"]:
        raise Unknown("going back, divides by how often all records have an entry")
    return operands.kept(operands.require_rows("indices"), operands.result)


def _summed(_: Operands) -> State:
    """The gradient of a table: a sum over all indices."""
    return SUM


def _bags(operands: Operands, count: int, indices: Rows) -> Rows:
    """Where records are along the bags of indices, from the public offsets where bags begin.

    Every record must have the same bags: as many, each as far from where the record's own indices
    begin. Otherwise what happens to a record would depend on its place.

    Args:
        operands: with `offsets` and `indices`, one axis each.
        count: of the bags.
        indices: where records are along the indices.
    """
    if indices.outer != 1 or not count or count % operands.count:
        raise Unknown("bags that do not fit the records")
    offsets = operands.values(operands["offsets"]).tolist()
    begins, ends = offsets[:count], offsets[1:]
    if len(offsets) == count:  # otherwise the last offset is where the last bag ends
        ends = [*ends, operands["indices"].shape[0]]
    each = count // operands.count
    patterns = set()
    for record in range(operands.count):
        bags = slice(record * each, (record + 1) * each)
        first = record * indices.inner
        bounds = zip(begins[bags], ends[bags], strict=True)
        patterns.add(tuple((begin - first, end - first) for begin, end in bounds))
    inside = all(0 <= begin <= end <= indices.inner for begin, end in min(patterns))
    if len(patterns) != 1 or not inside:
        raise Unknown("a bag of several records, or other bags for other records")
    return Rows(0, each)


def _require_bags(operands: Operands) -> None:
    """Raise `Unknown` unless each index has the number of the bag that it is in by the offsets."""
    named = operands.values(operands["offset2bag"]).tolist()
    offsets = operands.values(operands["offsets"]).tolist()
    places = range(operands["indices"].shape[0])
    # torch itself counts where there is none.
    if named and named != [bisect_right(offsets, place) - 1 for place in places]:
        raise Unknown("numbers of bags that the offsets do not give")


def _embedding_bag(operands: Operands) -> list[State]:
    """Sums, means or maxima of rows of a public table, one for each bag."""
    operands.require_known("indices", "per_sample_weights", public=["weight", "offsets"])
    if operands["scale_grad_by_freq"]:
        raise Unknown("going back, divides by how often all records have an entry")
    weighted = operands.tensors(["indices", "per_sample_weights"])
    indices = operands.agreed((tensor, 0) for tensor in weighted)
    bags = _bags(operands, operands.result.shape[0], indices)
    # The others: the number of each index' bag, which follows from the offsets; sizes and maxima,
    # not written in every mode.
    bookkeeping: list[State] = [PUBLIC, *(INSIDE for _ in operands.results[2:])]
    return [operands.kept(bags, operands.result), *bookkeeping]


def _bag_weights_backward(operands: Operands) -> State:
    """The gradient of each index' weight: its bag's gradient times its row of the public table."""
    operands.require_known("grad", "indices", public=["weight", "offsets", "offset2bag"])
    gradient, indices = operands.require_rows("grad"), operands.require_rows("indices")
    if _bags(operands, operands["grad"].shape[0], indices) != gradient:
        raise Unknown("bags of other records")
    _require_bags(operands)
    return operands.kept(indices, operands.result)


RULES: dict[str, Rule] = {
    "embedding": _embedding,
    "_embedding_bag": _embedding_bag,
    "_embedding_bag_forward_only": _embedding_bag,
    "_embedding_bag_per_sample_weights_backward": _bag_weights_backward,
    **dict.fromkeys(
        (
            "embedding_backward",
            "embedding_dense_backward",
            "embedding_sparse_backward",
            "_embedding_bag_backward",
            "_embedding_bag_dense_backward",
        ),
        _summed,
    ),
}
"""By name of the operation."""
