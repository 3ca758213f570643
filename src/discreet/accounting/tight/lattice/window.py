"""Which losses a transform covers, and at which tilt: choices, without effect on soundness
(proofs/tight.md, section 5).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from discreet.accounting.tight.lattice.pair import SMALL
from discreet.accounting.tight.lattice.tilt import Law, Tilt, log_peak
from discreet.accounting.tight.rounding import WIDE, FloatArray

__all__ = ["Window", "period", "planned"]

_MANY = 100_000  # points above which long double may pay
_LONG = 80.0  # a window of more than this over theta is tried with a smaller theta
_LESS = np.geomspace(1.0, 0.05, 11)  # parts of theta that are tried
_LOSS = 12.0  # by how much, in ln, the tilted mass may exceed what is wanted, for the sake of a short window
_EXTENDED = 6.0  # how much more long double allows: 11 bits, less a margin
_TRUSTED = 0.05  # lower curves are computed from this part of the expected epsilon upwards
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
        """From end to end."""
        return self.high - self.low

    def points(self, spacing: float) -> float:
        """Length of a transform over the window."""
        return self.width / spacing


def planned(law: Law, tilt: Tilt, spacing: float, *, extended: bool = False) -> Window:
    """The shortest window; in long double, which allows a shorter one, also where that one would be
    long.
    """
    window = _shortest(law, tilt, spacing, extended=extended)
    if extended or not WIDE or window.points(spacing) < _MANY:
        return window
    other = _shortest(law, tilt, spacing, extended=True)
    return other if other.width < 0.25 * window.width else window


def _shortest(law: Law, tilt: Tilt, spacing: float, *, extended: bool) -> Window:
    """The window at this tilt or, where rare large losses make it long, at a smaller one that still
    keeps rounding away.
    """
    best = _windows(law, tilt, _LESS[:1])[0]
    if tilt.theta * best.width >= _LONG:
        theta = tilt.theta * _LESS
        lost = law.loose(theta, spacing) + log_peak(theta) - theta * tilt.epsilon - tilt.log_delta
        # Rounding errors grow with the number of steps, so fewer are allowed to be magnified then.
        allowed = (
            _LOSS
            - max(-2.0, math.log(sum(count for _, count in law.parts) / 1e5))
            + (_EXTENDED if extended else 0.0)
        )
        for one, window in zip(lost.tolist(), _windows(law, tilt, _LESS), strict=True):
            if one < allowed and window.width < 0.97 * best.width:
                best = window
    return replace(best, extended=extended)


def period(law: Law, tilt: Tilt, delta: float) -> float:
    """Length of a window with wrapping far below delta, for the estimate."""
    return 1.2 * _windows(law, replace(tilt, log_delta=math.log(delta) - 12.0), _LESS[:1])[0].width


def _windows(law: Law, tilt: Tilt, factors: FloatArray) -> list[Window]:
    """As short a window as tails and wrapping allow, at each of several multiples of the tilt."""
    exponents = tilt.theta * factors[:, None] * np.concatenate([_RISE, -_FALL])[None, :]
    cumulants = law.cumulant(exponents.ravel()).reshape(exponents.shape)
    return [
        _window(tilt, theta, k)
        for theta, k in zip((tilt.theta * factors).tolist(), cumulants, strict=True)
    ]


def _window(tilt: Tilt, theta: float, cumulant: FloatArray) -> Window:
    """From the cumulant K at the exponents a, theta times _RISE, and -b, minus theta times _FALL.

    With W the width and goal the ln of what may be lost, all conditions are linear in W:

        above the window           K(a) - a high <= goal
        wrapped up from below      K(-b) + b (high - W) - theta W <= goal
        wrapped down from above    K(a) - a (floor + W) + theta W <= goal,   a > theta.
    """
    goal = tilt.log_delta + math.log(SMALL)
    floor = max(_TRUSTED * tilt.epsilon, tilt.epsilon - 10.0 / theta)
    rise, fall = theta * _RISE, theta * _FALL
    up, down = cumulant[: len(rise)], cumulant[len(rise) :]
    reach = (up - goal) / rise
    tail = int(np.argmin(reach))
    high = float(reach[tail])
    steep, steep_up = rise[_RISE > 1.0], up[_RISE > 1.0]
    from_below = (down + fall * high - goal) / (fall + theta)
    from_above = (steep_up - steep * floor - goal) / (steep - theta)
    width = 1.001 * max(
        float(from_below.min()), float(from_above.min()), 1.02 * (high - floor), 1e-300
    )
    wrap_down = fall[int(np.argmin(down + fall * (high - width)))]
    wrap_up = steep[int(np.argmin(steep_up - steep * (floor + width)))]
    return Window(
        high - width, high, floor, float(rise[tail]), float(wrap_down), float(wrap_up), theta
    )
