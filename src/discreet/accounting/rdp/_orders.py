"""The order at which a converted bound is smallest (docs/proofs/rdp.md, section 4).

Every order gives a valid bound, so the search can cost tightness, never soundness. The converted
epsilon as a function of order - 1 is (convex + constant) / (order - 1) up to a small term, hence
has one valley: walk down by factors, then refine.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import scipy

__all__ = ["best_order"]

# The walk starts at this value of order - 1, and multiplies or divides it by the factor.
_FIRST = 8.0
_FACTOR = 4.0

# Limits of order - 1.
_LIMITS = (1e-9, 1e13)

# The precision of ln(order - 1); the bound is flat there, and loses about 1e-7 of itself.
_PRECISION = 1e-3


def best_order(bound: Callable[[float], float], first: float = _FIRST) -> float:
    """The order above 1 where `bound` is about smallest; `first` is order - 1 where the walk starts
    and `bound` is finite.
    """

    def at(log_offset: float) -> float:
        # min() because a search must not stumble over infinity minus infinity.
        return min(bound(1.0 + math.exp(log_offset)), 1e300)

    centre = math.log(first)
    value = at(centre)

    # Down the valley in either direction, then between the two neighbours of its lowest place.
    for factor in (1.0 / _FACTOR, _FACTOR):
        centre, value = _walk(at, centre, value, math.log(factor))

    span = math.log(_FACTOR)
    result = scipy.optimize.minimize_scalar(
        at, bounds=(centre - span, centre + span), method="bounded", options={"xatol": _PRECISION}
    )
    log_offset = float(result.x) if float(result.fun) <= value else centre
    return 1.0 + math.exp(log_offset)


def _walk(
    at: Callable[[float], float], centre: float, value: float, step: float
) -> tuple[float, float]:
    """Walk in steps of ln(order - 1) as long as the bound falls; the last place and its value."""
    low, high = (math.log(limit) for limit in _LIMITS)

    while low <= centre + step <= high:
        ahead = at(centre + step)
        if not ahead < value:
            break

        centre, value = centre + step, ahead

    return centre, value
