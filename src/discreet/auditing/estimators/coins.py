"""Are these coins? A guard of the bounds that rest on fair coins."""

from __future__ import annotations

import numpy as np

from discreet import _validate as check
from discreet.auditing.estimators.intervals import at_least
from discreet.canaries import Scores
from discreet.errors import ParameterError

__all__ = ["checked_coins"]

_LEAST = 8
_ALARM = 1e-9  # with fair coins, one audit in a billion is refused
_ALIKE = 64  # canaries of a run: even among 10^5 runs two have the same coins with probability below 1e-9


def checked_coins(owner: str, scores: Scores) -> Scores:
    """The scores, if their coins may be fair ones that know nothing of each other and of the order
    of the canaries.

    Fair coins are out about half of the time, and equal to their neighbour about half of the time.
    Members that are listed
    before all others, in turn with them, or in another share, are no coins: no bound on epsilon
        follows from them. Nor from
    coins that served in several runs, or scores that were pooled twice: two runs of 64 canaries or
        more have different coins.

    Raises:
        ParameterError: fewer than 8 canaries, or coins as fair ones are with probability below
            1e-9.
    """
    inside = check.instance(owner, "scores", scores, Scores).inside
    if inside.size < _LEAST:
        raise ParameterError(
            owner=owner, name="scores", expected=f"at least {_LEAST} canaries", got=str(inside.size)
        )
    same = int(np.count_nonzero(inside[1:] == inside[:-1]))
    for count, trials in ((int(np.count_nonzero(inside)), inside.size), (same, inside.size - 1)):
        if at_least(max(count, trials - count), trials, 0.5) < _ALARM / 4.0:
            raise ParameterError(
                owner=owner,
                name="scores",
                expected=(
                    "canaries that are in or out by fair coins, in an order that does not depend "
                    "on the coins"
                ),
                got=(
                    f"{int(np.count_nonzero(inside))} in of {inside.size}, {same} of them as the "
                    "one before"
                ),
                do=(
                    "Draw the coins with Canaries and keep its order. Members and others that "
                    "were not drawn so give no bound."
                ),
            )
    _refuse_repeated(owner, scores)
    return scores


def _refuse_repeated(owner: str, scores: Scores) -> None:
    """Fair coins of two runs are the same with probability 2^-canaries; coins that count twice are
    not independent.
    """
    order = np.argsort(scores.trials, kind="stable")
    ends = np.flatnonzero(np.diff(scores.trials[order])) + 1
    runs = [
        coins.tobytes() for coins in np.split(scores.inside[order], ends) if coins.size >= _ALIKE
    ]
    if len(set(runs)) < len(runs):
        raise ParameterError(
            owner=owner,
            name="scores",
            expected="new coins in each run",
            got="runs whose coins are all the same",
            do="Draw new Canaries for each run, and pool the scores of a run once.",
        )
