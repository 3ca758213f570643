"""Rules of normalisation layers: what the statistics run over must not be records."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from torch import Tensor

from discreet.training.separation.states import PUBLIC, Rows, State
from discreet.training.separation.table.operands import SUM, Operands, Rule, Unknown

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


def _of_weights(operands: Operands, rows: Rows) -> list[State]:
    """Going back: rows for the input, sums over records for weight and bias, where asked for."""
    wanted = [number for number, asked in enumerate(operands["output_mask"]) if asked]
    return [operands.kept(rows, operands.result) if number == 0 else SUM for number in wanted]


def _require_statistics(operands: Operands, count: int) -> None:
    """Raise `Unknown` unless there are as many statistics, and a gradient as large as the input.

    The kernels, going back, do not look.
    """
    statistics = operands.tensors(["mean", "rstd"])
    gradients = operands.tensors(["grad_out"])
    if any(tensor.numel() != count for tensor in statistics):
        raise Unknown("statistics that do not fit the input")
    if any(gradient.shape != operands["input"].shape for gradient in gradients):
        raise Unknown("a gradient that does not fit the input")


def _over_last_axes(operands: Operands) -> list[State]:
    """Layer and root-mean-square norm, both ways: statistics over the last axes."""
    names = ("grad_out", "input", "mean", "rstd")
    operands.require_known(*names, public=["weight", "bias"])
    rows = operands.agreed((tensor, 0) for tensor in operands.tensors(names))
    leading = operands["input"].ndim - len(operands["normalized_shape"])
    if rows.dim >= leading:
        raise Unknown(_OVER)
    _require_statistics(operands, prod(operands["input"].shape[:leading]))
    return _of_weights(operands, rows) if operands.has("grad_out") else operands.in_all(rows)


def _over_groups(operands: Operands) -> list[State]:
    """Group norm, both ways: statistics for each (row of the batch, group of channels)."""
    names = ("grad_out", "input", "mean", "rstd")
    operands.require_known(*names, public=["weight", "bias"])
    rows = operands.agreed((tensor, 0) for tensor in operands.tensors(names))
    if rows.dim != 0 or operands["input"].shape[0] != operands["N"]:
        raise Unknown("records in another place than the first axis")
    _require_statistics(operands, operands["N"] * operands["group"])
    return _of_weights(operands, rows) if operands.has("grad_out") else operands.in_all(rows)


def _channelwise(operands: Operands, rows: Rows) -> Rows:
    """Where records are in statistics and weights, if each channel belongs to one record.

    So it is in instance norm. They have one axis, that of the channels; if public, as weights that
    are repeated for each record, they must be alike for all.
    """
    along = Rows(0, rows.inner, rows.outer)
    for tensor in operands.tensors(_CHANNELS):
        of_tensor = operands.rows(tensor)
        if not tensor.numel():  # statistics that eval mode did not take
            continue
        if of_tensor is None:
            operands.require_uniform(tensor, along)
        elif of_tensor != along:
            raise Unknown("statistics of other records")
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
    trains = operands["training"] if operands.has("training") else operands.name in _TRAINS
    running = operands.tensors(["running_mean", "running_var"])
    if rows.dim == 1 and not (trains and running):
        along = _channelwise(operands, rows)
        normalised = operands.kept(rows, operands.result)
        return [normalised, *_statistics(operands, along, operands.results[1:])]
    if trains or len(running) < 2:
        raise Unknown(_OVER)
    operands.require_public(*_CHANNELS)
    return [operands.kept(rows, operands.result), *(PUBLIC for _ in operands.results[1:])]


def _batch_norm_backward(operands: Operands) -> list[State]:
    """Follow the rows as forward does; gradients of weight and bias are sums, unless a channel
    belongs to one record.
    """
    operands.require_known("grad_out", "input", *_CHANNELS, public=["reserve"])
    rows = operands.agreed([(operands["grad_out"], 0), (operands["input"], 0)])
    if rows.dim == 1:
        along = _channelwise(operands, rows)
        wanted = [number for number, asked in enumerate(operands["output_mask"]) if asked]
        asked_for = zip(wanted, operands.results, strict=True)
        return [operands.kept(along if number else rows, result) for number, result in asked_for]
    trains = operands["train"] or operands["update"]
    if trains or operands["running_mean"] is None or operands["running_var"] is None:
        raise Unknown(_OVER)
    operands.require_public(*_CHANNELS)
    return _of_weights(operands, rows)


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
