"""Which losses a transform covers, and at which tilt: choices, without effect on soundness.

What lies outside of the window, or wraps around in it, is bounded whatever the window is
(docs/proofs/tight.md, section 5, "Window"); the choice here makes it small compared with delta.

Axes of arrays: F factors on the tilt, E exponents at which the cumulant is known.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from discreet.accounting.tight.lattice.pair import SMALL
from discreet.accounting.tight.lattice.tilt import Law, Tilt, log_peak
from discreet.accounting.tight.rounding import WIDE, FloatArray

__all__ = ["Window", "period", "planned"]

# Points above which long double may pay.
_MANY = 100_000

# A window of more than this over theta is tried with a smaller theta.
_LONG = 80.0

# The parts of theta that are tried.
_LESS = np.geomspace(1.0, 0.05, 11)

# By so much, in ln, tilted mass may exceed what is wanted, for the sake of a short window.
_MAGNIFIED = 12.0

# How much more long double allows: 11 bits, less a margin.
_EXTENDED = 6.0

# Lower curves are computed from this part of the expected epsilon upwards.
_TRUSTED = 0.05
_RISE = np.array([0.02, 0.05, 0.1, 0.2, 0.4, 0.7, 1.0, 1.1, 1.25, 1.5, 2.0, 3.5, 8.0, 30.0, 100.0])
_FALL = np.array([0.0, 0.15, 0.5, 1.2, 3.0, 8.0, 30.0, 300.0, 1e4])


@dataclass(frozen=True, slots=True)
class Window:
    """Losses from `low` to `high` that the transform covers, tilted by `theta`; exponents that
    bound what lies outside.

    Curves are used at `floor` and above only. `extended` asks for long double.
    """

    low: float
    high: float
    floor: float
    tail: float
    wrap_down: float
    wrap_up: float
    theta: float
    extended: bool = False

    @property
    def width(self) -> float:
        """The length of the window, as a loss."""
        return self.high - self.low

    def points(self, spacing: float) -> float:
        """How long a transform over the window is."""
        return self.width / spacing


def planned(law: Law, tilt: Tilt, spacing: float, *, extended: bool = False) -> Window:
    """The shortest window; in long double, which allows a shorter one, also where that one would be
    long.
    """
    window = _shortest(law, tilt, spacing, extended=extended)
    if extended or not WIDE or window.points(spacing) < _MANY:
        return window

    in_long_double = _shortest(law, tilt, spacing, extended=True)
    return in_long_double if in_long_double.width < 0.25 * window.width else window


def _shortest(law: Law, tilt: Tilt, spacing: float, *, extended: bool) -> Window:
    """The window at this tilt or, where rare large losses make it long, at a smaller one that still
    keeps rounding away.
    """
    best = _windows(law, tilt, _LESS[:1])[0]
    if tilt.theta * best.width < _LONG:
        return replace(best, extended=extended)

    # At a smaller tilt the mass that is transformed, and with it the rounding error, is larger than
    # what is wanted of it: by this much, in ln.
    theta = tilt.theta * _LESS
    magnified = law.loose(theta, spacing) + log_peak(theta) - theta * tilt.epsilon - tilt.log_delta

    # Rounding errors grow with the number of steps, so fewer are allowed to be magnified then.
    steps = sum(count for _, count in law.parts)
    extra = _EXTENDED if extended else 0.0
    allowed = _MAGNIFIED - max(-2.0, math.log(steps / 1e5)) + extra

    for loss, window in zip(magnified.tolist(), _windows(law, tilt, _LESS), strict=True):
        if loss < allowed and window.width < 0.97 * best.width:
            best = window

    return replace(best, extended=extended)


def period(law: Law, tilt: Tilt, delta: float) -> float:
    """The length of a window with wrapping far below delta, for the estimate."""
    strict = replace(tilt, log_delta=math.log(delta) - 12.0)
    return 1.2 * _windows(law, strict, _LESS[:1])[0].width


def _windows(law: Law, tilt: Tilt, factors: FloatArray) -> list[Window]:
    """A window as short as tails and wrapping allow, at each of several multiples of the tilt."""
    exponent_FE = tilt.theta * factors[:, None] * np.concatenate([_RISE, -_FALL])[None, :]
    cumulant_FE = law.cumulant(exponent_FE.ravel()).reshape(exponent_FE.shape)
    tilts = (tilt.theta * factors).tolist()
    return [
        _window(tilt, theta, cumulant_E)
        for theta, cumulant_E in zip(tilts, cumulant_FE, strict=True)
    ]


def _window(tilt: Tilt, theta: float, cumulant: FloatArray) -> Window:
    """Solve for the shortest window, from the cumulant K at the exponents a (theta times _RISE) and
    -b (minus theta times _FALL).

    With W the width and goal the ln of what may be lost, all conditions are linear in W:

        above the window           K(a) - a high <= goal
        wrapped up from below      K(-b) + b (high - W) - theta W <= goal
        wrapped down from above    K(a) - a (floor + W) + theta W <= goal,   a > theta.
    """
    goal = tilt.log_delta + math.log(SMALL)
    floor = max(_TRUSTED * tilt.epsilon, tilt.epsilon - 10.0 / theta)
    rise, fall = theta * _RISE, theta * _FALL
    up, down = cumulant[: len(rise)], cumulant[len(rise) :]

    # The upper end is the least that the first condition allows, at the best exponent.
    reach = (up - goal) / rise
    tail = int(np.argmin(reach))
    high = float(reach[tail])

    # The width is the least that the other two allow, each at its best exponent.
    steep, steep_up = rise[_RISE > 1.0], up[_RISE > 1.0]
    from_below = (down + fall * high - goal) / (fall + theta)
    from_above = (steep_up - steep * floor - goal) / (steep - theta)
    width = 1.001 * max(
        float(from_below.min()), float(from_above.min()), 1.02 * (high - floor), 1e-300
    )

    # The exponents that bound, at this width, what wraps around.
    wrap_down = fall[int(np.argmin(down + fall * (high - width)))]
    wrap_up = steep[int(np.argmin(steep_up - steep * (floor + width)))]
    return Window(
        high - width, high, floor, float(rise[tail]), float(wrap_down), float(wrap_up), theta
    )
