"""Measures of one step on a lattice, for tests of their pieces."""

from __future__ import annotations

import numpy as np

from discreet.accounting.costs import (
    BoundedRange,
    Cost,
    Gaussian,
    Laplace,
    PoissonGaussian,
    Response,
)
from discreet.accounting.tight.interface import Direction
from discreet.accounting.tight.lattice.compose import Composed
from discreet.accounting.tight.lattice.lower import gather_cells
from discreet.accounting.tight.lattice.nodes import Lattice, lattice, scope
from discreet.accounting.tight.lattice.spectrum import phases
from discreet.accounting.tight.lattice.upper import Measure, spread
from discreet.accounting.tight.rounding import FloatArray

COSTS: list[Cost] = [
    Gaussian(1.0),
    PoissonGaussian(0.01, 0.8),
    PoissonGaussian(0.3, 2.0),
    PoissonGaussian(1e-4, 0.6),
    PoissonGaussian(0.05, 1.0, replace=True),
    Laplace(2.0),
    BoundedRange(1.5),
    Response(4, 0.5),
]


def grid_for(direction: Direction, theta: float, spacing: float) -> Lattice:
    """The lattice of one step, as `pair.py` lays it for a single step."""
    area = scope(direction.quadrature(), theta, spacing, 1e-20, 1e-12)
    return lattice(area, spacing, area.centre, max(1, int(0.5 / ((1.0 + theta) * spacing))))


def measures_of(direction: Direction, theta: float, spacing: float) -> tuple[Measure, Measure]:
    """The upper and the lower measure of one step."""
    grid = grid_for(direction, theta, spacing)
    return spread(direction, grid), gather_cells(direction, grid)


def curve_of(measure: Measure, epsilon: float) -> float:
    """The privacy curve that a measure stands for."""
    excess = np.maximum(-np.expm1(epsilon - measure.loss), 0.0)
    return float(np.sum(measure.mass * excess)) + measure.infinite


def masses_of(composed: Composed, first: int, count: int) -> FloatArray:
    """The tilted masses of a composition on `count` places from `first` on, each summed up."""
    place = np.arange(first, first + count)
    turn = np.mod(np.multiply.outer(place, composed.frequency), composed.length)
    turned = phases(turn, composed.length, composed.power.real.dtype.type)
    mass: FloatArray = np.sum((turned * composed.power).real, axis=1).astype(np.float64)
    mass[np.mod(place, composed.length) == 0] += composed.atom
    return mass
