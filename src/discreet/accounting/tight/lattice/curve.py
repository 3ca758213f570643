"""Delta at an epsilon, and back, from the transform of a composed measure.

The composed measure has the tilted mass c_i on the places i of a window, at the losses s_i, so that
D(eps) = e^(K - theta eps) sum_i c_i e^(-theta (s_i - eps)) (1 - e^(eps - s_i))_+. For every
frequency k of c_i = sum_k Re(power_k z_k^i), z_k = e^(2 pi i k / n), the sum over all places from
one at the distance a = s_i - eps >= 0 upwards is a geometric series, with h the spacing and r_k =
e^(-theta h) z_k:

    e^(-theta a) z_k^i (1 - e^-a + r_k (e^-a - e^-h)) / ((1 - r_k) (1 - e^-h r_k)),

and the window is the series from its first place above eps, less the one from the place after its
last, which is e^(-theta a) z_k^i (1/(1 - r_k) - e^-a/(1 - e^-h r_k)) before it is put over a common
denominator. For a <= h both terms of the numerator are positive but for the phase of r_k, and the
two factors of the denominator are computed without cancellation: nothing is lost to rounding that
the largest term, that of frequency 0, does not bound (docs/proofs/tight.md, section 5, "Curve" and
"Reading off").
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.accounting.roots import crossing
from discreet.accounting.tight.lattice.compose import Composed, Tilted
from discreet.accounting.tight.lattice.spectrum import phases
from discreet.accounting.tight.rounding import U, block_sum, sum_error

__all__ = ["PrivacyCurve", "Unknown", "composed_curve"]

# A crossing is looked for to this relative distance, and an end is tried so far from it first.
_CLOSEST = 1e-10

# Relative roundings of the factors in front of the sum, besides those that grow with its exponent.
_FACTORS = 128.0


@dataclass(frozen=True, slots=True)
class Unknown:
    """A curve that says nothing: infinity as an upper bound, 0 as a lower one."""

    value: float

    def delta(self, epsilon: float) -> float:  # noqa: ARG002 the same at every epsilon
        """The value that bounds every curve."""
        return self.value

    def epsilon(self, delta: float, near: float) -> float:  # noqa: ARG002 the same at every delta
        """Infinity as an upper bound, 0 as a lower one."""
        return self.value

    def rounding(self, epsilon: float) -> float:  # noqa: ARG002 the same at every epsilon
        """None: nothing was computed."""
        return 0.0


@dataclass(frozen=True, slots=True)
class PrivacyCurve:
    """A bound D on delta as a function of epsilon, from `least` upwards.

    Attributes:
        part: tilt, normalisation and spacing of what was composed.
        composed: the transform.
        last: the last place of the window.
        least: the least epsilon at which D is a bound.
        outward: +1 for an upper bound, -1 for a lower one.
        constant: added to every D (positive in an upper, negative in a lower bound).
        series: power_k / ((1 - r_k) (1 - e^-h r_k)), and the same times r_k.
        ends: the sums over k of power_k / (1 - r_k) and of power_k / (1 - e^-h r_k), at the place
            after the last.
        errors: of every place, and of the sums over k for terms of size power_k.
    """

    part: Tilted
    composed: Composed
    last: int
    least: float
    outward: int
    constant: float
    series: tuple[Any, Any]
    ends: tuple[float, float]
    errors: tuple[float, float]

    def delta(self, epsilon: float) -> float:
        """The bound D at an epsilon of at least `least`; a lower one is cut at 0."""
        log = self._log_sum(epsilon)
        return max(math.exp(min(log, 0.0)) + self.constant, 0.0)

    def epsilon(self, delta: float, near: float) -> float:
        """An epsilon with D(epsilon) <= delta for an upper bound, D(epsilon) >= delta for a lower
        one, next to where D crosses delta; looked for from `near` on.

        `least` if an upper bound is below delta there. An upper bound whose constant alone exceeds
        delta has none: infinity. A lower bound that does not reach delta says nothing: 0.
        """
        sought = delta - self.constant
        if sought <= 0.0:
            return math.inf

        goal = math.log(sought)

        # No loss is above the window's end, so an epsilon there has nothing but the constant.
        highest = self.part.origin + self.part.spacing * (self.last + 1)
        root = crossing(
            lambda epsilon: self._log_sum(epsilon) - goal,
            (self.least, highest),
            near,
            -self.part.theta,
            _CLOSEST,
        )
        end = self._proven(root, goal, highest)
        is_proven = self.outward > 0 or end > self.least or self._log_sum(end) >= goal
        return end if is_proven else 0.0

    def _proven(self, root: float, goal: float, highest: float) -> float:
        """The nearest epsilon on the safe side of the root that its own evaluation proves."""
        margin = _CLOSEST * max(abs(root), self.part.spacing)

        while self.least <= root + self.outward * margin <= highest:
            end = root + self.outward * margin
            if self.outward * (self._log_sum(end) - goal) <= 0.0:
                return end

            margin *= 2.0

        return highest if self.outward > 0 else self.least

    def rounding(self, epsilon: float) -> float:
        """The part of D that rounding makes up, about."""
        _, error = self._sum(epsilon)
        return math.exp(min(self._log_factor(epsilon), 700.0)) * error

    def _log_sum(self, epsilon: float) -> float:
        """The ln of D without its constant, rounded outward; of 0 that is minus infinity."""
        total, error = self._sum(epsilon)
        total += self.outward * error
        return self._log_factor(epsilon) + math.log(total) if total > 0.0 else -math.inf

    def _log_factor(self, epsilon: float) -> float:
        """The ln of what stands before the sum, rounded outward for both."""
        total, tilt = self.part.log_total, self.part.theta * epsilon

        # A distance from epsilon is off by a few units of both losses that it lies between.
        sizes = abs(total) + abs(tilt) + self.part.theta * abs(self.part.origin) + _FACTORS
        return total - tilt + self.outward * 8.0 * U * sizes

    def _sum(self, epsilon: float) -> tuple[float, float]:
        """The sum of the header at one epsilon, and a bound on its error."""
        theta, spacing = self.part.theta, self.part.spacing

        # The first place above epsilon, and its distance: exact for an epsilon that is off by a few
        # units in the last place, which the slack covers.
        position = (epsilon - self.part.origin) / spacing
        place = math.floor(position) + 1
        if place > self.last:
            return 0.0, 0.0

        distance = (place - position) * spacing
        beyond = distance + spacing * (self.last + 1 - place)
        turned = _turned(self.composed, place)
        sums = [float(block_sum((series * turned).real)) for series in self.series]

        # From this place on, less what comes after the window.
        near = -math.expm1(-distance), math.exp(-spacing) * math.expm1(spacing - distance)
        decay, decay_beyond = math.exp(-theta * distance), math.exp(-theta * beyond)
        inside = decay * (near[0] * sums[0] + near[1] * sums[1])
        outside = decay_beyond * (self.ends[0] - math.exp(-beyond) * self.ends[1])

        # The atom at place 0 of the composition, if that lies above epsilon.
        apart, gap = 0.0, distance - spacing * place
        if place <= 0 <= self.last:
            apart = self.composed.atom * math.exp(-theta * gap) * -math.expm1(-gap)

        # The errors of all places, and those of the sums, as if all were at frequency 0; then those
        # of the last operations.
        plain, steep = (1.0 / -math.expm1(-spacing * rate) for rate in (theta, 1.0 + theta))
        size = decay * (near[0] + math.exp(-theta * spacing) * near[1]) * plain * steep
        size_beyond = decay_beyond * (plain + steep) * (1.0 + theta * beyond / 32.0)
        error = self.errors[0] * size + self.errors[1] * (size + size_beyond)
        error += 16.0 * U * (abs(inside) + abs(outside) + apart * (64.0 + theta * abs(gap)))
        return inside - outside + apart, error


def composed_curve(
    part: Tilted,
    composed: Composed,
    window: tuple[int, float],
    *,
    outward: int,
    constant: float = 0.0,
) -> PrivacyCurve:
    """The curve of a composed measure.

    Args:
        part: tilt and normalisation.
        composed: the tilted masses, as a transform.
        window: its last place, and the least epsilon at which the curve is a bound.
        outward: +1 for an upper bound, -1 for a lower one.
        constant: see `PrivacyCurve`.
    """
    kind = composed.power.real.dtype.type
    decay, decay_more = (-part.spacing * rate for rate in (part.theta, 1.0 + part.theta))
    turned = phases(composed.frequency, composed.length, kind)
    half = phases(composed.frequency, 2 * composed.length, kind).imag
    gentle, steep = (_one_minus(rate, turned, half) for rate in (decay, decay_more))
    plain = composed.power / gentle / steep
    series = plain, plain * (math.exp(decay) * turned)

    # After the window: nothing cancels between the two series there, as a is far above h.
    beyond = composed.power * _turned(composed, window[0] + 1)
    ends = float(block_sum((beyond / gentle).real)), float(block_sum((beyond / steep).real))
    unit = float(np.finfo(kind).eps) / 2.0
    rounding = float(np.sum(np.abs(composed.power))) * (sum_error(len(plain), unit) + 128.0 * unit)
    return PrivacyCurve(
        part,
        composed,
        *window,
        outward,
        constant,
        series,
        ends,
        (composed.error * (1.0 + 1e-12), rounding * (1.0 + 1e-12)),
    )


def _turned(composed: Composed, place: int) -> Any:
    """The phases z_k^place; whole numbers as long as they can be, so that no digits are lost."""
    turn: NDArray[np.int64] = np.mod(
        composed.frequency * (place % composed.length), composed.length
    )
    return phases(turn, composed.length, composed.power.real.dtype.type)


def _one_minus(log: float, turned: Any, half: Any) -> Any:
    """1 - e^(log + iy) for a log below 0, from e^(iy) and sin(y/2), without cancellation: 1 - cos y
    = 2 sin^2(y/2).
    """
    size = math.exp(log)
    return -math.expm1(log) + 2.0 * size * half * half - 1j * size * turned.imag
