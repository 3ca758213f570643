"""What an attacker can do at most, in a moment: a few points of the profile, chosen where a
Gaussian would have its best.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from discreet.accounting.sources import Source
    from discreet.units import Guarantee

__all__ = ["FALSE_POSITIVES", "attack"]

FALSE_POSITIVES = 0.01
"""The rate at which an attack's success is stated."""

# From one epsilon that is tried to the next: sampled Gaussians have their best below that of a
# Gaussian with the same claim.
_CLOSER = 0.85
# More than what rounding in the few operations of `_bound` can take away from a bound.
_UP = 1.0 + 2.0**-48


def attack(source: Source, guarantee: Guarantee) -> float | None:
    """The largest share of members that an attack finds which is wrong about 1 % of the others;
    None without a guarantee.

    Guarantee: every point (epsilon, delta) of a profile bounds all attacks, so the choice of points
    decides how near the bound is to the best one (`hit_rate`, which asks for many more points),
    never whether it holds.

    Args:
        source: what is accounted for.
        guarantee: its claim. Of a filter or an odometer the claim alone says what an attack can do.
    """
    from discreet.accounting import hit_rate, profile_of

    if guarantee.voided_by or math.isinf(guarantee.upper):
        return None

    # The claim is itself a point of the profile; further points can only improve the bound.
    bounds = [_bound(guarantee.upper, guarantee.delta)]
    if guarantee.accountant in ("tight", "rdp"):
        profile, best = profile_of(source), _best_epsilon(guarantee)
        if best is None:
            return hit_rate(profile, false_positive_rate=FALSE_POSITIVES)
        bounds.append(_bound(best, profile(best)))
        while min(bounds) == bounds[-1]:  # each better than all before it
            best *= _CLOSER
            bounds.append(_bound(best, profile(best)))
        between = best / math.sqrt(_CLOSER)  # of the last two
        bounds.append(_bound(between, profile(between)))
    return min(1.0, min(bounds) * _UP)


def _bound(epsilon: float, delta: float) -> float:
    """What one point of a profile allows at 1 % false positives."""
    x = FALSE_POSITIVES
    if epsilon > 700.0:  # e^epsilon overflows
        return 1.0
    return min(delta + math.exp(epsilon) * x, 1.0 - math.exp(-epsilon) * (1.0 - delta - x))


def _best_epsilon(guarantee: Guarantee) -> float | None:
    """Where the tangent at 1 % touches the trade-off curve of the Gaussian with this claim; None
    where it does not help.

    With mu the Gaussian's ratio of distance to noise, the curve is Phi(Phi^-1(1 - x) - mu), whose
    slope at x is -e^epsilon for epsilon = mu z - mu^2/2, z = Phi^-1(1 - x).
    """
    from discreet.accounting.gaussian import gaussian_delta

    low, high = 1e-6, 8.0
    if (
        guarantee.upper <= 0.0
        or not gaussian_delta(1.0 / high, guarantee.upper)[1] > guarantee.delta > 0.0
    ):
        return None

    # Bisection in logarithms: 40 halvings leave a relative error near 1e-11, and the choice of the
    # point need not be exact.
    for _ in range(40):
        middle = math.sqrt(low * high)
        above = gaussian_delta(1.0 / middle, guarantee.upper)[1] > guarantee.delta
        low, high = (low, middle) if above else (middle, high)
    epsilon = low * NormalDist().inv_cdf(1.0 - FALSE_POSITIVES) - 0.5 * low * low
    return epsilon if epsilon > 1e-3 else None
