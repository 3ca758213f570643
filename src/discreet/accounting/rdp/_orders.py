"""The order at which a converted bound is smallest (docs/proofs/rdp.md, section 4).

Every order gives a valid bound, so the search can cost tightness, never soundness. The converted
epsilon as a function of order - 1 is (convex + constant) / (order - 1) up to a small term, hence
has one valley: walk down by factors, then refine.
"""

from __future__ import annotations

import math
from collections.abc import Callable

__all__ = ["best_order"]

# The walk starts at this value of order - 1, and multiplies or divides it by the factor.
_FIRST = 8.0
_FACTOR = 4.0

# Limits of order - 1.
_LIMITS = (1e-9, 1e13)

# The precision of ln(order - 1); the bound is flat there, and loses about 1e-7 of itself.
_PRECISION = 1e-3

# The golden ratio, less 1: one of two inner points serves again.
_GOLDEN = 0.5 * (math.sqrt(5.0) - 1.0)


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
    log_offset, least = _valley(at, centre - span, centre + span)
    return 1.0 + math.exp(log_offset if least <= value else centre)


def _valley(at: Callable[[float], float], low: float, high: float) -> tuple[float, float]:
    """The lowest place between two others and its value, by golden sections."""
    # SciPy's minimiser would need fewer evaluations, and its import longer than all of them.
    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    value_left, value_right = at(left), at(right)

    while high - low > _PRECISION:
        if value_left <= value_right:
            high, right, value_right = right, left, value_left
            left = high - _GOLDEN * (high - low)
            value_left = at(left)
        else:
            low, left, value_left = left, right, value_right
            right = low + _GOLDEN * (high - low)
            value_right = at(right)

    return min((left, value_left), (right, value_right), key=lambda pair: pair[1])


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
