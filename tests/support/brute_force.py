"""Privacy curves by brute force, for small data sets: mixtures of Gaussians on the line."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from discreet.accounting.tight.interface import Direction
from discreet.accounting.tight.rounding import FloatArray

Law = Sequence[tuple[float, float]]  # (weight, mean) of each Gaussian


def divergence(p: Law, q: Law, noise: float, epsilon: float) -> float:
    """sup_S P(S) - e^epsilon Q(S), by a fine trapezoidal rule; good to 1e-6 or so."""
    x = np.linspace(-4.0 - 10.0 * noise, 4.0 + 10.0 * noise, 12_001)
    difference = _density(p, x, noise) - math.exp(epsilon) * _density(q, x, noise)
    return float(np.trapezoid(np.maximum(difference, 0.0), x))


def _density(law: Law, x: FloatArray, noise: float) -> FloatArray:
    total = np.zeros_like(x)
    for weight, mean in law:
        total += weight * np.exp(-0.5 * ((x - mean) / noise) ** 2)
    return total / (noise * math.sqrt(2.0 * math.pi))


def curve(direction: Direction, epsilon: float) -> tuple[float, float]:
    """Bounds on a direction's own curve, from one edge: D(eps) is the excess of everything above
    it.
    """
    cells = direction.cells(np.array([epsilon]))
    return float(cells.over.lower[-1]), float(cells.over.upper[-1])
