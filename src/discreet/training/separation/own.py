"""Operations of our own, in which the proof does not look: compiled kernels, and what is made of gradients at taps.

What such code does is checked by its own tests; here it says which axis of its arguments and results tells the record, as an
entry of the table does for an operation of torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeAlias

from torch import Tensor

from discreet.training.separation.marks import no_functions, out_of_sight
from discreet.training.separation.proof import Proof
from discreet.training.separation.states import Rows

__all__ = ["Declare", "current_proof", "own_operation", "proving"]

Declare: TypeAlias = Callable[[Tensor, int], None]
"""Says of a result in new memory which axis tells the record."""

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
def own_operation(name: str, arguments: Iterable[tuple[Tensor, int]]) -> Iterator[Declare]:
    """Run code in which the proof does not look.

    Args:
        name: of the operation, for messages.
        arguments: every tensor that may depend on records, with the axis that tells the record; all others are public.

    Raises:
        OneByOne: an argument has its records elsewhere, or is a constant with other values for other places.
    """
    proof = current_proof()
    if proof is None or proof.count == 1:
        yield lambda _result, _dim: None
        return
    for tensor, dim in arguments:
        proof.require_argument(tensor, Rows(dim), name)
    declared: list[tuple[Tensor, int]] = []
    with no_functions(), out_of_sight():
        yield lambda result, dim: declared.append((result, dim))
    for result, dim in declared:
        proof.declare(result, Rows(dim))
