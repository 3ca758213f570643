"""The Poisson-subsampled Gaussian, for every adjacency; probability 1 is the plain Gaussian.

Legend: q the probability, s the noise multiplier, N(m) = N(m, s^2), and r(x) = exp((2x - 1)/(2
s^2)) the ratio of N(1) to N(0). Add-or-remove and zero-out [ZhuDongWang2022, Theorem 11]:

    remove:  P = (1-q) N(0) + q N(1),  Q = N(0),   L(x) = ln(1 - q + q r(x)), increasing
    add:     P and Q exchanged,                    loss -L(x)

For a cell of x between two edges, N0 and N1 its masses under N(0) and N(1), and g = L(edge), r =
r(edge):

    P - e^g Q = q (N1 - r N0)          at the lower edge,   non-negative
    e^g Q - P = q (r N0 - N1)          at the upper edge,   non-negative

Replace-one, the unit's contribution being +1 under P and -1 under Q (docs/proofs/rdp.md, theorem
3):

    P = (1-q) N(0) + q N(1),  Q = (1-q) N(0) + q N(-1),
    L(x) = ln(1 - q + q r(x)) - ln(1 - q + q r(-x)), odd and increasing.

The reflection x -> -x exchanges P and Q, so one direction is both. With E = e^g - 1 at an edge g
and N0, N+, N- the masses of a cell,

    P - e^g Q = q (N+ - N-) - E ((1-q) N0 + q N-),

in which every term is small when q is. The edge of g solves a quadratic equation in w = e^(x/s^2),
with b = e^(-1/(2 s^2)):

    q b w^2 - (1-q) E w - (1 + E) q b = 0.

The pairs are those of docs/proofs/tight.md, section 2; the error bounds those of section 4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from discreet.accounting.tight.interface import Bounds, Cells, Quadrature
from discreet.accounting.tight.rounding import FloatArray, OutOfRangeError, U, normal_mass

__all__ = [
    "FARTHEST",
    "PoissonAdd",
    "PoissonRemove",
    "PoissonReplace",
    "log_density",
    "normal_cells",
    "quadrature_nodes",
    "reversed_cells",
]

# The largest loss at which cells are certified: e^500 times the absolute error 1e-298 of a normal
# mass is still nothing. For replace-one, with its larger constants, less.
FARTHEST = 500.0
_FARTHEST_REPLACE = 300.0

# Standard deviations that the quadrature covers on either side.
_SPREAD = 38.0


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
        x = quadrature_nodes(s, 1)
        loss = _log_mixture(q, (2.0 * x - 1.0) / (2.0 * s * s))
        return Quadrature(loss, log_density(s, x) + loss)

    def cells(self, edges: FloatArray) -> Cells:
        """Bound the cells by the header's formulas; edges below ln(1-q) have nothing under them."""
        q = self.probability
        n0, n1, ratio, slack = _masses(q, self.noise_multiplier, edges)

        # Every product and sum below is off by one unit roundoff: a few u, outward.
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
        """Trapezoidal rule in x under N(0), by increasing -L."""
        q, s = self.probability, self.noise_multiplier
        x = quadrature_nodes(s, 0)
        loss = -_log_mixture(q, (2.0 * x - 1.0) / (2.0 * s * s))
        return Quadrature(loss[::-1], log_density(s, x)[::-1])

    def cells(self, edges: FloatArray) -> Cells:
        """Bound the cells of the reversed pair, from those of `PoissonRemove` at the edges -l."""
        n0, n1, ratio, slack = _masses(self.probability, self.noise_multiplier, -edges[::-1])
        over, under = _over_under(self.probability, n0, n1, ratio)
        return reversed_cells(n0, over, under, edges, slack)


@dataclass(frozen=True, slots=True)
class PoissonReplace:
    """Both directions of replace-one at once; see the header."""

    probability: float
    noise_multiplier: float

    def quadrature(self) -> Quadrature:
        """Trapezoidal rule in x, under P."""
        q, s = self.probability, self.noise_multiplier
        x = quadrature_nodes(s, 1)
        forward = _log_mixture(q, (2.0 * x - 1.0) / (2.0 * s * s))
        backward = _log_mixture(q, (-2.0 * x - 1.0) / (2.0 * s * s))
        return Quadrature(forward - backward, log_density(s, x) + forward)

    def cells(self, edges: FloatArray) -> Cells:
        """Bound the cells by the header's last formula, each term rounded outward."""
        q, s = self.probability, self.noise_multiplier
        y = self._log_roots(edges)
        x = s * s * y
        n0, n_plus, n_minus = (normal_cells((x - mean) / s) for mean in (0.0, 1.0, -1.0))
        mass = Bounds(
            ((1.0 - q) * n0.lower + q * n_plus.lower) * (1.0 - 16.0 * U),
            ((1.0 - q) * n0.upper + q * n_plus.upper) * (1.0 + 16.0 * U),
        )

        # Each cell but the first has its lower edge below it; each but the last its upper edge.
        excess = np.expm1(edges)
        over = self._worth(n0, n_plus, n_minus, excess, slice(1, None))
        under = self._worth(n0, n_plus, n_minus, excess, slice(None, -1))
        slack = 64.0 * U * float(np.max(1.0 + np.abs(y) + np.abs(edges)))
        return Cells(
            mass,
            Bounds(
                np.concatenate([[0.0], np.maximum(over.lower, 0.0)]),
                np.concatenate([[0.0], np.maximum(over.upper, 0.0)]),
            ),
            Bounds(
                np.concatenate([np.maximum(-under.upper, 0.0), [0.0]]),
                np.concatenate([np.maximum(-under.lower, 0.0), [0.0]]),
            ),
            slack,
        )

    def _worth(
        self, n0: Bounds, n_plus: Bounds, n_minus: Bounds, excess: FloatArray, where: slice
    ) -> Bounds:
        """P - e^g Q of the cells `where`, g the edge that belongs to each."""
        q = self.probability
        q_low = ((1.0 - q) * n0.lower + q * n_minus.lower)[where]
        q_high = ((1.0 - q) * n0.upper + q * n_minus.upper)[where]

        # E has the sign of the edge, so which end of Q's mass is the safe one depends on it.
        upper = q * (n_plus.upper[where] - n_minus.lower[where]) - np.where(
            excess > 0.0, excess * q_low, excess * q_high
        )
        lower = q * (n_plus.lower[where] - n_minus.upper[where]) - np.where(
            excess > 0.0, excess * q_high, excess * q_low
        )
        sizes = q * (n_plus.upper[where] + n_minus.upper[where]) + np.abs(excess) * q_high
        error = 16.0 * U * sizes
        return Bounds(lower - error, upper + error)

    def _log_roots(self, edges: FloatArray) -> FloatArray:
        """The y = ln w at every edge: the positive root of the header's quadratic equation."""
        q, s = self.probability, self.noise_multiplier
        b = math.exp(-1.0 / (2.0 * s * s))
        if not (np.all(np.abs(edges) < _FARTHEST_REPLACE) and b > 1e-150):
            raise _out_of_range(s, edges)

        linear = (1.0 - q) * np.expm1(edges)
        root = np.hypot(linear, 2.0 * np.exp(0.5 * edges) * q * b)

        # For a negative linear term the root is written as a quotient, so that nothing cancels.
        positive = np.log(np.abs(linear) + root) - math.log(2.0 * q * b)
        negative = edges + math.log(2.0 * q * b) - np.log(np.abs(linear) + root)
        return np.asarray(np.where(linear >= 0.0, positive, negative), dtype=np.float64)


def quadrature_nodes(s: float, furthest: int) -> FloatArray:
    """Equally spaced x around the means 0 ... `furthest`, close enough for the trapezoidal rule to
    be exact to rounding.
    """
    step = min(0.1 * s, 0.4 * s * s)
    return np.arange(-_SPREAD * s, furthest + _SPREAD * s + step, step)


def log_density(s: float, x: FloatArray) -> FloatArray:
    """The ln of the density of N(0, s^2) times the distance of the equally spaced x."""
    return math.log(x[1] - x[0]) - math.log(s * math.sqrt(2.0 * math.pi)) - x * x / (2.0 * s * s)


def normal_cells(z: FloatArray) -> Bounds:
    """Standard normal masses of the cells between -inf, z_0, z_1, ... and inf."""
    ends = np.concatenate([[-np.inf], z, [np.inf]])
    mass, error = normal_mass(ends[:-1], ends[1:])
    return Bounds(np.maximum(mass - error, 0.0), mass + error)


def reversed_cells(
    mass: Bounds, over: Bounds, under: Bounds, edges: FloatArray, slack: FloatArray
) -> Cells:
    """Cells of (Q, P) at `edges` from those of (P, Q) at -edges, reversed; `mass` is that of Q.

    With L' = -L:  Q - e^(-g) P = e^(-g) (e^g Q - P), so over and under change places, times
    e^(edge).
    """
    factor = np.exp(edges)
    below, above = np.concatenate([[0.0], factor]), np.concatenate([factor, [0.0]])
    inward, outward = 1.0 - 8.0 * U, 1.0 + 8.0 * U
    return Cells(
        Bounds(mass.lower[::-1], mass.upper[::-1]),
        Bounds(under.lower[::-1] * below * inward, under.upper[::-1] * below * outward),
        Bounds(over.lower[::-1] * above * inward, over.upper[::-1] * above * outward),
        float(np.max(slack)),
        slack[::-1],
    )


def _log_mixture(q: float, y: FloatArray) -> FloatArray:
    """ln(1 - q + q e^y), accurate where it is near 0 and where e^y overflows."""
    if q == 1.0:
        return y

    # Either form is computed for every y, with an argument cut to where it is used.
    small = np.log1p(q * np.expm1(np.minimum(y, 300.0)))
    large = y + np.log(q) + np.log1p((1.0 - q) / q * np.exp(-np.maximum(y, 300.0)))
    return np.where(y < 300.0, small, large)


def _out_of_range(s: float, edges: FloatArray) -> OutOfRangeError:
    """The error for edges at which no certificate can be given."""
    return OutOfRangeError(
        expected="a privacy loss of one step within the range of float64",
        got=f"noise multiplier {s:.3g} at loss {float(edges[-1]):.4g}",
        do="Use more noise, or the 'rdp' accountant.",
    )


def _masses(
    q: float, s: float, edges: FloatArray
) -> tuple[Bounds, Bounds, tuple[FloatArray, FloatArray], FloatArray]:
    """Masses of the cells under N(0) and N(1); the ratio r at every edge with its error; the slack
    of the edges.
    """
    if not np.all(np.abs(edges) < FARTHEST):
        raise _out_of_range(s, edges)

    if q == 1.0:
        ratio = np.exp(edges)
        y = edges
        ratio_error = 8.0 * U * ratio
    else:
        # r = 1 + (e^g - 1)/q. It is negative for an edge below the least loss ln(1-q): no x lies
        # there, and the formulas of the header stay true.
        v = np.expm1(edges) / q
        ratio = 1.0 + v
        y = np.log(ratio, where=ratio > 0.0, out=np.full_like(ratio, -np.inf))
        near = np.abs(v) < 0.5
        y[near] = np.log1p(v[near])
        ratio_error = 16.0 * U * (1.0 + np.abs(v))

    x = s * s * y + 0.5

    # How far rounding moves an edge: d(loss) = e^-l q r d(y), with the relative errors of v, of y
    # and of x in turn (docs/proofs/tight.md, section 4).
    finite = np.isfinite(y)
    weight = np.exp(-edges) * q * np.maximum(ratio, 0.0)
    moved = np.abs(np.expm1(-edges)) + np.where(
        finite, weight * (2.0 * np.abs(np.where(finite, y, 0.0)) + 2.0 / (s * s)), 0.0
    )
    slack = 16.0 * U * (moved + np.abs(edges))
    return normal_cells(x / s), normal_cells((x - 1.0) / s), (ratio, ratio_error), slack


def _over_under(
    q: float, n0: Bounds, n1: Bounds, ratio: tuple[FloatArray, FloatArray]
) -> tuple[Bounds, Bounds]:
    """Bounds on q (N1 - r N0) at the lower, and q (r N0 - N1) at the upper edge of each cell."""
    inward, outward = (1.0 - 8.0 * U), (1.0 + 8.0 * U)

    # r N0 at the lower edge of each cell but the first, and at the upper edge of each but the last.
    below = _product(ratio, n0.lower[1:], n0.upper[1:])
    above = _product(ratio, n0.lower[:-1], n0.upper[:-1])

    # Both differences are non-negative in truth, so cutting at 0 keeps them bounds.
    over_low = q * np.maximum(n1.lower[1:] * inward - below.upper, 0.0) * inward
    over_high = q * np.maximum(n1.upper[1:] * outward - below.lower, 0.0) * outward
    under_low = q * np.maximum(above.lower - n1.upper[:-1] * outward, 0.0) * inward
    under_high = q * np.maximum(above.upper - n1.lower[:-1] * inward, 0.0) * outward
    return (
        Bounds(np.concatenate([[0.0], over_low]), np.concatenate([[0.0], over_high])),
        Bounds(np.concatenate([under_low, [0.0]]), np.concatenate([under_high, [0.0]])),
    )


def _product(ratio: tuple[FloatArray, FloatArray], lower: FloatArray, upper: FloatArray) -> Bounds:
    """Bounds on ratio times a non-negative number; the ratio may have either sign."""
    low, high = ratio[0] - ratio[1], ratio[0] + ratio[1]

    # A negative factor turns the ends of the other around.
    return Bounds(
        np.where(low > 0.0, low * lower * (1.0 - 8.0 * U), low * upper * (1.0 + 8.0 * U)),
        np.where(high > 0.0, high * upper * (1.0 + 8.0 * U), high * lower * (1.0 - 8.0 * U)),
    )
