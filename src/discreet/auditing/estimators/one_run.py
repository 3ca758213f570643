"""Many canaries in one run: a lower bound on epsilon that holds whatever the mechanism is.

Legend: m canaries with fair coins; r of them are guessed in or out from what was released, v of the
guesses are right; q = e^eps / (1 + e^eps). If the mechanism is (eps, delta)-differentially private,
then

    P[v or more are right] <= P[Bin(r, q) >= v] + m delta / (1 + e^eps) * (1/r) sum_{n<r} g(n),
    g(n) = the largest P[Bin(n, 1-q) = w] over w <= r - v.

The first term (chance) is that of [Steinke2023]; the second (leak) is our own, proven in
docs/proofs/auditing.md. Numbers of guesses are chosen from what was released, so each term has a
share of the error probability that is fixed in advance. The leak stays a hurdle: it is at least m
delta / (1 + e^eps) / r, so few guesses among more than 1/delta canaries conclude nothing.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import scipy
from numpy.typing import NDArray

from discreet import _validate as check
from discreet.auditing.estimate import Estimate
from discreet.auditing.estimators.guesses import checked_coins
from discreet.canaries import Scores

__all__ = ["one_run", "p_value"]

_Counts: TypeAlias = NDArray[np.int64]
_Floats: TypeAlias = NDArray[np.float64]

# More than all rounding together, for up to ten million canaries.
_UP = 1.0 + 2.0**-20

# Ends of cells of n, as shares of r: g falls, so that its sum over a cell is at most its first
# value times the width of the cell.
_CELLS = np.linspace(0.0, 1.0, 33) ** 4

_FURTHEST = 40.0
_STEPS = 40

# Steps that suffice to compare numbers of guesses.
_ROUGH = 12
_CHOICES = 12

# The best of many on one half is partly luck: it has to be so much surer there.
_CAUTION = 0.1

# Share of the error probability that the second term may have.
_LEAK = 0.25


def one_run(scores: Scores, *, delta: float, confidence: float = 0.95) -> Estimate:
    """A lower bound on epsilon from canaries of one run, or of several.

    Guarantee: as of `Estimate`, for every mechanism and every score, if the coins were fair and
    independent. Half of the canaries, every other one, choose how many of the highest scores are
    guessed in and of the lowest out; the other half is counted. Equal scores on both sides of the
    limit are taken as the wrong guesses among them.

    Args:
        scores: at least 8; sensitive.
        delta: of the claim, in [0, 1).
        confidence: in (0, 1).

    >>> import numpy as np
    >>> coins = np.random.default_rng(1).random(2000) < 0.5
    >>> all_known = Scores(np.where(coins, 1.0, -1.0), coins)
    >>> one_run(all_known, delta=1e-5).lower > 4.0
    True
    """
    checked_coins("one_run", scores)
    level = check.fraction("one_run", "delta", delta, zero=True)
    sure = check.fraction("one_run", "confidence", confidence)
    error = 1.0 - sure

    # Every number of guesses is tried on one half, and the best of them once on the other: there
    # nothing was chosen, and the whole error probability is its own.
    chosen, counted = _Ranked(scores, 0), _Ranked(scores, 1)
    ins, outs = _choices(counted.canaries)
    rough = _bounds(
        ins + outs,
        chosen.right(ins, outs),
        counted.canaries,
        level,
        error,
        steps=_ROUGH,
        caution=_CAUTION,
    )

    # Where no number of guesses promises anything, nothing is counted, and 0 says nothing.
    lower = 0.0
    if rough.any():
        best = slice(int(np.argmax(rough)), int(np.argmax(rough)) + 1)
        ins, outs = ins[best], outs[best]
        lower = float(
            _bounds(
                ins + outs, counted.right(ins, outs), counted.canaries, level, error, steps=_STEPS
            )[0]
        )

    return Estimate(method="one run", lower=lower, delta=level, confidence=sure)


class _Ranked:
    """Every other canary, ranked by its score."""

    __slots__ = ("_from_above", "_from_below", "canaries")

    def __init__(self, scores: Scores, first: int) -> None:
        values, inside = scores.values[first::2], scores.inside[first::2]
        # Among equal scores the wrong guesses come first, from above and from below.
        above, below = np.lexsort((inside, -values)), np.lexsort((~inside, values))
        self._from_above = np.concatenate([[0], np.cumsum(inside[above])])
        self._from_below = np.concatenate([[0], np.cumsum(~inside[below])])
        self.canaries = values.size

    def right(self, ins: _Counts, outs: _Counts) -> _Counts:
        """Count the right guesses, at least, if so many of the highest scores are guessed in and
        so many of the lowest out.
        """
        counts: _Counts = self._from_above[ins] + self._from_below[outs]
        return counts


def _choices(canaries: int) -> tuple[_Counts, _Counts]:
    """List the numbers of guesses (in, out) to choose among: pairs of a geometric list."""
    # Half of them at most on each side, so that no canary is guessed both in and out.
    sizes = np.unique(np.geomspace(1, canaries // 2, _CHOICES).astype(np.int64))
    ins, outs = np.meshgrid(np.append(0, sizes), np.append(0, sizes))
    has_guesses = (ins + outs) > 0
    return ins[has_guesses], outs[has_guesses]


def _bounds(
    guesses: _Counts,
    right: _Counts,
    canaries: int,
    delta: float,
    error: float,
    *,
    steps: int,
    caution: float = 1.0,
) -> _Floats:
    """Find for each pair of counts an epsilon that they refute, or 0.

    For it both terms were computed and are within their shares of `error`.
    """
    # Without delta nothing can leak, and chance has all of the error probability. Invariant of the
    # bisection: `low` was evaluated and refuted, or is 0.
    share = 0.0 if delta == 0.0 else _LEAK
    low, high = np.zeros(guesses.size), np.full(guesses.size, _FURTHEST)
    for _ in range(steps):
        middle = 0.5 * (low + high)
        chance, leak = p_value(guesses, right, canaries=canaries, epsilon=middle, delta=delta)
        refuted = (chance <= (1.0 - share) * error * caution) & (leak <= share * error)
        low, high = np.where(refuted, middle, low), np.where(refuted, high, middle)

    return low


def p_value(
    guesses: _Counts, right: _Counts, *, canaries: int, epsilon: _Floats, delta: float
) -> tuple[_Floats, _Floats]:
    """Bound the probability of so many right guesses or more, by a sum of two: (chance, leak).

    Each is rounded up.

    Args:
        guesses: r, from 1 to `canaries`; one for each case.
        right: v, from 0 to r.
        canaries: m.
        epsilon: at least 0; one for each case.
        delta: in [0, 1).

    >>> four = np.array([4])
    >>> chance, leak = p_value(four, four, canaries=4, epsilon=np.zeros(1), delta=0.0)
    >>> chance.round(4).tolist(), leak.tolist()    # 1/2^4
    ([0.0625], [0.0])
    """
    # 1 - q by its own formula: at a large epsilon the difference would have no digits left.
    q, not_q = scipy.special.expit(epsilon), scipy.special.expit(-epsilon)
    tail = scipy.special.betainc(np.maximum(right, 1), guesses - right + 1, q)
    chance = np.where(right > 0, tail, 1.0)
    leak = np.zeros(guesses.size)
    if delta > 0.0:
        leak = canaries * delta * not_q * _largest(guesses, right, q, not_q)

    return chance * _UP, leak * _UP


def _largest(guesses: _Counts, right: _Counts, q: _Floats, not_q: _Floats) -> _Floats:
    """The mean of g(n) over n < r, at least.

    Its w is the mode of Bin(n, 1-q), or the nearest to it that is allowed.
    """
    ends = np.floor(guesses[:, np.newaxis] * _CELLS)
    n, q, not_q = ends[:, :-1], q[:, np.newaxis], not_q[:, np.newaxis]
    mode = np.floor((n + 1.0) * not_q)
    w = np.minimum(mode, np.minimum((guesses - right)[:, np.newaxis], n))

    # The logarithm of the binomial probability of w in n.
    log_n, log_w, log_rest = (scipy.special.gammaln(k + 1.0) for k in (n, w, n - w))
    ways = log_n - log_w - log_rest
    g = np.exp(ways + scipy.special.xlogy(w, not_q) + scipy.special.xlogy(n - w, q))
    mean: _Floats = np.sum(g * np.diff(ends), axis=1) / guesses
    return mean
