"""Rules of tables of vectors that are looked up by the indices of records."""

from __future__ import annotations

from bisect import bisect_right

from discreet.training.separation.states import PUBLIC, Rows, State
from discreet.training.separation.table.operands import INSIDE, SUM, Operands, Rule, require

__all__ = ["RULES"]


def _embedding(operands: Operands) -> State:
    """A row of a public table for each index. The axes of the indices come first."""
    operands.require_known("indices", public=["weight"])
    _require_unscaled(operands)
    return operands.kept(operands.require_rows("indices"), operands.result)


def _require_unscaled(operands: Operands) -> None:
    """Raise `Unknown` if gradients of a table depend on how often all records have an index."""
    scaled = operands["scale_grad_by_freq"]
    require(not scaled, "going back, divides by how often all records have an entry")


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
    fit = indices.outer == 1 and count > 0 and count % operands.count == 0
    require(fit, "bags that do not fit the records")

    # A bag ends where the next one begins. The last one ends with the indices; or, if there is one
    # offset more than bags, at that.
    offsets = operands.values(operands["offsets"]).tolist()
    begins, ends = offsets[:count], [*offsets, operands["indices"].shape[0]][1 : count + 1]

    # The bags of each record, counted from where its own indices begin.
    each = count // operands.count
    patterns = set()
    for record in range(operands.count):
        bags = slice(record * each, (record + 1) * each)
        first = record * indices.inner
        bounds = zip(begins[bags], ends[bags], strict=True)
        patterns.add(tuple((begin - first, end - first) for begin, end in bounds))

    inside = all(0 <= begin <= end <= indices.inner for begin, end in min(patterns))
    alike = len(patterns) == 1 and inside
    require(alike, "a bag of several records, or other bags for other records")
    return Rows(0, each)


def _require_bags(operands: Operands) -> None:
    """Raise `Unknown` unless each index has the number of the bag that it is in by the offsets."""
    named = operands.values(operands["offset2bag"]).tolist()
    offsets = operands.values(operands["offsets"]).tolist()
    by_offsets = [bisect_right(offsets, place) - 1 for place in range(operands["indices"].shape[0])]

    # torch itself counts where there is none.
    require(named in ([], by_offsets), "numbers of bags that the offsets do not give")


def _embedding_bag(operands: Operands) -> list[State]:
    """Sums, means or maxima of rows of a public table, one for each bag."""
    operands.require_known("indices", "per_sample_weights", public=["weight", "offsets"])
    _require_unscaled(operands)
    indices = operands.matched(operands.tensors(["indices", "per_sample_weights"]))
    bags = _bags(operands, operands.result.shape[0], indices)

    # The others: the number of each index' bag, which follows from the offsets; sizes and maxima,
    # not written in every mode.
    unclaimed = [INSIDE] * len(operands.results[2:])
    return [operands.kept(bags, operands.result), PUBLIC, *unclaimed]


def _bag_weights_backward(operands: Operands) -> State:
    """The gradient of each index' weight: its bag's gradient times its row of the public table."""
    operands.require_known("grad", "indices", public=["weight", "offsets", "offset2bag"])
    gradient, indices = operands.require_rows("grad"), operands.require_rows("indices")
    bags = _bags(operands, operands["grad"].shape[0], indices)
    require(bags == gradient, "bags of other records")

    # The kernel goes by the numbers of bags, not by the offsets that were just looked at.
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
