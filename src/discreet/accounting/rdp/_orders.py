"""The order at which a converted bound is smallest.

Every order gives a valid bound, so the search can cost tightness, never soundness. The converted
epsilon as a function of order - 1 is (convex + constant) / (order - 1) up to a small term, hence
has one valley: walk down by factors, then refine.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import scipy

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["best_order"]

_FIRST = 8.0  # order - 1 where the walk starts
_FACTOR = 4.0
_LIMITS = (1e-9, 1e13)  # of order - 1
_PRECISION = (
    1e-3  # of ln(order - 1); the bound is flat there, so that it loses about 1e-7 of itself
)


def best_order(bound: Callable[[float], float], first: float = _FIRST) -> float:
    """The order above 1 where `bound` is about smallest; `first` is order - 1 where the walk starts
    and `bound` is finite.
    """

    def at(log_offset: float) -> float:
        # min() because a search must not stumble over infinity minus infinity.
        return min(bound(1.0 + math.exp(log_offset)), 1e300)

    centre = math.log(first)
    value = at(centre)
    for factor in (1.0 / _FACTOR, _FACTOR):
        centre, value = _walk(at, centre, value, math.log(factor))
    span = math.log(_FACTOR)
    result = scipy.optimize.minimize_scalar(
        at, bounds=(centre - span, centre + span), method="bounded", options={"xatol": _PRECISION}
    )
    found = float(result.x)
    return 1.0 + math.exp(found if float(result.fun) <= value else centre)


def _walk(
    at: Callable[[float], float], centre: float, value: float, step: float
) -> tuple[float, float]:
    low, high = (math.log(limit) for limit in _LIMITS)
    while low <= centre + step <= high:
        ahead = at(centre + step)
        if not ahead < value:
            break
        centre, value = centre + step, ahead
    return centre, value
