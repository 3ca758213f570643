"""Where a decreasing function crosses zero: few evaluations, and no claim.

Whoever needs a bound proves it by an evaluation of its own, next to the place that is found.
"""

from __future__ import annotations

import math
from collections.abc import Callable

__all__ = ["crossing"]

# Evaluations after which the search ends; bisection alone needs about a third of them.
_MOST = 200


def crossing(
    function: Callable[[float], float],
    between: tuple[float, float],
    guess: float,
    slope: float,
    tolerance: float,
) -> float:
    """About where a decreasing function is 0: secants, and bisection where these do not converge.

    Args:
        function: may be infinite.
        between: two points, the function positive at the first and negative at the second; it is
            not evaluated there.
        guess: where to begin, anywhere.
        slope: of the function there, about.
        tolerance: relative distance from the crossing at which the search ends.
    """
    below, above = between
    point = guess if below < guess < above else 0.5 * (below + above)
    last: tuple[float, float] | None = None
    step_before = step = math.inf

    for _ in range(_MOST):
        value = function(point)
        if value == 0.0:
            break

        below, above = (point, above) if value > 0.0 else (below, point)
        if last is not None:
            slope = (value - last[1]) / (point - last[0])

        # As in Brent's method: a secant must stay inside, and be half as long as two steps ago.
        # Written so that a step that is not a number is none.
        ahead = point - value / slope if slope < 0.0 else math.nan
        if not (below < ahead < above and abs(ahead - point) <= 0.5 * step_before):
            ahead = 0.5 * (below + above)

        last, step_before, step = (point, value), step, abs(ahead - point)
        point = ahead
        if step <= tolerance * abs(point):
            break

    return point
