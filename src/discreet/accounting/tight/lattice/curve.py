"""From the composed measure to delta at an epsilon, and back.

On the lattice s_0 < s_1 < ... with masses c_i (untilted), D(eps) = sum_i c_i (1 - e^(eps - s_i))_+
is linear in e^eps between neighbouring nodes, with slope -B_i = -sum_(k >= i) c_k e^(-s_k) just
below s_i, so that

    D(s_(i-1)) = sum_(k >= i) (e^(s_k) - e^(s_(k-1))) B_k:

two sums of positive terms, without cancellation (docs/proofs/tight.md, section 5, "Curve" and
"Reading off").
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from discreet.accounting.tight.lattice.compose import Tilted
from discreet.accounting.tight.rounding import FloatArray, U

__all__ = ["PrivacyCurve", "composed_curve", "unknown"]

# Tilts beyond e^(+-500) are cut off; what lies above is bounded separately.
_REACH = 500.0

# Loss within which e^-loss is summed up in one go.
_BLOCK = 300.0


@dataclass(frozen=True, slots=True)
class PrivacyCurve:
    """ln D(eps) = log_scale + ln(value of the arrays), plus a constant delta.

    Attributes:
        node: the lattice s_i, ascending.
        slope: B_i e^(s_i) in the unit e^log_scale.
        value: D(s_i) in the unit e^log_scale.
        log_scale: ln of the unit, rounded outward for the errors of the sums.
        constant: added to every D (positive in an upper, negative in a lower bound).
    """

    node: FloatArray
    slope: FloatArray
    value: FloatArray
    log_scale: float
    constant: float

    def reaches(self, delta: float) -> bool:
        """Whether D is above delta somewhere on the lattice."""
        return self.delta(float(self.node[0])) > delta

    def delta(self, epsilon: float) -> float:
        """The value D at one epsilon, within the lattice."""
        i = min(int(np.searchsorted(self.node, epsilon)), len(self.node) - 1)
        gap = -math.expm1(min(epsilon - float(self.node[i]), 0.0))
        inside = float(self.value[i]) + gap * float(self.slope[i])
        if inside <= 0.0:
            return max(self.constant, 0.0)

        log = self.log_scale + math.log(inside)
        return max(math.exp(min(log, 0.0)) + self.constant, 0.0)

    def epsilon(self, delta: float) -> float:
        """The least epsilon of the lattice's range with D(eps) <= delta; its lowest node if all are
        below.

        Infinity if the constant alone exceeds delta.
        """
        sought = delta - self.constant
        if sought <= 0.0:
            return math.inf

        goal = math.exp(min(math.log(sought) - self.log_scale, 700.0))
        above = np.flatnonzero(self.value > goal)
        if len(above) == 0:
            return float(self.node[0])

        i = min(int(above[-1]) + 1, len(self.node) - 1)
        slope = float(self.slope[i])
        if slope <= 0.0 or float(self.value[i]) > goal:
            return float(self.node[i])

        # Linear in e^eps below node i: value_i + (1 - e^(eps - s_i)) slope_i = goal.
        share = min((goal - float(self.value[i])) / slope, 1.0)
        crossing = float(self.node[i]) + math.log1p(-min(share, 1.0 - 1e-15))
        return max(crossing, float(self.node[i - 1]))


def composed_curve(
    node: FloatArray,
    mass: FloatArray,
    part: Tilted,
    near: float,
    *,
    outward: int,
    constant: float = 0.0,
) -> PrivacyCurve:
    """Sum up tilted masses on equally spaced nodes to a privacy curve.

    Args:
        node: losses, ascending.
        mass: tilted masses there; the untilted ones are mass * e^(log_total - theta * node).
        part: tilt and normalisation.
        near: the epsilon around which exact values are wanted.
        outward: +1 for an upper bound, -1 for a lower one.
        constant: see `Curve`.
    """
    theta = part.theta
    reach = theta * np.abs(node - near) <= _REACH
    if np.count_nonzero(reach) < 2:
        return unknown(math.inf if outward > 0 else -1.0)

    is_cut = bool(node[-1] > node[reach][-1])
    node, mass = node[reach], mass[reach]

    # Untilted relative to `near`, so that the exponentials stay in range there.
    slope = _decayed(mass * np.exp(-theta * (node - near)), part.spacing)
    steps = slope * -math.expm1(-part.spacing)
    value = np.concatenate([np.cumsum(steps[:0:-1])[::-1], [0.0]])
    sizes = len(node) + 2.0 * _REACH + 2.0 * _BLOCK + abs(part.log_total) + theta * abs(near)
    relative = 8.0 * U * sizes
    if is_cut and outward > 0:
        # Chernoff at the tilt itself, for what lies above the last node that is summed.
        constant += math.exp(min(part.log_total - theta * float(node[-1]) + 1.0, 0.0))

    return PrivacyCurve(
        node, slope, value, part.log_total - theta * near + outward * relative, constant
    )


def _decayed(weight: FloatArray, spacing: float) -> FloatArray:
    """sum_(k >= i) w_k e^(-(k - i) spacing) for every i: suffix sums, in blocks so that no
    exponential leaves its range.
    """
    length = max(1, min(len(weight), int(_BLOCK / spacing)))
    decay = np.exp(-spacing * np.arange(length + 1, dtype=np.float64))
    total = np.empty_like(weight)
    after = 0.0

    for begin in range((len(weight) - 1) // length * length, -1, -length):
        block = weight[begin : begin + length]
        size = len(block)

        # Inside the block: weights decayed from its beginning, summed from its end, put back.
        inner = np.cumsum((block * decay[:size])[::-1])[::-1] / decay[:size]
        total[begin : begin + size] = inner + after * decay[size:0:-1]
        after = float(total[begin])

    return total


def unknown(constant: float) -> PrivacyCurve:
    """A curve that says nothing: constant infinity as an upper bound, -1 as a lower one."""
    return PrivacyCurve(np.array([0.0, 1.0]), np.zeros(2), np.zeros(2), 0.0, constant)
