"""Rules of losses that do not work entry by entry; only without a reduction, one for each row."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from discreet.training.separation.states import Rows, State
from discreet.training.separation.table.operands import INSIDE, Operands, Rule, Unknown

__all__ = ["RULES"]


def _by_class(rank: int, *names: str) -> Rule:
    """Losses of scores (N, classes, ...) and targets (N, ...), both ways: row by row.

    Args:
        rank: least number of axes of the scores; with one less there is no batch.
        names: operands with the batch along their first axis.
    """

    def rule(operands: Operands) -> list[State]:
        operands.require_known(*names, public=["weight", "total_weight"])
        if operands["reduction"] != 0:
            raise Unknown("a loss over all records")
        if operands["self"].ndim < rank:
            raise Unknown("scores without a batch axis")
        rows = operands.agreed((tensor, 0) for tensor in operands.tensors(names))
        if rows.dim != 0:
            raise Unknown("records in another place than the first axis")
        return operands.where_fitting(rows)

    return rule


def _require_alike(lengths: Tensor | Sequence[int]) -> None:
    """Lengths given as numbers belong to places of the batch, so they must all be the same."""
    if not isinstance(lengths, Tensor) and len(set(lengths)) > 1:
        raise Unknown("other lengths for other places of a batch")


def _ctc(operands: Operands, *more: str) -> Rows:
    """Connectionist temporal classification: sequences (time, N, classes), targets (N, length)."""
    axes = {
        "log_probs": 1,
        "targets": 0,
        "input_lengths": 0,
        "target_lengths": 0,
        **dict.fromkeys(more, 0),
    }
    operands.require_known(*axes, public=["log_alpha"])
    if operands["targets"].ndim != 2 or operands["log_probs"].ndim != 3:
        raise Unknown("targets one after the other, or no batch axis")
    _require_alike(operands["input_lengths"])
    _require_alike(operands["target_lengths"])
    placed = [(operands[name], -axis) for name, axis in axes.items()]
    tensors = [(tensor, shift) for tensor, shift in placed if isinstance(tensor, Tensor)]
    rows = operands.agreed(tensors)
    if rows.dim != 0:
        raise Unknown("records in another place than the batch axis")
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
