"""Operations in which the proof does not look.

Compiled kernels of our own, and what is made of gradients at taps: what such code does is checked
by its own tests; here it says where the records are in its arguments and results, as an entry of
the table does for an operation of torch.

Operators of torch that are given functions, such as `flex_attention`: what the functions do is not
followed, so records are computed one by one, each in a process of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, TypeAlias

from torch import Tensor
from torch._ops import _higher_order_ops

from discreet.training.separation.marks import no_functions, out_of_sight
from discreet.training.separation.proof import Proof
from discreet.training.separation.states import OWN, Rows
from discreet.training.separation.table.operands import tensors_among

__all__ = ["Declare", "current_proof", "own_operation", "proving"]

Declare: TypeAlias = Callable[[Tensor, Rows], None]
"""Says of a result in new memory where its records are."""

_current: ContextVar[Proof | None] = ContextVar("proof", default=None)


@contextmanager
def proving(proof: Proof) -> Iterator[None]:
    """For the time of a pass, `current_proof` gives its proof."""
    before = _current.set(proof)
    try:
        yield
    finally:
        _current.reset(before)


def current_proof() -> Proof | None:
    """The proof of the pass that is running; None if there is none."""
    return _current.get()


@contextmanager
def own_operation(name: str, arguments: Iterable[tuple[Tensor, Rows]]) -> Iterator[Declare]:
    """Run code in which the proof does not look.

    Args:
        name: of the operation, for messages.
        arguments: every tensor that may depend on records, and where its records are; all others
            are public.

    Raises:
        OneByOne: an argument has its records elsewhere, or is a constant with other values for
            other places.
    """
    proof = current_proof()
    if proof is None or proof.count == 1:
        yield lambda _result, _rows: None
        return

    # A constant among them must be the same for every record.
    for tensor, rows in arguments:
        proof.require_rows(tensor, rows, f"an argument of {name}")

    # What the code computes is not followed, and marked when it is done.
    declared: list[tuple[Tensor, Rows]] = []
    with no_functions(), out_of_sight():
        yield lambda result, rows: declared.append((result, rows))

    for result, rows in declared:
        proof.declare(result, rows)


_GIVEN_FUNCTIONS = (
    *("associative_scan", "cond", "flex_attention", "flex_attention_backward", "map_impl", "scan"),
    *("while_loop", "while_loop_stack_output"),
)


def _unfollowed(operator: Any, proof: Proof, *args: Any) -> Any:
    """Called by torch in the place of an operator that is given functions, with the mode of the
    proof switched off.
    """
    # It raises, but where Python may see the one record, whose own all results are then.
    proof.fail(f"{operator.name()} is given functions, which cannot be followed")
    results = operator(*args)
    for result in tensors_among(results):
        proof.declare(result, OWN)

    return results


# Registered for the class of the mode: otherwise torch would refuse these operators under it.
for _operator in filter(None, map(_higher_order_ops.get, _GIVEN_FUNCTIONS)):
    _operator.py_impl(Proof)(partial(_unfollowed, _operator))
