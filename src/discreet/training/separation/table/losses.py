"""Rules of losses that do not work entry by entry; only without a reduction, one for each row."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from discreet.training.separation.states import Rows, State
from discreet.training.separation.table.operands import INSIDE, Operands, Rule, require

__all__ = ["RULES"]


def _by_class(rank: int, *names: str) -> Rule:
    """Losses of scores (N, classes, ...) and targets (N, ...), both ways: row by row.

    Args:
        rank: least number of axes of the scores; with one less there is no batch.
        names: operands with the batch along their first axis.
    """

    def rule(operands: Operands) -> list[State]:
        operands.require_known(*names, public=["weight", "total_weight"])
        require(operands["reduction"] == 0, "a loss over all records")
        require(operands["self"].ndim >= rank, "scores without a batch axis")

        # Total weights are no rows: without a reduction nobody reads them.
        return operands.where_fitting(operands.matched_along_first(operands.tensors(names)))

    return rule


def _require_alike(lengths: Tensor | Sequence[int]) -> None:
    """Raise `Unknown` if lengths are numbers, one for each place of the batch, and differ."""
    alike = isinstance(lengths, Tensor) or len(set(lengths)) < 2
    require(alike, "other lengths for other places of a batch")


def _ctc(operands: Operands, *more: str) -> Rows:
    """Connectionist temporal classification: sequences (time, N, classes), targets (N, length)."""
    # The axis of the batch in each of them.
    axes = {
        "log_probs": 1,
        "targets": 0,
        "input_lengths": 0,
        "target_lengths": 0,
        **dict.fromkeys(more, 0),
    }
    operands.require_known(*axes, public=["log_alpha"])
    batched = operands["targets"].ndim == 2 and operands["log_probs"].ndim == 3
    require(batched, "targets one after the other, or no batch axis")
    _require_alike(operands["input_lengths"])
    _require_alike(operands["target_lengths"])

    # Each by the number of axes before its batch axis, which is then the first of what is common.
    placed = [(tensor, -axes[name]) for name in axes for tensor in operands.tensors([name])]
    rows = operands.agreed(placed)
    require(rows.dim == 0, "records in another place than the batch axis")
    return rows


def _ctc_loss(operands: Operands) -> list[State]:
    """The shape of the second result depends on the longest target: only the backward sees it."""
    return [operands.kept(_ctc(operands), operands.result), INSIDE]


def _ctc_loss_backward(operands: Operands) -> State:
    return operands.kept(_ctc(operands, "grad", "neg_log_likelihood"), operands.result, 1)


RULES: dict[str, Rule] = {
    "nll_loss_forward": _by_class(2, "self", "target"),
    "nll_loss2d_forward": _by_class(4, "self", "target"),
    "multi_margin_loss": _by_class(2, "self", "target"),
    "multilabel_margin_loss_forward": _by_class(2, "self", "target"),
    "nll_loss_backward": _by_class(2, "grad_output", "self", "target"),
    "nll_loss2d_backward": _by_class(4, "grad_output", "self", "target"),
    "multi_margin_loss_backward": _by_class(2, "grad_output", "self", "target"),
    "multilabel_margin_loss_backward": _by_class(2, "grad_output", "self", "target", "is_target"),
    "_ctc_loss": _ctc_loss,
    "_ctc_loss_backward": _ctc_loss_backward,
}
"""By name of the operation."""
