"""Rules of operations that work entry by entry, after their operands were broadcast to one shape.

An entry of the result is a function of the entries in the same place. So records stay where they
are, operands with records must have them in the same place, and public operands must be the same
for every record.
"""

from __future__ import annotations

from discreet.training.separation.states import State
from discreet.training.separation.table.operands import (
    Operands,
    Rule,
    require,
    rules_for,
    same_rank,
    tensors_among,
)

__all__ = ["RULES"]


def _pointwise(operands: Operands) -> list[State]:
    """Entry by entry. Lists of tensors meet pair by pair, in shapes of their own: not known."""
    lists = [value for value in operands.arguments.values() if isinstance(value, (list, tuple))]
    single = bool(operands.results) and not tensors_among(lists)
    require(single, "lists of tensors, or no result")

    return operands.in_all(operands.aligned(operands.tensors(), operands.result.ndim))


def _drawn(operands: Operands) -> list[State]:
    """Random numbers by the entries in the same place: one draw for each, whatever it holds."""
    return _pointwise(operands)


def _drawn_up_to(operands: Operands) -> list[State]:
    """Random whole numbers, of which a tensor may say how large: then nothing is known."""
    operands.require_known("self")
    return _pointwise(operands)


def _copied(operands: Operands) -> list[State]:
    """What `self` held does not matter; but constants among records must be alike for all."""
    target, source = operands["self"], operands["src"]

    # `src` is broadcast to `self`, which keeps its shape.
    if operands.rows("src") is not None:
        return operands.in_all(operands.aligned([source], target.ndim))

    # Constants that take the place of records count as theirs, which is less than being public.
    rows = operands.require_rows("self")
    operands.require_uniform(source, rows.at(rows.dim + source.ndim - target.ndim))
    return operands.in_all(rows)


def _loss(operands: Operands) -> list[State]:
    """A loss entry by entry: only without a reduction."""
    require(operands["reduction"] == 0, "a loss over all records")
    return _pointwise(operands)


def _sought_in_list(operands: Operands) -> list[State]:
    """Each entry is sought in a public list.

    With `assume_unique`, equal entries of two records would be taken for one in the list.
    """
    name = "elements" if operands.has("elements") else "self"
    operands.require_known(name, public=["test_elements", "boundaries"])
    require(not operands["assume_unique"], "entries of all records are taken for different")
    return operands.in_all(operands.require_rows(name))


def _sought_in_sorted(operands: Operands) -> list[State]:
    """A sequence of one axis is for all entries, of several for those with its leading indices."""
    sequence = operands["sorted_sequence"]
    if sequence.ndim == 1:
        operands.require_known("self", public=["sorted_sequence", "sorter"])
        return operands.in_all(operands.require_rows("self"))

    names = ("sorted_sequence", "self", "sorter")
    operands.require_known(*names)
    tensors = operands.tensors(names)
    require(same_rank(tensors), "values and sequences of different rank")

    # Along the last axis a sequence is searched from end to end: it must be of one record.
    rows = operands.matched(tensors)
    require(rows.dim != sequence.ndim - 1, "searched among records")
    return operands.in_all(rows)


# Deterministic, but without torch's tag "pointwise", in some overloads at least.
_UNTAGGED = """
    _to_copy zero fill masked_fill complex polar floor_divide rsub isreal __and__ __or__ __xor__
    hardswish hardswish_backward hardsigmoid_backward hardtanh_backward elu_backward
    leaky_relu_backward softplus_backward log_sigmoid_forward log_sigmoid_backward mish_backward
    softshrink_backward hardshrink_backward rrelu_with_noise_backward
    _prelu_kernel _prelu_kernel_backward
    infinitely_differentiable_gelu_backward _standard_gamma_grad
"""

_LOSSES = """
    mse_loss smooth_l1_loss huber_loss soft_margin_loss
    binary_cross_entropy binary_cross_entropy_with_logits
    mse_loss_backward smooth_l1_loss_backward huber_loss_backward soft_margin_loss_backward
    binary_cross_entropy_backward
"""

RULES: dict[str, Rule] = {
    "pointwise": _pointwise,
    **rules_for(_UNTAGGED, _pointwise),
    **rules_for("bernoulli normal native_dropout", _drawn),
    "randint_like": _drawn_up_to,
    **rules_for(_LOSSES, _loss),
    "copy": _copied,
    "bucketize": _sought_in_list,
    "isin": _sought_in_list,
    "searchsorted": _sought_in_sorted,
}
"""By name of the operation; `pointwise` is for all that torch tags so."""
