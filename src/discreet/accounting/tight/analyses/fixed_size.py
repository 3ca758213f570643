"""Samples of fixed size without replacement: which pair bounds a step from above. (What two data
sets attain from below is in `accounting/attained.py`.)

Legend: g the probability that the exchanged record is in the sample, s the noise over the largest
distance of two means (half the noise multiplier, if a record may be exchanged for its opposite),
N(m) = N(m, s^2), M = (1-g) N(0) + g N(1). Theorem (docs/proofs/fixed_size.md): the two outputs are
dominated, in either direction, by any pair with the curve

    D(eps) = H(M || N(0))  for eps >= 0,      D(eps) = H(N(0) || M)  for eps < 0,

H the hockey-stick divergence at e^eps. The curve is convex in e^eps, so such a pair exists. Its
loss is that of `PoissonRemove` where positive, that of `PoissonAdd` where negative, and 0 with what
is left of the probability, (1-g) (2 Phi(1/(2s)) - 1), the same under both distributions. The pair
is its own reverse: one direction is enough.

Using the first line for negative eps as well is *not* valid under composition: tests/statistics
shows two data sets whose delta it understates (g = 0.3, noise multiplier 0.5, 8 steps).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from discreet.accounting.costs import FixedSizeGaussian
from discreet.accounting.tight.analyses.poisson import PoissonAdd, PoissonRemove
from discreet.accounting.tight.interface import Bounds, Cells, Direction, Quadrature
from discreet.accounting.tight.rounding import FloatArray, U, normal_mass

__all__ = ["Exchange", "fixed_size_directions"]

# Standard deviations that the quadrature covers.
_SPREAD = 38.0

# The step of the midpoint rule, in standard deviations.
_STEP = 0.02


def fixed_size_directions(cost: FixedSizeGaussian) -> tuple[Direction, Direction]:
    """The dominating pair of one step, replace-one and zero-out: one direction twice, because the
    pair is its own reverse.

    Guarantee: dominates in every direction and under adaptive composition
    (docs/proofs/fixed_size.md). Not claimed: that some data sets attain it.
    """
    fraction = min(math.nextafter(cost.size / cost.records, math.inf), 1.0)
    pair = Exchange(fraction, cost.noise_multiplier / 2.0)
    return pair, pair


@dataclass(frozen=True, slots=True)
class Exchange:
    """One record exchanged inside a sample of fixed size: the pair of the header.

    Args:
        probability: g, rounded up.
        noise_multiplier: s, rounded down: noise divided by the distance of the means of an
            exchange.
    """

    probability: float
    noise_multiplier: float

    def quadrature(self) -> Quadrature:
        """Midpoint rule over x > 1/2 for either sign of the loss, and the atom at 0."""
        g, s = self.probability, self.noise_multiplier
        step = min(_STEP * s, 0.1 * s * s)
        x = 0.5 + step * (0.5 + np.arange(math.ceil((_SPREAD * s + 0.5) / step)))
        log_q = math.log(step) - math.log(s * math.sqrt(2.0 * math.pi)) - x * x / (2.0 * s * s)
        y = (2.0 * x - 1.0) / (2.0 * s * s)
        loss = np.logaddexp(math.log1p(-g), math.log(g) + y) if g < 1.0 else y
        loss = np.maximum(loss, 0.0)
        middle = max((1.0 - g) * math.erf(1.0 / (s * math.sqrt(8.0))), 1e-300)
        return Quadrature(
            np.concatenate([-loss[::-1], [0.0], loss]),
            np.concatenate([log_q[::-1], [math.log(middle)], log_q + loss]),
        )

    def cells(self, edges: FloatArray) -> Cells:
        """Cells of the two sides, cut at 0, where the atom is; the two that meet there are joined
        unless 0 is an edge.
        """
        g, s = self.probability, self.noise_multiplier
        below, above = edges[edges < 0.0], edges[edges > 0.0]
        down = PoissonAdd(g, s).cells(np.concatenate([below, [0.0]]))
        up = PoissonRemove(g, s).cells(np.concatenate([[0.0], above]))
        slack = max(down.slack, up.slack)

        # Of each pair only its own side of 0 counts. The atom at 0 lies in the last cell below.
        mass = (_side(down.mass, slice(None, -1)), _side(up.mass, slice(1, None)))
        over = (_side(down.over, slice(None, -1)), _side(up.over, slice(1, None)))
        under = (_side(down.under, slice(None, -1)), _side(up.under, slice(1, None)))
        rise = -math.expm1(float(below[-1])) if len(below) else 1.0
        atom = self._atom()
        _add_to_last(mass[0], atom, 1.0)
        _add_to_last(over[0], atom, rise)
        if len(below) + len(above) < len(edges):
            return Cells(_joined(*mass), _joined(*over), _joined(*under), slack)

        # 0 is no edge, so the two cells that meet there are one, from l < 0 to l' > 0. Its part
        # above 0 has P - e^l Q = P (1 - e^l) + e^l (P - Q); the part below is the mirror image,
        # with the atom, whose `under` at 0 is 0.
        reach = math.exp(float(below[-1])) if len(below) else 0.0
        top = float(above[0]) if len(above) else 0.0
        first, last = _side(mass[1], slice(1)), _side(mass[0], slice(-1, None))
        centre_mass = _weighted_sum((last, 1.0), (first, 1.0))
        centre_over = _weighted_sum(
            (_side(over[0], slice(-1, None)), 1.0), (first, rise), (_side(over[1], slice(1)), reach)
        )
        centre_under = _weighted_sum(
            (_side(under[1], slice(1)), 1.0),
            (last, math.expm1(top)),
            (_side(under[0], slice(-1, None)), math.exp(top)),
        )
        return Cells(
            _around(mass, centre_mass),
            _around(over, centre_over),
            _around(under, centre_under),
            slack,
        )

    def _atom(self) -> Bounds:
        """The mass (1-g) (2 Phi(1/(2s)) - 1) at the loss 0."""
        g, half = self.probability, 0.5 / self.noise_multiplier
        middle, error = normal_mass(
            np.array([-half * (1.0 + 4.0 * U)]), np.array([half * (1.0 + 4.0 * U)])
        )

        # Phi is 0.4-Lipschitz in z and half is exact to 2u, so 8u covers the argument.
        error = error + 8.0 * U * (1.0 + half)
        return Bounds(
            np.maximum((1.0 - g) * (middle - error) * (1.0 - 4.0 * U), 0.0),
            (1.0 - g) * (middle + error) * (1.0 + 4.0 * U),
        )


def _side(bounds: Bounds, cells: slice) -> Bounds:
    """A copy of the bounds on some of the cells."""
    return Bounds(bounds.lower[cells].copy(), bounds.upper[cells].copy())


def _add_to_last(bounds: Bounds, term: Bounds, factor: float) -> None:
    """Add factor times the term to the last cell, rounded outward."""
    bounds.lower[-1] += float(term.lower[0]) * factor * (1.0 - 16.0 * U)
    bounds.upper[-1] += float(term.upper[0]) * factor * (1.0 + 16.0 * U)
    bounds.lower[-1] *= 1.0 - 4.0 * U
    bounds.upper[-1] *= 1.0 + 4.0 * U


def _weighted_sum(*terms: tuple[Bounds, float]) -> Bounds:
    """Bounds on a sum of at most three non-negative products, rounded outward."""
    lower = sum((factor * bounds.lower for bounds, factor in terms), start=np.zeros(1))
    upper = sum((factor * bounds.upper for bounds, factor in terms), start=np.zeros(1))
    return Bounds(lower * (1.0 - 16.0 * U), upper * (1.0 + 16.0 * U))


def _joined(below: Bounds, above: Bounds) -> Bounds:
    """The cells of both sides, one after the other."""
    return Bounds(
        np.concatenate([below.lower, above.lower]), np.concatenate([below.upper, above.upper])
    )


def _around(sides: tuple[Bounds, Bounds], centre: Bounds) -> Bounds:
    """The cells of both sides with the two that meet at 0 replaced by one."""
    below, above = sides
    return Bounds(
        np.concatenate([below.lower[:-1], centre.lower, above.lower[1:]]),
        np.concatenate([below.upper[:-1], centre.upper, above.upper[1:]]),
    )
