"""A public limit on the size of a Poisson sample, and a certified probability that it is exceeded.

    P[Binomial(n, q) >= k] <= exp(-n KL(k/n || q)),    k >= n q        [Hoeffding1963, Theorem 1]

Computed in decimal arithmetic with 80 digits, whose logarithm and exponential are correctly
rounded, then rounded up. What it is used for: docs/proofs/sums.md, section 5.
"""

from __future__ import annotations

from decimal import Context, Decimal, localcontext
from fractions import Fraction

from discreet import _validate as check
from discreet.numerics._rational import up

__all__ = ["overflow_probability"]

_DIGITS = Context(prec=80)

# Below every float64 above 0; smaller bounds are not told apart, and rounded up to 5e-324.
_SMALLEST = Decimal("1e-340")

# Absolute, on the exponent: cancellation costs at most 20 of the 80 digits, so the error is below
# 1e-50.
_SLACK = Decimal("1e-30")


def overflow_probability(limit: int, *, records: int, probability: float) -> float:
    """Bound the probability that a Poisson sample of `records` records has `limit` or more.

    Then the sample with one more record, the one in question, may be larger than `limit`. The delta
    to charge is this times the number of steps; `records` is the public size of the data set.

    | case | bound |
    |---|---|
    | limit above records, or probability 0 | 0 |
    | limit at or below records * probability | 1 |
    | probability 1, limit at most records | 1 |
    | far out, below every float64 | 5e-324, never 0 |

    >>> overflow_probability(200, records=10_000, probability=0.01) < 1e-16
    True
    """
    owner = "overflow_probability"
    k = check.whole(owner, "limit", limit, least=1)
    n = check.whole(owner, "records", records, least=0)
    q = check.fraction(owner, "probability", probability, zero=True, one=True)
    return up(Fraction(_tail(k, n, q)))


def _tail(k: int, n: int, q: float) -> Decimal:
    if k > n or q == 0.0:
        return Decimal(0)

    if k <= n * Fraction(q):
        return Decimal(1)

    with localcontext(_DIGITS):
        chance, hits, misses = Decimal(q), Decimal(k), Decimal(n - k)

        # n KL(k/n || q); the second term is 0 for k = n.
        exponent = hits * (hits / (n * chance)).ln()
        if misses:
            exponent += misses * (misses / (n * (1 - chance))).ln()

        if exponent > 800:
            return _SMALLEST

        return min(Decimal(1), (_SLACK - exponent).exp() * (1 + _SLACK))
