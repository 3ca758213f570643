"""Rules of normalisation layers: what the statistics run over must not be records."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from torch import Tensor

from discreet.training.separation.states import PUBLIC, Rows, State
from discreet.training.separation.table.operands import Operands, Rule, require

__all__ = ["RULES"]

_OVER = "normalises over records"
_CHANNELS = (
    "weight",
    "bias",
    "running_mean",
    "running_var",
    "save_mean",
    "save_invstd",
    "save_var",
)


def _require_statistics(operands: Operands, count: int) -> None:
    """Raise `Unknown` unless there are as many statistics, and a gradient as large as the input.

    The kernels, going back, do not look.
    """
    statistics = operands.tensors(["mean", "rstd"])
    gradients = operands.tensors(["grad_out"])
    as_many = all(tensor.numel() == count for tensor in statistics)
    require(as_many, "statistics that do not fit the input")

    as_large = all(gradient.shape == operands["input"].shape for gradient in gradients)
    require(as_large, "a gradient that does not fit the input")


def _row_by_row(operands: Operands) -> Rows:
    """Where records are in input, gradient and statistics of layer and group norms."""
    names = ("grad_out", "input", "mean", "rstd")
    operands.require_known(*names, public=["weight", "bias"])
    return operands.matched(operands.tensors(names))


def _both_ways(operands: Operands, rows: Rows) -> list[State]:
    """States of what a norm gives, forward or going back."""
    return operands.gradients(rows) if operands.has("grad_out") else operands.in_all(rows)


def _over_last_axes(operands: Operands) -> list[State]:
    """Layer and root-mean-square norm, both ways: statistics over the last axes."""
    rows = _row_by_row(operands)

    # A row of statistics for each index of the leading axes, one of which must be the records'.
    leading = operands["input"].ndim - len(operands["normalized_shape"])
    require(rows.dim < leading, _OVER)
    _require_statistics(operands, prod(operands["input"].shape[:leading]))
    return _both_ways(operands, rows)


def _over_groups(operands: Operands) -> list[State]:
    """Group norm, both ways: statistics for each (row of the batch, group of channels)."""
    rows = _row_by_row(operands)

    # The kernel goes by the N that it is given. With another one, a row of its own would be pieces
    # of two records.
    along_batch = rows.dim == 0 and operands["input"].shape[0] == operands["N"]
    require(along_batch, "records in another place than the first axis")
    _require_statistics(operands, operands["N"] * operands["group"])
    return _both_ways(operands, rows)


def _channelwise(operands: Operands, rows: Rows) -> Rows:
    """Where records are in statistics and weights, if each channel belongs to one record.

    So it is in instance norm. They have one axis, that of the channels; if public, as weights that
    are repeated for each record, they must be alike for all.
    """
    along = rows.at(0)
    for tensor in operands.tensors(_CHANNELS):
        # Empty ones are statistics that eval mode did not take.
        if tensor.numel():
            operands.require_records(tensor, along, why="statistics of other records")

    return along


def _statistics(operands: Operands, along: Rows, results: Sequence[Tensor]) -> list[State]:
    """States of results along channels; in eval mode they are empty."""
    return [operands.kept(along, result) if result.numel() else PUBLIC for result in results]


def _batch_norm(operands: Operands) -> list[State]:
    """In eval mode entry by entry; in training statistics over all axes but the channels.

    Running statistics are written in training: what they were, nobody can see any more.
    """
    operands.require_known("input", *_CHANNELS)
    rows = operands.require_rows("input")

    # An operation without the argument says by its name whether it trains.
    trains = operands["training"] if operands.has("training") else operands.name in _TRAINS
    running = operands.tensors(["running_mean", "running_var"])

    # Each channel belongs to one record, and so do its statistics.
    if rows.dim == 1 and not (trains and running):
        along = _channelwise(operands, rows)
        normalised = operands.kept(rows, operands.result)
        return [normalised, *_statistics(operands, along, operands.results[1:])]

    # Statistics of the batch, taken over records: in training, or for want of running ones.
    require(not trains and len(running) == 2, _OVER)
    operands.require_public(*_CHANNELS)
    unused = [PUBLIC] * len(operands.results[1:])
    return [operands.kept(rows, operands.result), *unused]


def _batch_norm_backward(operands: Operands) -> list[State]:
    """Follow the rows as forward does; gradients of weight and bias are sums, unless a channel
    belongs to one record.
    """
    operands.require_known("grad_out", "input", *_CHANNELS, public=["reserve"])
    rows = operands.matched(operands.tensors(["grad_out", "input"]))

    # Gradients of weight and bias lie along the channels too, of which each is one record's.
    if rows.dim == 1:
        along = _channelwise(operands, rows)
        places = (rows, along, along)
        asked_for = zip(operands.asked, operands.results, strict=True)
        return [operands.kept(places[number], result) for number, result in asked_for]

    # The two operations call it by other names: whether statistics were those of the batch.
    trains = operands["train"] or operands["update"]
    running = operands.tensors(["running_mean", "running_var"])
    require(not trains and len(running) == 2, _OVER)
    operands.require_public(*_CHANNELS)
    return operands.gradients(rows)


_TRAINS = frozenset({"_batch_norm_with_update"})

RULES: dict[str, Rule] = {
    "native_layer_norm": _over_last_axes,
    "native_layer_norm_backward": _over_last_axes,
    "_fused_rms_norm": _over_last_axes,
    "_fused_rms_norm_backward": _over_last_axes,
    "native_group_norm": _over_groups,
    "native_group_norm_backward": _over_groups,
    "native_batch_norm": _batch_norm,
    "_native_batch_norm_legit": _batch_norm,
    "_native_batch_norm_legit_no_training": _batch_norm,
    "_batch_norm_with_update": _batch_norm,
    "_batch_norm_no_update": _batch_norm,
    "native_batch_norm_backward": _batch_norm_backward,
    "batch_norm_backward": _batch_norm_backward,
}
"""By name of the operation."""
