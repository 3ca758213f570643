"""What an attacker can do at most, in a moment: a few points of the profile, chosen where a
Gaussian would have its best.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import TYPE_CHECKING

from discreet.report.facts.curves import FALSE_POSITIVES, hit_limit

if TYPE_CHECKING:
    from discreet.accounting.sources import Source
    from discreet.units import Guarantee

__all__ = ["attack"]

# From one epsilon that is tried to the next: sampled Gaussians have their best below that of a
# Gaussian with the same claim.
_CLOSER = 0.85
# Relative, and more than rounding takes from that line of `hit_limit` which is the smaller one; the
# two only meet at epsilon 0, and at an epsilon where both are nearly 1.
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
    bounds = [hit_limit(guarantee.upper, guarantee.delta)]
    if guarantee.accountant in ("tight", "rdp"):
        profile, best = profile_of(source), _best_epsilon(guarantee)
        if best is None:
            return hit_rate(profile, false_positive_rate=FALSE_POSITIVES)

        # Downwards as long as each point is no worse than all before it, then once between the
        # last two, where the best may have been passed over.
        bounds.append(hit_limit(best, profile(best)))
        while min(bounds) == bounds[-1]:
            best *= _CLOSER
            bounds.append(hit_limit(best, profile(best)))

        between = best / math.sqrt(_CLOSER)
        bounds.append(hit_limit(between, profile(between)))

    return min(1.0, min(bounds) * _UP)


def _best_epsilon(guarantee: Guarantee) -> float | None:
    """Where the tangent at 1 % touches the trade-off curve of the Gaussian with this claim; None
    where it does not help.

    With mu the Gaussian's ratio of distance to noise, the curve is Phi(Phi^-1(1 - x) - mu), whose
    slope at x is -e^epsilon for epsilon = mu z - mu^2/2, z = Phi^-1(1 - x).
    """
    from discreet.accounting.gaussian import gaussian_delta

    # Below, `low` and `high` are mu. A claim that even the largest of them meets, or one of delta
    # 0, which no Gaussian meets, has no such curve.
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
