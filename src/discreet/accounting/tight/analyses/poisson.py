"""The Poisson-subsampled Gaussian, add-or-remove, in both directions; probability 1 is the plain
Gaussian.

With q the probability, s the noise multiplier, N(m) = N(m, s^2), and r(x) = exp((2x - 1)/(2 s^2))
the ratio of N(1) to N(0):

    remove:  P = (1-q) N(0) + q N(1),  Q = N(0),   L(x) = ln(1 - q + q r(x)), increasing
    add:     P and Q exchanged,                    loss -L(x)

For a cell of x between two edges, N0 and N1 its masses under N(0) and N(1), and g = L(edge), r =
r(edge):

    P - e^g Q = q (N1 - r N0)          at the lower edge,   non-negative
    e^g Q - P = q (r N0 - N1)          at the upper edge,   non-negative
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from discreet.accounting.tight.interface import Bounds, Cells, Quadrature
from discreet.accounting.tight.rounding import FloatArray, OutOfRangeError, U, normal_mass

__all__ = ["PoissonAdd", "PoissonRemove", "log_mixture", "quadrature_nodes"]

_SPREAD = 38.0  # standard deviations that the quadrature covers on either side
_FARTHEST = 500.0  # e^500 times the absolute error 1e-300 of a normal mass is still nothing


@dataclass(frozen=True, slots=True)
class PoissonRemove:
    """The direction in which the unit is in the sample under P and never under Q."""

    probability: float
    noise_multiplier: float

    def quadrature(self) -> Quadrature:
        """Trapezoidal rule in x, spectrally accurate: the integrand is analytic in a strip of
        half-width pi s^2.
        """
        q, s = self.probability, self.noise_multiplier
        x = quadrature_nodes(s, -_SPREAD * s, 1.0 + _SPREAD * s)
        step = math.log(x[1] - x[0]) - math.log(s * math.sqrt(2.0 * math.pi))
        y = (2.0 * x - 1.0) / (2.0 * s * s)
        loss = log_mixture(q, y)
        return Quadrature(loss, step - x * x / (2.0 * s * s) + loss)

    def cells(self, edges: FloatArray) -> Cells:
        """See the header; edges below ln(1-q) have nothing under them."""
        n0, n1, ratio, slack = _masses(self.probability, self.noise_multiplier, edges)
        q = self.probability
        mass = Bounds(
            np.maximum((1.0 - q) * n0.lower + q * n1.lower, 0.0) * (1.0 - 4.0 * U),
            ((1.0 - q) * n0.upper + q * n1.upper) * (1.0 + 8.0 * U),
        )
        over, under = _over_under(q, n0, n1, ratio)
        return Cells(mass, over, under, float(np.max(slack)), slack)


@dataclass(frozen=True, slots=True)
class PoissonAdd:
    """The direction in which the unit is in the sample under Q and never under P."""

    probability: float
    noise_multiplier: float

    def quadrature(self) -> Quadrature:
        """As `PoissonRemove.quadrature`, under N(0), by increasing -L."""
        q, s = self.probability, self.noise_multiplier
        x = quadrature_nodes(s, -_SPREAD * s, _SPREAD * s)
        step = math.log(x[1] - x[0]) - math.log(s * math.sqrt(2.0 * math.pi))
        loss = -log_mixture(q, (2.0 * x - 1.0) / (2.0 * s * s))
        return Quadrature(loss[::-1], (step - x * x / (2.0 * s * s))[::-1])

    def cells(self, edges: FloatArray) -> Cells:
        """With L' = -L: P' - e^(-g) Q' = e^(-g) (e^g Q - P), so over and under change places, times
        e^(edge).
        """
        n0, n1, ratio, slack = _masses(self.probability, self.noise_multiplier, -edges[::-1])
        over, under = _over_under(self.probability, n0, n1, ratio)
        factor = np.exp(edges)
        below = np.concatenate([[0.0], factor])
        above = np.concatenate([factor, [0.0]])
        return Cells(
            Bounds(n0.lower[::-1], n0.upper[::-1]),
            Bounds(
                under.lower[::-1] * below * (1.0 - 8.0 * U),
                under.upper[::-1] * below * (1.0 + 8.0 * U),
            ),
            Bounds(
                over.lower[::-1] * above * (1.0 - 8.0 * U),
                over.upper[::-1] * above * (1.0 + 8.0 * U),
            ),
            float(np.max(slack)),
            slack[::-1],
        )


def quadrature_nodes(s: float, low: float, high: float) -> FloatArray:
    """Equally spaced x, close enough for the trapezoidal rule to be exact to rounding."""
    step = min(0.1 * s, 0.4 * s * s)
    return np.arange(low, high + step, step)


def log_mixture(q: float, y: FloatArray) -> FloatArray:
    """ln(1 - q + q e^y), accurate where it is near 0 and where e^y overflows."""
    if q == 1.0:
        return y
    small = np.log1p(q * np.expm1(np.minimum(y, 300.0)))
    large = y + np.log(q) + np.log1p((1.0 - q) / q * np.exp(-np.maximum(y, 300.0)))
    return np.where(y < 300.0, small, large)


def _masses(
    q: float, s: float, edges: FloatArray
) -> tuple[Bounds, Bounds, tuple[FloatArray, FloatArray], FloatArray]:
    """Masses of the cells under N(0) and N(1); the ratio r at every edge with its error; the slack
    of the edges.
    """
    if not np.all(np.abs(edges) < _FARTHEST):
        raise OutOfRangeError(
            expected="a privacy loss of one step within the range of float64",
            got=f"noise multiplier {s:.3g} at loss {float(edges[-1]):.4g}",
            do="Use more noise, or the 'rdp' accountant.",
        )
    if q == 1.0:
        ratio = np.exp(edges)
        y = edges
        ratio_error = 8.0 * U * ratio
    else:
        v = np.expm1(edges) / q
        ratio = (
            1.0 + v
        )  # negative for an edge below the least loss ln(1-q): no x lies there, the formulas stay true
        y = np.log(ratio, where=ratio > 0.0, out=np.full_like(ratio, -np.inf))
        near = np.abs(v) < 0.5
        y[near] = np.log1p(v[near])
        ratio_error = 16.0 * U * (1.0 + np.abs(v))
    x = s * s * y + 0.5
    z0, z1 = x / s, (x - 1.0) / s
    ends0 = np.concatenate([[-np.inf], z0, [np.inf]])
    ends1 = np.concatenate([[-np.inf], z1, [np.inf]])
    n0, e0 = normal_mass(ends0[:-1], ends0[1:])
    n1, e1 = normal_mass(ends1[:-1], ends1[1:])
    finite = np.isfinite(y)
    # d(loss) = e^-l q r d(y): relative errors of v, of y and of x in turn (docs/proofs/tight.md,
    # section 4).
    weight = np.exp(-edges) * q * np.maximum(ratio, 0.0)
    moved = np.abs(np.expm1(-edges)) + np.where(
        finite, weight * (2.0 * np.abs(np.where(finite, y, 0.0)) + 2.0 / (s * s)), 0.0
    )
    slack = 16.0 * U * (moved + np.abs(edges))
    low0, low1 = np.maximum(n0 - e0, 0.0), np.maximum(n1 - e1, 0.0)
    return Bounds(low0, n0 + e0), Bounds(low1, n1 + e1), (ratio, ratio_error), slack


def _over_under(
    q: float, n0: Bounds, n1: Bounds, ratio: tuple[FloatArray, FloatArray]
) -> tuple[Bounds, Bounds]:
    """Bounds on q (N1 - r N0) at the lower edge and q (r N0 - N1) at the upper edge of every cell."""
    low, high = (1.0 - 8.0 * U), (1.0 + 8.0 * U)
    below = _product(
        ratio, n0.lower[1:], n0.upper[1:]
    )  # at the lower edge of each cell but the first
    above = _product(
        ratio, n0.lower[:-1], n0.upper[:-1]
    )  # at the upper edge of each cell but the last
    over_low = q * np.maximum(n1.lower[1:] * low - below.upper, 0.0) * low
    over_high = q * np.maximum(n1.upper[1:] * high - below.lower, 0.0) * high
    under_low = q * np.maximum(above.lower - n1.upper[:-1] * high, 0.0) * low
    under_high = q * np.maximum(above.upper - n1.lower[:-1] * low, 0.0) * high
    zero = np.zeros(1)
    return (
        Bounds(np.concatenate([zero, over_low]), np.concatenate([zero, over_high])),
        Bounds(np.concatenate([under_low, zero]), np.concatenate([under_high, zero])),
    )


def _product(ratio: tuple[FloatArray, FloatArray], lower: FloatArray, upper: FloatArray) -> Bounds:
    """Bounds on ratio times a non-negative number; the ratio may have either sign."""
    low, high = ratio[0] - ratio[1], ratio[0] + ratio[1]
    return Bounds(
        np.where(low > 0.0, low * lower * (1.0 - 8.0 * U), low * upper * (1.0 + 8.0 * U)),
        np.where(high > 0.0, high * upper * (1.0 + 8.0 * U), high * lower * (1.0 - 8.0 * U)),
    )
