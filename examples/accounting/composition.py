"""Composition and amplification theorems for (epsilon, delta), for teaching and comparison.

The accountants of this package are tighter than anything here. All statements are theorems, valid
for adaptive composition of mechanisms fixed in advance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy

from discreet import _validate as check
from discreet.errors import ParameterError

__all__ = ["Statement", "advanced", "amplified", "basic", "optimal"]


@dataclass(frozen=True, slots=True)
class Statement:
    """(epsilon, delta)-differential privacy of one mechanism or of a composition."""

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        if not self.epsilon >= 0.0 or not 0.0 <= self.delta <= 1.0:
            expected = "epsilon >= 0 and delta in [0, 1]"
            raise ParameterError(
                owner="Statement",
                name="epsilon",
                expected=expected,
                got=f"({self.epsilon!r}, {self.delta!r})",
            )


def amplified(one: Statement, *, probability: float) -> Statement:
    """Poisson sampling: (ln(1 + q (e^epsilon - 1)), q delta) [Balle2018, Theorem 8].

    Not (q epsilon, q delta), which is only its first-order term and false (P40): e^epsilon - 1 >
    epsilon.

    >>> round(amplified(Statement(1.0, 1e-5), probability=0.01).epsilon, 6)
    0.017037
    """
    q = check.fraction("amplified", "probability", probability, one=True)
    if one.epsilon > 500.0:
        return Statement(
            one.epsilon, min(1.0, q * one.delta)
        )  # e^epsilon would overflow; sampling never hurts
    return Statement(math.log1p(q * math.expm1(one.epsilon)), q * one.delta)


def basic(one: Statement, *, count: int) -> Statement:
    """The sum: k times (epsilon, delta) is (k epsilon, k delta)."""
    k = check.whole("basic", "count", count, least=1)
    return Statement(k * one.epsilon, min(1.0, k * one.delta))


def advanced(one: Statement, *, count: int, slack: float) -> Statement:
    """[DRV2010]: (epsilon sqrt(2 k ln(1/slack)) + k epsilon (e^epsilon - 1), k delta + slack), or
    `basic` if smaller.
    """
    k = check.whole("advanced", "count", count, least=1)
    extra = check.fraction("advanced", "slack", slack)
    simple = basic(one, count=k)
    if one.epsilon > 500.0:
        return simple
    total = one.epsilon * math.sqrt(2.0 * k * -math.log(extra)) + k * one.epsilon * math.expm1(
        one.epsilon
    )
    return Statement(total, min(1.0, k * one.delta + extra)) if total < simple.epsilon else simple


def optimal(one: Statement, *, count: int, slack: float) -> Statement:
    """[KOV2017, Theorem 3.3]: the best that follows from (epsilon, delta) alone, for k equal
    mechanisms.

    ((k - 2i) epsilon, 1 - (1-delta)^k (1-d_i)) with d_i = sum_{l<i} C(k,l) (e^((k-l)epsilon) -
    e^((k-2i+l)epsilon)) / (1+e^epsilon)^k, for the largest i with d_i <= slack.
    """
    k = check.whole("optimal", "count", count, least=1)
    allowed = check.fraction("optimal", "slack", slack)
    low, high = 0, k // 2  # d_i grows with i
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (
            (middle, high)
            if _excess(k, one.epsilon, middle) <= allowed * (1.0 - 1e-9)
            else (low, middle - 1)
        )
    missed = (
        -math.expm1(k * math.log1p(-one.delta) + math.log1p(-_excess(k, one.epsilon, low)))
        if one.delta < 1.0
        else 1.0
    )
    return Statement((k - 2 * low) * one.epsilon, min(1.0, missed * (1.0 + 1e-9)))


def _excess(k: int, epsilon: float, i: int) -> float:
    if i == 0 or epsilon == 0.0:
        return 0.0
    term = np.arange(i, dtype=np.float64)
    ways = (
        scipy.special.gammaln(k + 1)
        - scipy.special.gammaln(term + 1)
        - scipy.special.gammaln(k - term + 1)
    )
    growth = (k - term) * epsilon + np.log(-np.expm1(-2.0 * (i - term) * epsilon))
    return math.exp(
        min(
            0.0,
            float(scipy.special.logsumexp(ways + growth))
            - k * (epsilon + math.log1p(math.exp(-epsilon))),
        )
    )
