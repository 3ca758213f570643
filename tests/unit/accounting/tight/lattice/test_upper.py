"""The upper measure: above the curve, exact to second order, and nothing is lost at its ends."""

import numpy as np
import pytest

from discreet.accounting.tight.analyses.registry import directions
from discreet.accounting.tight.interface import Direction
from discreet.accounting.tight.lattice.upper import spread
from support.lattices import COSTS, curve_of, grid_for

DIRECTIONS = [
    pytest.param(direction, id=f"{cost}-{i}")
    for cost in COSTS
    for i, direction in enumerate(directions(cost))
]


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("spacing", [0.003, 0.02, 0.11])
def test_the_measure_is_above_the_curve(direction: Direction, spacing: float) -> None:
    upper = spread(direction, grid_for(direction, 2.0, spacing))
    for epsilon in np.linspace(-0.5, 2.0, 26):
        over = direction.cells(np.array([epsilon])).over
        assert curve_of(upper, epsilon - upper.slack) >= over.lower[-1] - 1e-15


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_mass_and_mean_of_the_ratio_are_kept(direction: Direction) -> None:
    # Rounding every loss up, instead of spreading it, keeps the mass and loses the mean of e^-L.
    upper = spread(direction, grid_for(direction, 2.0, 0.02))
    assert float(np.sum(upper.mass)) + upper.infinite == pytest.approx(1.0, abs=1e-9)
    assert float(np.sum(upper.mass * np.exp(-upper.loss))) == pytest.approx(1.0, abs=1e-3)
