"""Certified bounds on the tails of a binomial distribution (used by docs/proofs/truncated.md,
docs/proofs/group_mixture.md and docs/proofs/rdp.md, theorem 5).

Only two things are computed: one probability mass, and the ratios of neighbouring masses, whose
products are summed up. If k or n-k is small, with C exact in integers,

    ln pmf(k) = ln C(n, k) + k ln q + (n-k) ln(1-q),

and else

    ln pmf(k) = -n KL(k/n || q) - ln sqrt(2 pi k (n-k) / n) + r(n) - r(k) - r(n-k),

r(m) = ln m! - ln(sqrt(2 pi m) (m/e)^m), for which 1/(12m) - 1/(360m^3) < r(m) < 1/(12m)
[Robbins1955 gives the idea of such bounds; these two are consecutive partial sums of Stirling's
alternating series, which encloses].
"""

from __future__ import annotations

import math

import numpy as np

__all__ = ["at_least"]

_U = 2.0**-53

# Below this many, binomial coefficients are whole numbers of moderate size.
_EXACT = 300

# Standard deviations over which a tail is summed.
_DEVIATIONS = 60.0

# More terms than this are not summed.
_LONGEST = 5_000_000


def at_least(count: int, trials: int, probability: float) -> tuple[float, float]:
    """Lower and upper bound on P[Binomial(trials, probability) >= count].

    | case                                   | result                                          |
    |----------------------------------------|-------------------------------------------------|
    | count 0 or less                        | 1, 1                                            |
    | count above trials                     | 0, 0                                            |
    | probability 1, count in reach          | 1, 1                                            |
    | so many trials that rounding blurs all | 0, 1: nothing is known                          |
    | a tail that underflows                 | an upper bound of 1e-300 at least               |

    Probability 0 with a count above 0 does not occur: costs refuse it.

    >>> low, high = at_least(2, 2, 0.5)
    >>> low <= 0.25 <= high, high - low < 1e-12
    (True, True)
    """
    if count <= 0 or (probability == 1.0 and count <= trials):
        return 1.0, 1.0

    if count > trials:
        return 0.0, 0.0

    # Above the mean the masses fall from `count` on, so that a tail can be cut off.
    if count > trials * probability:
        return _upper_tail(count, trials, probability, 1.0 - probability)

    # Below the mean: the complement, as an upper tail of the number of failures.
    low, high = _upper_tail(trials - count + 1, trials, 1.0 - probability, probability)
    return max((1.0 - high) * (1.0 - 4.0 * _U), 0.0), min((1.0 - low) * (1.0 + 4.0 * _U), 1.0)


def _upper_tail(k: int, n: int, q: float, failure: float) -> tuple[float, float]:
    """P[X >= k] for k >= the mean: pmf(k) times the sum of products of the ratios (n-m)/(m+1)
    q/(1-q), m = k, k+1, ...; `failure` is 1-q.
    """
    log, error = _log_mass(k, n, q, failure)
    reach = min(n - k, 64 + math.ceil(_DEVIATIONS * math.sqrt(n * q * failure)))

    # So many trials that nothing is known for certain.
    if reach > _LONGEST or error > 0.1:
        return 0.0, 1.0

    # The mass at k itself is the 1; a term's relative error grows with the factors in it.
    m = np.arange(k, k + reach, dtype=np.float64)
    ratio = (n - m) / (m + 1.0) * (q / failure)
    terms = np.cumprod(ratio)
    total = 1.0 + float(np.sum(terms))
    relative = 16.0 * _U * (reach + 2)
    beyond = 0.0

    if reach < n - k:
        # Ratios fall, so what is not summed is at most a geometric series.
        last = float((n - k - reach) / (k + reach + 1.0) * (q / failure)) * (1.0 + 8.0 * _U)
        beyond = math.inf if last >= 1.0 else float(terms[-1]) * last / (1.0 - last) * 2.0

    # What lies beyond is left out below and added above.
    mass = math.exp(log)
    lower = mass * total * (1.0 - relative) * math.exp(-error) * (1.0 - 8.0 * _U)
    upper = mass * (total + beyond) * (1.0 + relative) * math.exp(error) * (1.0 + 8.0 * _U) + 1e-300
    return max(lower, 0.0), min(upper, 1.0)


def _log_mass(k: int, n: int, q: float, failure: float) -> tuple[float, float]:
    """The logarithm of pmf(k) and a bound on its error; `failure` is 1-q, exact or rounded once."""
    if min(k, n - k) <= _EXACT:
        # For a small q the logarithm of 1-q has digits that 1-q itself has lost.
        choose = math.log(math.comb(n, k))
        yes = k * math.log(q)
        no = (n - k) * (math.log1p(-q) if q < 0.5 else math.log(failure))
        size = abs(choose) + abs(yes) + abs(no) + n
        return choose + yes + no, 16.0 * _U * size

    # n KL(k/n || q), by the relative distance from the mean: near it both logarithms are small.
    yes = k * math.log1p((k - n * q) / (n * q))
    no = (n - k) * math.log1p((n * q - k) / (n * failure))
    scale = 0.5 * math.log(n / (2.0 * math.pi * k * (n - k)))

    # Stirling's remainders, each between two numbers: the error of their sum is half its width.
    low = _stirling(n)[0] - _stirling(k)[1] - _stirling(n - k)[1]
    high = _stirling(n)[1] - _stirling(k)[0] - _stirling(n - k)[0]
    size = abs(yes) + abs(no) + abs(scale) + n + 1.0
    return -yes - no + scale + 0.5 * (low + high), 0.5 * (high - low) + 16.0 * _U * size


def _stirling(m: int) -> tuple[float, float]:
    """Bounds on the remainder r(m) of the header."""
    return 1.0 / (12.0 * m) - 1.0 / (360.0 * m**3), 1.0 / (12.0 * m)
