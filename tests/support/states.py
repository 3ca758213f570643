"""What one expression makes of the records of a pass, as its proof sees it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from discreet.training.separation.doors import Doors
from discreet.training.separation.proof import Proof
from discreet.training.separation.states import Mixed, OneByOne, Rows, State

B = 4
"""Records of a pass; other sizes of these tests differ from it."""


def numbers(*sizes: int) -> Tensor:
    """Fixed numbers of this shape."""
    return torch.randn(sizes, generator=torch.Generator().manual_seed(0))


def state_of(
    function: Callable[[Tensor], Tensor], batch: Tensor, rows: Rows | None = None
) -> State:
    """The state of what `function` makes of a batch of `B` records, along the first axis or as
    `rows` says.
    """
    proof = Proof(B)
    own = proof.begin(batch, Rows(0) if rows is None else rows)
    try:
        with proof, Doors(proof):
            result = function(own)
        proof.check()
    except OneByOne as reason:
        return Mixed.of(str(reason))
    return proof.state(result)


def assert_follows(
    function: Callable[[Tensor], Tensor],
    batch: Tensor,
    expected: Rows,
    rows: Rows | None = None,
) -> None:
    """Records stay apart, and the result has them where `expected` says."""
    assert state_of(function, batch, rows) == expected


def assert_joins(
    function: Callable[[Tensor], Tensor], batch: Tensor, words: str = "", rows: Rows | None = None
) -> None:
    """Nothing is claimed of the result; the reason has these words."""
    state = state_of(function, batch, rows)
    assert isinstance(state, Mixed)
    assert words in state.why
