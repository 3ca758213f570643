"""The classical audit: independent runs, one canary each, rates with exact intervals
[Jagielski2020; Nasr2023].

Legend: x the false-positive rate, h the hit rate of "score above a limit". A mechanism that is
(eps, delta)-differentially private has h <= delta + e^eps x and, for the opposite guess, 1 - x <=
delta + e^eps (1 - h). So

    eps >= log((h - delta) / x)    and    eps >= log((1 - x - delta) / (1 - h)).
"""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from discreet import _validate as check
from discreet.auditing.estimate import Estimate
from discreet.auditing.estimators.guesses import Half, halves, highest_rate, lowest_rate
from discreet.canaries import Scores
from discreet.errors import ParameterError

__all__ = ["threshold"]

_Floats: TypeAlias = NDArray[np.float64]

_DOWN = 1.0 - 2.0**-50
_LEAST = 8


def threshold(scores: Scores, *, delta: float, confidence: float = 0.95) -> Estimate:
    """Bound epsilon from below by runs of one experiment, each with a canary that is in or out.

    Guarantee: as of `Estimate`, for every mechanism and every score, if the runs are independent
    and the same but for the canary. The limit, and which of the two inequalities is used, are
    chosen on one half of the runs; the other half is measured; the two rates share the probability
    of an error.

    Args:
        scores: of runs with one canary each, at least 8; sensitive.
        delta: of the claim, in [0, 1).
        confidence: in (0, 1).

    Raises:
        ParameterError: canaries shared a run, so that their scores are not independent, or there
            are too few.

    >>> rng = np.random.default_rng(1)
    >>> coins = rng.random(4000) < 0.5
    >>> scores = Scores(coins + 0.5 * rng.normal(size=4000), coins, trials=np.arange(4000))
    >>> 2.0 < threshold(scores, delta=1e-5).lower < 9.9     # epsilon of noise multiplier 1/2
    True
    """
    level = check.fraction("threshold", "delta", delta, zero=True)
    sure = check.fraction("threshold", "confidence", confidence)
    if not check.instance("threshold", "scores", scores, Scores).independent:
        raise ParameterError(
            owner="threshold",
            name="scores",
            expected="one canary in each run",
            got=f"{len(scores)} canaries in {scores.runs} run{'' if scores.runs == 1 else 's'}",
            do=(
                "Canaries that share a run are not independent: use one_run, or scaled if what it "
                "assumes is true."
            ),
        )

    if len(scores) < _LEAST:
        raise ParameterError(
            owner="threshold",
            name="scores",
            expected=f"at least {_LEAST} runs",
            got=str(len(scores)),
        )

    # With fewer on a side chance left nothing to compare, and a bound of 0 says nothing.
    lower = 0.0
    members = int(np.count_nonzero(scores.inside))
    if 2 <= members <= len(scores) - 2:
        chosen, measured = halves("threshold", scores)
        limit, direction = _choice(chosen, level)
        lower = _measured(measured, limit, direction, level, 0.5 * (1.0 - sure))

    return Estimate(method="threshold", lower=lower, delta=level, confidence=sure)


def _measured(half: Half, limit: float, direction: int, delta: float, share: float) -> float:
    """The lower bound on epsilon of one of the two inequalities, each rate at its worst."""
    # What is right at its least, what is wrong at its most.
    false, missed = half.false(limit), half.missed(limit)
    if direction == 0:
        right = lowest_rate(half.ins.size - missed, half.ins.size, error=share)
        wrong = highest_rate(false, half.outs.size, error=share)
    else:
        right = lowest_rate(half.outs.size - false, half.outs.size, error=share)
        wrong = highest_rate(missed, half.ins.size, error=share)

    # All right guesses may be what leaks with probability delta.
    if right <= delta:
        return 0.0

    return max(0.0, math.log((right - delta) / wrong) * _DOWN - 2.0**-50)


def _choice(half: Half, delta: float) -> tuple[float, int]:
    """Choose the limit, and the inequality (0: hits, 1: rejections), that promise most.

    Rates are taken two standard errors worse than they are.
    """
    # Any rule may choose, as long as it sees this half alone; a poor choice costs power, not truth.
    limits = np.unique(np.concatenate([half.ins, half.outs]))
    false = 1.0 - np.searchsorted(half.outs, limits, side="right") / half.outs.size
    missed = np.searchsorted(half.ins, limits, side="right") / half.ins.size
    promised = np.stack(
        [
            _promise(1.0 - missed, half.ins.size, false, half.outs.size, delta),
            _promise(1.0 - false, half.outs.size, missed, half.ins.size, delta),
        ]
    )
    direction, best = np.unravel_index(int(np.argmax(promised)), promised.shape)
    return float(limits[best]), int(direction)


def _promise(
    right: _Floats, right_trials: int, wrong: _Floats, wrong_trials: int, delta: float
) -> _Floats:
    low = right - 2.0 * np.sqrt(right * (1.0 - right) / right_trials) - 3.0 / right_trials
    high = wrong + 2.0 * np.sqrt(wrong * (1.0 - wrong) / wrong_trials) + 3.0 / wrong_trials
    promised: _Floats = np.log(np.maximum(low - delta, 1e-300) / high)
    return promised
