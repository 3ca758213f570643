"""Guesses of canaries one after the other, each by what was learned from those before it."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from discreet.canaries import Scores

__all__ = ["wrong_guesses"]

_FIRST = 32


def wrong_guesses(scores: Scores) -> tuple[int, int]:
    """How many guesses were wrong, and how many there were: score above a limit, guessed in; else
    out.

    The limit is the one that would have made the fewest errors on all canaries before. It is
    learned anew whenever their number has doubled; the first 32, or the first half of fewer, are
    only learned from. So nearly all canaries count, and
    still no canary has a part in its own limit: that is all that docs/proofs/auditing.md, section
        4, needs.

    >>> wrong_guesses(Scores([1.0, 0.0] * 100, [True, False] * 100))
    (0, 168)
    """
    values, inside = scores.values, scores.inside
    first = start = min(_FIRST, values.size // 2)
    wrong = 0
    while start < values.size:
        stop = min(2 * start, values.size)
        limit = _limit(values[:start], inside[:start])
        wrong += int(np.count_nonzero((values[start:stop] > limit) != inside[start:stop]))
        start = stop
    return wrong, values.size - first


def _limit(values: NDArray[np.float64], inside: NDArray[np.bool_]) -> float:
    """The limit with the fewest errors: between two different scores, or beyond all."""
    order = np.argsort(values, kind="stable")
    ranked, members = values[order], inside[order]
    missed = np.append(0, np.cumsum(members))  # of those below the limit
    false = np.append(np.cumsum(~members[::-1])[::-1], 0)  # of those above it
    limits = np.concatenate([[-math.inf], 0.5 * ranked[:-1] + 0.5 * ranked[1:], [math.inf]])
    apart = np.concatenate([[True], ranked[1:] > ranked[:-1], [True]])
    return float(limits[int(np.argmin(np.where(apart, missed + false, values.size + 1)))])
