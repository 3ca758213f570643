"""The Poisson-subsampled Gaussian under replace-one: the unit's contribution is +1 under P and -1
under Q.

With q the probability, s the noise multiplier, N(m) = N(m, s^2), r(x) = exp((2x - 1)/(2 s^2)):

    P = (1-q) N(0) + q N(1),  Q = (1-q) N(0) + q N(-1),  L(x) = ln(1 - q + q r(x)) - ln(1 - q + q
    r(-x)), odd and increasing.

The reflection x -> -x exchanges P and Q, so one direction is both. With E = e^g - 1 at an edge g
and N0, N+, N- the masses of a cell,

    P - e^g Q = q (N+ - N-) - E ((1-q) N0 + q N-),

in which every term is small when q is. The edge of g solves a quadratic equation in w = e^(x/s^2),
with b = e^(-1/(2 s^2)):

    q b w^2 - (1-q) E w - (1 + E) q b = 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from discreet.accounting.tight.analyses.poisson import log_mixture, quadrature_nodes
from discreet.accounting.tight.interface import Bounds, Cells, Quadrature
from discreet.accounting.tight.rounding import FloatArray, OutOfRangeError, U, normal_mass

__all__ = ["PoissonReplace"]


@dataclass(frozen=True, slots=True)
class PoissonReplace:
    """Both directions at once; see the header."""

    probability: float
    noise_multiplier: float

    def quadrature(self) -> Quadrature:
        """Trapezoidal rule in x."""
        q, s = self.probability, self.noise_multiplier
        x = quadrature_nodes(s, -38.0 * s, 1.0 + 38.0 * s)
        step = math.log(x[1] - x[0]) - math.log(s * math.sqrt(2.0 * math.pi))
        forward = log_mixture(q, (2.0 * x - 1.0) / (2.0 * s * s))
        backward = log_mixture(q, (-2.0 * x - 1.0) / (2.0 * s * s))
        return Quadrature(forward - backward, step - x * x / (2.0 * s * s) + forward)

    def cells(self, edges: FloatArray) -> Cells:
        """See the header."""
        q, s = self.probability, self.noise_multiplier
        y = self._edges(edges)
        x = s * s * y
        n0, n1, n2 = (self._masses((x - m) / s) for m in (0.0, 1.0, -1.0))
        low, high = 1.0 - 16.0 * U, 1.0 + 16.0 * U
        mass = Bounds(
            ((1.0 - q) * n0.lower + q * n1.lower) * low,
            ((1.0 - q) * n0.upper + q * n1.upper) * high,
        )
        excess = np.expm1(edges)
        over = self._worth(n0, n1, n2, excess, slice(1, None))
        under = self._worth(n0, n1, n2, excess, slice(None, -1))
        zero = np.zeros(1)
        slack = 64.0 * U * float(np.max(1.0 + np.abs(y) + np.abs(edges)))
        return Cells(
            mass,
            Bounds(
                np.concatenate([zero, np.maximum(over.lower, 0.0)]),
                np.concatenate([zero, np.maximum(over.upper, 0.0)]),
            ),
            Bounds(
                np.concatenate([np.maximum(-under.upper, 0.0), zero]),
                np.concatenate([np.maximum(-under.lower, 0.0), zero]),
            ),
            slack,
        )

    def _worth(
        self, n0: Bounds, n1: Bounds, n2: Bounds, excess: FloatArray, where: slice
    ) -> Bounds:
        """P - e^g Q of the cells `where`, g the edge that belongs to each."""
        q = self.probability
        rest_low = ((1.0 - q) * n0.lower + q * n2.lower)[where]
        rest_high = ((1.0 - q) * n0.upper + q * n2.upper)[where]
        up = q * (n1.upper[where] - n2.lower[where]) - np.where(
            excess > 0.0, excess * rest_low, excess * rest_high
        )
        down = q * (n1.lower[where] - n2.upper[where]) - np.where(
            excess > 0.0, excess * rest_high, excess * rest_low
        )
        error = 16.0 * U * (q * (n1.upper[where] + n2.upper[where]) + np.abs(excess) * rest_high)
        return Bounds(down - error, up + error)

    def _masses(self, ends: FloatArray) -> Bounds:
        all_ends = np.concatenate([[-np.inf], ends, [np.inf]])
        mass, error = normal_mass(all_ends[:-1], all_ends[1:])
        return Bounds(np.maximum(mass - error, 0.0), mass + error)

    def _edges(self, edges: FloatArray) -> FloatArray:
        """The y = ln w at every edge."""
        q, s = self.probability, self.noise_multiplier
        b = math.exp(-1.0 / (2.0 * s * s))
        if not (np.all(np.abs(edges) < 300.0) and b > 1e-150):
            raise OutOfRangeError(
                expected="a privacy loss of one step within the range of float64",
                got=f"noise multiplier {s:.3g} at loss {float(edges[-1]):.4g}",
                do="Use more noise, or the 'rdp' accountant.",
            )
        linear = (1.0 - q) * np.expm1(edges)
        root = np.hypot(linear, 2.0 * np.exp(0.5 * edges) * q * b)
        positive = np.log(np.abs(linear) + root) - math.log(2.0 * q * b)
        negative = edges + math.log(2.0 * q * b) - np.log(np.abs(linear) + root)
        return np.asarray(np.where(linear >= 0.0, positive, negative), dtype=np.float64)
