"""Two halves of the canaries: one to choose on, one to measure on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from discreet import _validate as check
from discreet.canaries import Scores
from discreet.errors import ParameterError

__all__ = ["Half", "halves"]


@dataclass(frozen=True, slots=True)
class Half:
    """Scores of canaries that were in and that were out, each rising."""

    ins: NDArray[np.float64]
    outs: NDArray[np.float64]

    def false(self, limit: float) -> int:
        """How many that were out are above the limit."""
        return int(self.outs.size - np.searchsorted(self.outs, limit, side="right"))

    def missed(self, limit: float) -> int:
        """How many that were in are not above the limit."""
        return int(np.searchsorted(self.ins, limit, side="right"))


def halves(owner: str, scores: Scores) -> tuple[Half, Half]:
    """Every other canary that was in, and every other that was out, in the order given: never by
    their scores.

    Raises:
        ParameterError: fewer than 2 in or 2 out.

    >>> first, second = halves("example", Scores([1.0, 4.0, 3.0, 2.0], [True, True, False, False]))
    >>> first.ins.tolist(), second.outs.tolist()
    ([1.0], [2.0])
    """
    check.instance(owner, "scores", scores, Scores)
    ins, outs = scores.values[scores.inside], scores.values[~scores.inside]
    if min(ins.size, outs.size) < 2:
        got = f"{ins.size} in, {outs.size} out"
        raise ParameterError(
            owner=owner, name="scores", expected="at least 2 canaries in and 2 out", got=got
        )
    first, second = (Half(np.sort(ins[start::2]), np.sort(outs[start::2])) for start in (0, 1))
    return first, second
