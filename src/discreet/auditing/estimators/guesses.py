"""What estimators share: bounds on rates, halves of the canaries, a guard of their coins, and
guesses that are learned as they go.

Rates [ClopperPearson1934]. Legend: X successes in n independent trials with probability p. The
upper bound of X = k at error a is the smallest p with P[Bin(n, p) <= k] <= a; it is below the truth
with probability at most a. The lower bound is the same with successes and failures exchanged.

Rounding: a bound is found by bisection and is always the end at which the inequality was evaluated
and held, the tail made larger by 1 + 2^-30. Assumption B: SciPy's incomplete beta function, which
is that tail, has a relative error below 2^-30 (up to a million trials, against 50 digits: below
2^-40).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from discreet import _validate as check
from discreet.canaries import Scores
from discreet.errors import ParameterError

__all__ = [
    "Half",
    "checked_coins",
    "halves",
    "highest_rate",
    "lowest_count",
    "lowest_rate",
    "wrong_guesses",
]

_Floats = NDArray[np.float64]
_Coins = NDArray[np.bool_]

_ROUNDED_UP = 1.0 + 2.0**-30

# Where the tail underflows.
_TINY = 1e-300
_BISECTIONS = 60

_LEAST_CANARIES = 8

# With fair coins, one audit in a billion is refused.
_ALARM = 1e-9

# Runs of fewer canaries may have the same coins by chance. From here on, even among 10^5 runs two
# have the same with probability below 1e-9.
_ALIKE = 64

# Canaries before the first guess.
_LEARNED_FROM = 32


# --- bounds on a rate ---


def lowest_count(count: int, trials: int, probability: float) -> float:
    """An upper bound on P[Bin(trials, probability) >= count].

    >>> 0.25 <= lowest_count(2, 2, 0.5) < 0.2500001
    True
    """
    if count <= 0:
        return 1.0

    if count > trials:
        return 0.0

    tail = float(scipy.special.betainc(count, trials - count + 1, probability))
    return min(1.0, _ROUNDED_UP * tail + _TINY)


def lowest_rate(successes: int, trials: int, *, error: float) -> float:
    """A probability that is above the true one with probability at most `error`.

    >>> lowest_rate(0, 10, error=0.05), 0.741 < lowest_rate(10, 10, error=0.05) <= 0.05 ** 0.1
    (0.0, True)
    """
    n = check.whole("lowest_rate", "trials", trials, least=0)
    k = check.whole("lowest_rate", "successes", successes, least=0)
    a = check.fraction("lowest_rate", "error", error)
    if k > n:
        raise _too_many("lowest_rate", k, n)

    if k == 0:
        return 0.0

    # Invariant: at `low` the inequality was evaluated and held, or it is 0, where it always does.
    low, high = 0.0, 1.0
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        if lowest_count(k, n, middle) <= a:
            low = middle
        else:
            high = middle

    return low


def highest_rate(successes: int, trials: int, *, error: float) -> float:
    """A probability that is below the true one with probability at most `error`.

    >>> highest_rate(10, 10, error=0.05), 0.258 < highest_rate(0, 10, error=0.05) < 0.26
    (1.0, True)
    """
    if successes > trials:
        raise _too_many("highest_rate", successes, trials)

    # The same bound with successes and failures exchanged; the difference is rounded up.
    failures = lowest_rate(trials - successes, trials, error=error)
    return min(1.0, math.nextafter(1.0 - failures, 2.0))


def _too_many(owner: str, successes: int, trials: int) -> ParameterError:
    expected = f"at most {trials}, the trials"
    return ParameterError(owner=owner, name="successes", expected=expected, got=str(successes))


# --- halves: one to choose on, one to measure on ---


@dataclass(frozen=True, slots=True)
class Half:
    """Scores of canaries that were in and that were out, each rising."""

    ins: _Floats
    outs: _Floats

    def false(self, limit: float) -> int:
        """Count those that were out and are above the limit."""
        return int(self.outs.size - np.searchsorted(self.outs, limit, side="right"))

    def missed(self, limit: float) -> int:
        """Count those that were in and are not above the limit."""
        return int(np.searchsorted(self.ins, limit, side="right"))


def halves(owner: str, scores: Scores) -> tuple[Half, Half]:
    """Split the canaries into two halves, one to choose a limit on and one to measure on.

    Every second canary that was in, and every second that was out, in the order in which they
    came: never by their scores.

    Raises:
        ParameterError: fewer than 2 in or 2 out.

    >>> first, second = halves("example", Scores([1.0, 4.0, 3.0, 2.0], [True, True, False, False]))
    >>> first.ins.tolist(), second.outs.tolist()
    ([1.0], [2.0])
    """
    check.instance(owner, "scores", scores, Scores)
    ins, outs = scores.values[scores.inside], scores.values[~scores.inside]
    if min(ins.size, outs.size) < 2:
        raise ParameterError(
            owner=owner,
            name="scores",
            expected="at least 2 canaries in and 2 out",
            got=f"{ins.size} in, {outs.size} out",
        )

    first = Half(np.sort(ins[::2]), np.sort(outs[::2]))
    second = Half(np.sort(ins[1::2]), np.sort(outs[1::2]))
    return first, second


# --- coins: a guard of the bounds that rest on fair ones ---


def checked_coins(owner: str, scores: Scores) -> Scores:
    """Require coins that may be fair, and know nothing of each other and of the canaries' order.

    Fair coins are out about half of the time, and equal to their neighbour about half of the time.
    Members that are listed before all others, in turn with them, or in another share, are no coins:
    no bound on epsilon follows from them. Nor does one from coins that served in several runs, or
    from scores that were pooled twice: two runs of 64 canaries or more have different coins.

    Raises:
        ParameterError: fewer than 8 canaries, or coins as fair ones are with probability below
            1e-9.
    """
    inside = check.instance(owner, "scores", scores, Scores).inside
    if inside.size < _LEAST_CANARIES:
        expected, got = f"at least {_LEAST_CANARIES} canaries", str(inside.size)
        raise ParameterError(owner=owner, name="scores", expected=expected, got=got)

    # Two counts that fair coins in any fixed order obey: how many are in, and how many are as the
    # one before. The second sees members that are listed first, or by turns.
    members = int(np.count_nonzero(inside))
    repeated = int(np.count_nonzero(inside[1:] == inside[:-1]))
    if not (_may_be_fair(members, inside.size) and _may_be_fair(repeated, inside.size - 1)):
        raise ParameterError(
            owner=owner,
            name="scores",
            expected=(
                "canaries that are in or out by fair coins, in an order that does not depend on "
                "the coins"
            ),
            got=f"{members} in of {inside.size}, {repeated} of them as the one before",
            do=(
                "Draw the coins with Canaries and keep its order. Members and others that were "
                "not drawn so give no bound."
            ),
        )

    _refuse_repeated(owner, scores)
    return scores


def _may_be_fair(heads: int, tosses: int) -> bool:
    """Whether fair coins fall so unevenly with a probability that is not negligible."""
    # Four tails are looked at: two counts, each from both sides.
    return lowest_count(max(heads, tosses - heads), tosses, 0.5) >= _ALARM / 4.0


def _refuse_repeated(owner: str, scores: Scores) -> None:
    """Require that no two runs have the same coins.

    Fair coins of two runs are the same with probability 2^-canaries; coins that count twice are not
    independent.
    """
    # Coins of one run, in the order in which its canaries came, run after run.
    order = np.argsort(scores.trials, kind="stable")
    ends = np.flatnonzero(np.diff(scores.trials[order])) + 1
    runs = np.split(scores.inside[order], ends)
    coins = [run.tobytes() for run in runs if run.size >= _ALIKE]
    if len(set(coins)) < len(coins):
        raise ParameterError(
            owner=owner,
            name="scores",
            expected="new coins in each run",
            got="runs whose coins are all the same",
            do="Draw new Canaries for each run, and pool the scores of a run once.",
        )


# --- guesses, each by what was learned from the canaries before it ---


def wrong_guesses(scores: Scores) -> tuple[int, int]:
    """Count the guesses that were wrong, and all guesses: in if the score is above a limit.

    The limit is the one that would have made the fewest errors on all canaries before. It is
    learned anew whenever their number has doubled; the first 32, or the first half of fewer, are
    only learned from. So nearly all canaries count, and still no canary has a part in its own
    limit: that is all that docs/proofs/auditing.md, section 4, needs.

    >>> wrong_guesses(Scores([1.0, 0.0] * 100, [True, False] * 100))
    (0, 168)
    """
    values, inside = scores.values, scores.inside
    first = start = min(_LEARNED_FROM, values.size // 2)
    wrong = 0
    while start < values.size:
        stop = min(2 * start, values.size)
        limit = _limit(values[:start], inside[:start])
        wrong += int(np.count_nonzero((values[start:stop] > limit) != inside[start:stop]))
        start = stop

    return wrong, values.size - first


def _limit(values: _Floats, inside: _Coins) -> float:
    """The limit with the fewest errors: between two different scores, or beyond all."""
    order = np.argsort(values, kind="stable")
    ranked, members = values[order], inside[order]
    missed = np.append(0, np.cumsum(members))  # of those below the limit
    false = np.append(np.cumsum(~members[::-1])[::-1], 0)  # of those above it

    limits = np.concatenate([[-math.inf], 0.5 * ranked[:-1] + 0.5 * ranked[1:], [math.inf]])
    apart = np.concatenate([[True], ranked[1:] > ranked[:-1], [True]])
    errors = np.where(apart, missed + false, values.size + 1)
    return float(limits[int(np.argmin(errors))])
