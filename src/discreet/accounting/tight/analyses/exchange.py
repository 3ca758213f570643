"""One record exchanged inside a sample of fixed size: the curve that covers both sides of epsilon
0.

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

from discreet.accounting.tight.analyses.poisson import PoissonAdd, PoissonRemove
from discreet.accounting.tight.interface import Bounds, Cells, Quadrature
from discreet.accounting.tight.rounding import FloatArray, U, normal_mass

__all__ = ["Exchange"]

_SPREAD = 38.0
_STEP = 0.02  # of the midpoint rule, in standard deviations


@dataclass(frozen=True, slots=True)
class Exchange:
    """See the header.

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
        half = 0.5 / s
        middle, error = normal_mass(
            np.array([-half * (1.0 + 4.0 * U)]), np.array([half * (1.0 + 4.0 * U)])
        )
        # Phi is 0.4-Lipschitz in z and half is exact to 2u, so 8u covers the argument.
        error = error + 8.0 * U * (1.0 + half)
        atom = Bounds(
            np.maximum((1.0 - g) * (middle - error) * (1.0 - 4.0 * U), 0.0),
            (1.0 - g) * (middle + error) * (1.0 + 4.0 * U),
        )
        reach = (
            math.exp(float(below[-1])) if len(below) else 0.0
        )  # e^(lower end of the cell that holds 0)
        rise = -math.expm1(float(below[-1])) if len(below) else 1.0
        mass = [_cut(down.mass, last=False), _cut(up.mass, last=True)]
        over = [_cut(down.over, last=False), _cut(up.over, last=True)]
        under = [_cut(down.under, last=False), _cut(up.under, last=True)]
        _add(mass[0], -1, atom, 1.0)
        _add(over[0], -1, atom, rise)
        if len(below) + len(above) < len(edges):
            return Cells(_joined(mass), _joined(over), _joined(under), max(down.slack, up.slack))
        top = float(above[0]) if len(above) else 0.0
        # P - e^l Q = P (1 - e^l) + e^l (P - Q) for the part above 0; the mirror image for the part
        # below.
        first = Bounds(mass[1].lower[:1], mass[1].upper[:1])
        last = Bounds(
            mass[0].lower[-1:], mass[0].upper[-1:]
        )  # with the atom, whose under at 0 is 0
        joined_over = _plus(_part(over[0], -1), first, rise, _part(over[1], 0), reach)
        joined_under = _plus(
            _part(under[1], 0), last, math.expm1(top), _part(under[0], -1), math.exp(top)
        )
        joined_mass = _plus(last, first, 1.0, first, 0.0)
        return Cells(
            _around(mass, joined_mass),
            _around(over, joined_over),
            _around(under, joined_under),
            max(down.slack, up.slack),
        )


def _cut(bounds: Bounds, *, last: bool) -> Bounds:
    """Without the first cell (keep the side above 0) or without the last (the side below)."""
    keep = slice(1, None) if last else slice(None, -1)
    return Bounds(bounds.lower[keep].copy(), bounds.upper[keep].copy())


def _add(bounds: Bounds, place: int, term: Bounds, factor: float) -> None:
    bounds.lower[place] += float(term.lower[0]) * factor * (1.0 - 16.0 * U)
    bounds.upper[place] += float(term.upper[0]) * factor * (1.0 + 16.0 * U)
    bounds.lower[place] *= 1.0 - 4.0 * U
    bounds.upper[place] *= 1.0 + 4.0 * U


def _part(bounds: Bounds, place: int) -> Bounds:
    return Bounds(np.array([bounds.lower[place]]), np.array([bounds.upper[place]]))


def _plus(
    one: Bounds, two: Bounds, factor_two: float, three: Bounds, factor_three: float
) -> Bounds:
    """Bounds on one + factor_two * two + factor_three * three, all non-negative, rounded outward."""
    lower = one.lower + factor_two * two.lower + factor_three * three.lower
    upper = one.upper + factor_two * two.upper + factor_three * three.upper
    return Bounds(lower * (1.0 - 16.0 * U), upper * (1.0 + 16.0 * U))


def _joined(sides: list[Bounds]) -> Bounds:
    return Bounds(
        np.concatenate([side.lower for side in sides]),
        np.concatenate([side.upper for side in sides]),
    )


def _around(sides: list[Bounds], centre: Bounds) -> Bounds:
    """Both sides with the two cells that meet at 0 replaced by one."""
    return Bounds(
        np.concatenate([sides[0].lower[:-1], centre.lower, sides[1].lower[1:]]),
        np.concatenate([sides[0].upper[:-1], centre.upper, sides[1].upper[1:]]),
    )
