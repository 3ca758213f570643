"""Approximations: fast, often close, and never a guarantee.

The central limit approximation of [Bu2020] replaces the composition of many sampled Gaussians by
one Gaussian. It is below the truth wherever we checked, sometimes by half (P37). It starts searches
and draws sketches; nothing here has an `epsilon` or an `upper`, so that it cannot be mistaken for,
or turned into, a `Guarantee`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import scipy

from discreet import _validate as check
from discreet.accounting.roots import crossing

__all__ = ["Approximation", "central_limit", "gaussian_parameter"]


@dataclass(frozen=True, slots=True)
class Approximation:
    """A number that is not a bound.

    Args:
        about: the approximate epsilon; nothing is known of its distance from the truth.
        delta: at which.
        method: name of the approximation.
    """

    about: float
    delta: float
    method: str

    def __str__(self) -> str:
        return (
            f"about {self.about:.4g} at delta {self.delta!r} ({self.method}; an approximation, "
            "not a guarantee)"
        )


def central_limit(
    *, probability: float, noise_multiplier: float, steps: int, delta: float
) -> Approximation:
    """Steps of a Poisson-sampled Gaussian as one Gaussian of parameter q sqrt(T (e^(1/s^2) - 1)).

    The truth in this example is 0.587:

    >>> print(central_limit(probability=0.005, noise_multiplier=1.0, steps=200, delta=1e-6))
    about 0.3659 at delta 1e-06 (central limit; an approximation, not a guarantee)
    """
    owner = "central_limit"
    q = check.fraction(owner, "probability", probability, one=True)
    s = check.positive(owner, "noise_multiplier", noise_multiplier)
    count = check.whole(owner, "steps", steps, least=1)
    target = check.fraction(owner, "delta", delta)

    # Beyond 700 the exponential overflows; the result is huge either way.
    inverse_square = min(1.0 / s / s, 700.0)
    mu = math.sqrt(count) / s if q == 1.0 else q * math.sqrt(count * math.expm1(inverse_square))
    return Approximation(_epsilon_about(mu, target), target, "central limit")


def gaussian_parameter(*, epsilon: float, delta: float) -> float:
    """About the mu whose Gaussian N(mu, 1) against N(0, 1) has this epsilon at this delta: a start
    for searches.
    """
    # In logarithms: delta spans hundreds of orders of magnitude.
    target = math.log(delta)
    low, high = 1e-12, 2.0 * math.sqrt(2.0 * epsilon) + 60.0

    # Delta grows with mu: a target below the smallest mu's delta has no root to be found.
    if _log_delta(low, epsilon) > target:
        return low

    # In ln mu, and with the sign of a function that falls.
    root = crossing(
        lambda log_mu: target - _log_delta(math.exp(log_mu), epsilon),
        (math.log(low), math.log(high)),
        math.log(max(epsilon, 1e-9) / math.sqrt(2.0 * max(epsilon, -target))),
        -10.0,
        1e-10,
    )
    return math.exp(root)


def _epsilon_about(mu: float, delta: float) -> float:
    target = math.log(delta)
    if _log_delta(mu, 0.0) <= target:
        return 0.0

    # The tail bound of a Gaussian: delta is met there.
    high = 0.5 * mu**2 + mu * math.sqrt(-2.0 * target) + 1e-9
    return crossing(
        lambda epsilon: _log_delta(mu, epsilon) - target,
        (0.0, high),
        0.5 * high,
        target / high,
        1e-14,
    )


def _log_delta(mu: float, epsilon: float) -> float:
    """Logarithm of Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu)."""
    # Both summands may be far below the range of float64; only their logarithms are formed.
    first = float(scipy.special.log_ndtr(0.5 * mu - epsilon / mu))
    second = epsilon + float(scipy.special.log_ndtr(-0.5 * mu - epsilon / mu))

    # Where the two terms are equal to the last bit, their difference is some 1e-16 of either.
    if second - first < -1e-16:
        return first + math.log(-math.expm1(min(-1e-300, second - first)))

    return first - 36.7
