"""Rules of operations that put tensors side by side, copy views, or put a view's gradient back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from discreet.training.separation.marks import memory_for, out_of_sight, seen_in
from discreet.training.separation.states import Rows, State
from discreet.training.separation.table.operands import Operands, Rule, Unknown, require, rules_for

__all__ = ["RULES", "guesses"]

_View: TypeAlias = Callable[[Tensor], Any]

# --- side by side ---


def _concatenated(operands: Operands) -> State:
    """Along another axis, records stay; along their own, all of them follow once more."""
    result = operands.result
    # Empty vectors are left out, whatever the rank of the others.
    parts = [part for part in operands["tensors"] if part.ndim == result.ndim]
    rows = operands.require_rows(*parts)
    dim = operands["dim"] % result.ndim
    if rows.dim != dim:
        return operands.kept(operands.matched(parts), result)

    # Every part must hold all records in their order, so that their owners go on in turn.
    outer = sum(_copies(operands, part, rows) for part in parts if part.numel())
    return operands.kept(Rows(dim, rows.inner, outer), result)


def _copies(operands: Operands, part: Tensor, rows: Rows) -> int:
    """How often all records come in a part, as in `rows`; constants alike for all may be theirs."""
    of_part = operands.rows(part)
    if of_part is None:
        outer = part.shape[rows.dim] // (rows.inner * operands.count)
        operands.require_uniform(part, Rows(rows.dim, rows.inner, outer))
        return outer

    in_turn = (of_part.dim, of_part.inner) == (rows.dim, rows.inner)
    require(in_turn, "records beside others")
    return of_part.outer


def _stacked(operands: Operands) -> State:
    """Parts of one shape, along a new axis."""
    dim = operands["dim"] % operands.result.ndim
    rows = operands.matched(operands["tensors"])

    # A new axis at that of the records, or before it, moves it to the right.
    return operands.kept(rows, operands.result, rows.dim + (dim <= rows.dim))


def _repeated(operands: Operands) -> State:
    """Whole copies one after the other along each axis."""
    operands.require_known("self")
    rows, times = operands.require_rows("self"), operands["repeats"]

    # New axes come first. Along their own the records come in turn, as often as there are copies.
    dim = rows.dim + len(times) - operands["self"].ndim
    return operands.kept(Rows(dim, rows.inner, rows.outer * times[dim]), operands.result)


# --- views, as copies and going back ---


def _seen_through(view: _View, tensor: Tensor, rows: Rows, count: int) -> list[State]:
    """States of views of a contiguous tensor whose records are there; only strides matter."""
    memory = memory_for(rows, tensor.stride(), tensor.element_size(), count)
    if memory is None:
        raise Unknown("memory in which records cannot be told apart")

    with out_of_sight():
        views = view(tensor)

    states = []
    for part in (views,) if isinstance(views, Tensor) else views:
        offset, shape, itemsize = part.storage_offset(), tuple(part.shape), part.element_size()
        states.append(seen_in(memory, offset, shape, part.stride(), itemsize))

    return states


def _of_sizes(sizes: Sequence[int], dtype: torch.dtype) -> Tensor:
    with out_of_sight():
        return torch.empty(sizes, dtype=dtype, device="meta")


def _copied_view(operands: Operands) -> list[State]:
    """The copy of a view: what it holds follows from memory, as for the view itself."""
    operands.require_known("self")
    packet = getattr(torch.ops.aten, operands.name.removesuffix("_copy"))
    view = getattr(packet, operands.overload)
    options = {name: operands[name] for name in operands.arguments if name not in ("self", "out")}

    # A copy has the strides of a contiguous tensor, so the view is taken of one without memory.
    stand_in = _of_sizes(operands["self"].shape, operands["self"].dtype)
    rows = operands.require_rows("self")
    return _seen_through(lambda tensor: view(tensor, **options), stand_in, rows, operands.count)


def _put_back(view_name: str, part: str, *arguments: str) -> Rule:
    """A tensor of which an argument, as the gradient of a view, is one view; the rest is zeros.

    Zeros may be anybody's. So the result has its records where they would have to be for the view
    to have them as the argument has.
    """
    packet, overload = view_name.split(".")
    view = getattr(getattr(torch.ops.aten, packet), overload)

    def rule(operands: Operands) -> State:
        operands.require_known(part)
        rows = operands.require_rows(part)
        options = [operands[name] for name in arguments]

        # Guesses are tried: right is one through which the view shows the records of the argument.
        stand_in = _of_sizes(operands.result.shape, torch.float32)
        for guess in guesses(stand_in.shape, rows, operands.count):
            in_view = _seen_through(
                lambda tensor: view(tensor, *options),
                stand_in,
                guess,
                operands.count,
            )
            if in_view == [rows]:
                return operands.kept(guess, operands.result)

        raise Unknown("records in places that are not theirs")

    return rule


def guesses(sizes: Sequence[int], rows: Rows, count: int) -> list[Rows]:
    """Where records may be in a tensor of these sizes, a part of which has them as `rows` says."""
    # Either as in the part; or folded: the entries of each record in a row, or all records in turn.
    candidates = []
    for dim, size in enumerate(sizes):
        if size == rows.fold * count:
            candidates.append(rows.at(dim))
        elif size and size % count == 0:
            fold = size // count
            candidates += [Rows(dim, fold), Rows(dim, 1, fold)]

    return candidates


# --- a part of a tensor replaced ---


def _part_replaced(operands: Operands, kept_axes: Sequence[int]) -> State:
    """A copy of `self` with `src` in a part of it; axis k of `src` is `kept_axes[k]` of `self`."""
    operands.require_known("self", "src")
    target, source = operands["self"], operands["src"]
    of_target, of_source = operands.rows(target), operands.rows(source)
    moved: Rows | None = None
    if of_source is not None:
        require(of_source.dim < len(kept_axes), "a part of the records")
        moved = of_source.at(kept_axes[of_source.dim])

    agree = None in (of_target, moved) or of_target == moved
    require(agree, "records meet other records")
    rows = of_target or moved
    if rows is None or rows.dim not in kept_axes:
        raise Unknown("a part of the records")

    # Either may be public; constants that come among records must be alike for all of them.
    operands.require_records(target, rows)
    operands.require_records(source, rows.at(kept_axes.index(rows.dim)))
    return operands.kept(rows, operands.result)


def _selection_replaced(operands: Operands) -> State:
    ndim = operands["self"].ndim
    gone = operands["dim"] % ndim
    return _part_replaced(operands, [axis for axis in range(ndim) if axis != gone])


def _slice_replaced(operands: Operands) -> State:
    """Along the sliced axis, only if nothing of it is left out."""
    target, source = operands["self"], operands["src"]
    dim = operands["dim"] % target.ndim
    rows = operands.rows("self") or operands.rows("src")
    is_along_records = rows is not None and rows.dim == dim
    is_whole = source.shape[dim] == target.shape[dim]
    require(is_whole or not is_along_records, "a part of the records")
    return _part_replaced(operands, range(target.ndim))


def _diagonal_replaced(operands: Operands) -> State:
    ndim = operands["self"].ndim
    gone = {operands["dim1"] % ndim, operands["dim2"] % ndim}
    return _part_replaced(operands, [axis for axis in range(ndim) if axis not in gone])


_COPIED_VIEWS = """
    alias_copy detach_copy diagonal_copy expand_copy narrow_copy permute_copy select_copy slice_copy
    split_copy split_with_sizes_copy squeeze_copy t_copy transpose_copy unbind_copy unfold_copy
    unsqueeze_copy view_copy view_as_complex_copy view_as_real_copy
"""

RULES: dict[str, Rule] = {
    "cat": _concatenated,
    "stack": _stacked,
    "repeat": _repeated,
    **rules_for(_COPIED_VIEWS, _copied_view),
    "select_backward": _put_back("select.int", "grad_output", "dim", "index"),
    "slice_backward": _put_back("slice.Tensor", "grad_output", "dim", "start", "end", "step"),
    "diag_embed": _put_back("diagonal.default", "self", "offset", "dim1", "dim2"),
    "diagonal_backward": _put_back("diagonal.default", "grad_output", "offset", "dim1", "dim2"),
    "unfold_backward": _put_back("unfold.default", "grad_in", "dim", "size", "step"),
    "select_scatter": _selection_replaced,
    "slice_scatter": _slice_replaced,
    "diagonal_scatter": _diagonal_replaced,
}
"""By name of the operation."""
