"""How much noise the scores allow: most of epsilon from few canaries, if the noise is of a known
kind.

Legend: x the false-positive rate, y the miss rate of a guess; delta(0) of a mechanism is the total
variation between the data sets with and without the canary, so x + y >= 1 - delta(0). With a fair
coin a guess is wrong with probability (x + y) / 2: one binomial count, the sharpest test of one
number.

If n guesses that are made one after the other have k errors, the error rate is at most p =
highest_rate(k, n). All mechanisms with (1 - delta(0)) / 2 > p are refuted. More noise of the same
kind is post-processing, so the refuted scales of the noise are all from some scale on, and epsilon
at the least of them is a lower bound (docs/proofs/auditing.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import scipy

from discreet import _validate as check
from discreet.auditing.estimate import Estimate
from discreet.auditing.estimators.guesses import checked_coins, highest_rate, wrong_guesses
from discreet.canaries import Scores
from discreet.errors import ParameterError

__all__ = ["gaussian", "scaled"]

# Scales from 2^-6 to 2^6 are looked at.
_WIDEST = 6.0
_STEPS = 12
_FINE = 60

# More than all rounding of the two terms, whose exponents are below 1000.
_SLACK = 1e-9
_INDEPENDENT = "canaries on coordinates of their own are independent"


def scaled(
    scores: Scores,
    *,
    epsilon: Callable[[float], float],
    profile: Callable[[float], Callable[[float], float]],
    delta: float,
    confidence: float = 0.95,
) -> Estimate:
    """Bound epsilon from below by that of the least noise which the scores refute.

    Noise is measured in units of what is recorded.

    Guarantee: as of `Estimate`. A noise that is too small by a factor is found with that factor; a
    noise of another kind may be misjudged. If scale 1 is refuted, so is the claim.

    Args:
        scores: at least 8, with fair coins; sensitive.
        epsilon: of a scale s of all recorded noise: a lower bound on epsilon at the claimed delta.
        profile: of a scale s: its profile, an upper bound on delta(eps); asked at eps = 0, at most
            13 times.
        delta: the claimed one, in (0, 1).
        confidence: in (0, 1).

    >>> import numpy as np
    >>> coins = np.random.default_rng(1).random(10_000) < 0.5
    >>> noisy = Scores(coins + np.random.default_rng(2).normal(size=10_000), coins)
    >>> def profile(scale):
    ...     return lambda epsilon: math.erf(8**-0.5 / scale)
    >>> bound = scaled(noisy, epsilon=lambda scale: 4.0 / scale, profile=profile, delta=1e-5)
    >>> 3.5 < bound.lower < 4.0
    True
    """
    level = check.fraction("scaled", "delta", delta)
    rate, confidence = _error_rate("scaled", scores, confidence)

    # More noise than a refuted scale is refuted, too: so the widest is asked first, and `high` is
    # refuted from there on. Its epsilon is what is stated.
    low, high = -_WIDEST, _WIDEST
    refuted = _refuted(profile, high, rate)
    for _ in range(_STEPS if refuted else 0):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if _refuted(profile, middle, rate) else (middle, high)

    lower = epsilon(2.0**high) if refuted else 0.0
    assumes = f"the noise is of the ledger's kind, some factor aside, and {_INDEPENDENT}"
    return Estimate(
        method="scaled noise", lower=lower, delta=level, confidence=confidence, assumes=assumes
    )


def gaussian(scores: Scores, *, delta: float, confidence: float = 0.95) -> Estimate:
    """Bound epsilon from below in closed form, for Gaussian noise without sampling.

    One number, mu = 1 / noise multiplier of the whole run, says all. With error rate at most p, mu
    >= -2 Phi^-1(p) [DongRothSu2022].

    Args:
        scores: at least 8, with fair coins; sensitive.
        delta: of the claim, in (0, 1).
        confidence: in (0, 1).

    >>> import numpy as np
    >>> coins = np.random.default_rng(1).random(10_000) < 0.5
    >>> noisy = Scores(coins + np.random.default_rng(2).normal(size=10_000), coins)
    >>> 3.9 < gaussian(noisy, delta=1e-5).lower < 4.377    # epsilon of noise multiplier 1
    True
    """
    level = check.fraction("gaussian", "delta", delta)
    rate, confidence = _error_rate("gaussian", scores, confidence)

    # A little less than the quantile says, more than its rounding.
    mu = -2.0 * float(scipy.special.ndtri(rate)) * (1.0 - 2.0**-40)
    lower = _epsilon(mu, level) if mu > 0.0 else 0.0
    assumes = f"the noise is Gaussian, without sampling, and {_INDEPENDENT}"
    return Estimate(
        method="Gaussian noise", lower=lower, delta=level, confidence=confidence, assumes=assumes
    )


def _error_rate(owner: str, scores: Scores, confidence: float) -> tuple[float, float]:
    level = check.fraction(owner, "confidence", confidence)
    wrong, guesses = wrong_guesses(checked_coins(owner, scores))
    return highest_rate(wrong, guesses, error=1.0 - level), level


def _refuted(
    profile: Callable[[float], Callable[[float], float]], log_scale: float, rate: float
) -> bool:
    variation = check.real("scaled", "profile", profile(2.0**log_scale)(0.0))
    if not 0.0 <= variation <= 1.0:
        raise ParameterError(
            owner="scaled", name="profile", expected="a delta in [0, 1]", got=repr(variation)
        )

    # (1 - delta(0)) / 2 > p, with the difference rounded down: nothing is refuted by rounding.
    return math.nextafter(1.0 - variation, 0.0) > 2.0 * rate


def _epsilon(mu: float, delta: float) -> float:
    """Find an epsilon at which N(mu, 1) against N(0, 1) has more than this delta.

    That delta is Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu) [DongRothSu2022].
    """

    def more(eps: float) -> bool:
        first = float(scipy.special.ndtr(0.5 * mu - eps / mu))
        second = math.exp(min(eps + float(scipy.special.log_ndtr(-0.5 * mu - eps / mu)), 0.0))
        return first * (1.0 - _SLACK) - second * (1.0 + _SLACK) > delta

    # At the upper end delta is below 1e-300. At `low` it was found to be more than this delta.
    low, high = 0.0, 0.5 * mu * mu + 40.0 * mu
    for _ in range(_FINE):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if more(middle) else (low, middle)

    return low
