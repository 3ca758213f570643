"""Bounds on a probability from counts [ClopperPearson1934], rounded outward.

Legend: X successes in n independent trials with probability p. The upper bound of X = k at error a
is the smallest p with P[Bin(n, p) <= k] <= a; it is below the truth with probability at most a. The
lower bound is the same with the roles of successes and failures exchanged.

Rounding: a bound is found by bisection and is always the end at which the inequality was evaluated
and held, the tail made larger by 1 + 2^-30. Assumption B: SciPy's incomplete beta function, which
is that tail, has a relative error below 2^-30 (up to
a million trials, against 50 digits: below 2^-40).
"""

from __future__ import annotations

import math

import scipy

from discreet import _validate as check
from discreet.errors import ParameterError

__all__ = ["at_least", "highest_rate", "lowest_rate"]

_UP = 1.0 + 2.0**-30
_TINY = 1e-300  # where the tail underflows
_STEPS = 60


def at_least(count: int, trials: int, probability: float) -> float:
    """An upper bound on P[Bin(trials, probability) >= count].

    >>> 0.25 <= at_least(2, 2, 0.5) < 0.2500001
    True
    """
    if count <= 0:
        return 1.0
    if count > trials:
        return 0.0
    return min(
        1.0, _UP * float(scipy.special.betainc(count, trials - count + 1, probability)) + _TINY
    )


def lowest_rate(successes: int, trials: int, *, error: float) -> float:
    """A probability that is above the true one with probability at most `error`.

    >>> lowest_rate(0, 10, error=0.05), 0.741 < lowest_rate(10, 10, error=0.05) <= 0.05 ** 0.1
    (0.0, True)
    """
    n = check.whole("lowest_rate", "trials", trials, least=0)
    k = check.whole("lowest_rate", "successes", successes, least=0)
    a = check.fraction("lowest_rate", "error", error)
    if k > n:
        raise ParameterError(
            owner="lowest_rate", name="successes", expected=f"at most {n}, the trials", got=str(k)
        )
    low, high = 0.0, 1.0
    for _ in range(_STEPS if k else 0):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if at_least(k, n, middle) <= a else (low, middle)
    return low


def highest_rate(successes: int, trials: int, *, error: float) -> float:
    """A probability that is below the true one with probability at most `error`.

    >>> highest_rate(10, 10, error=0.05), 0.258 < highest_rate(0, 10, error=0.05) < 0.26
    (1.0, True)
    """
    if successes > trials:
        raise ParameterError(
            owner="highest_rate",
            name="successes",
            expected=f"at most {trials}, the trials",
            got=str(successes),
        )
    return min(1.0, math.nextafter(1.0 - lowest_rate(trials - successes, trials, error=error), 2.0))
