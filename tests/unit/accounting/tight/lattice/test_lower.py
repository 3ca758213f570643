"""The lower measure: below the curve whatever the parts are, and as near to it as the upper one."""

import numpy as np
import pytest

from discreet.accounting.costs import Cost, Gaussian, PoissonGaussian
from discreet.accounting.tight.analyses.registry import directions
from discreet.accounting.tight.interface import Direction
from discreet.accounting.tight.lattice import lower as module
from discreet.accounting.tight.lattice.compose import tilted
from discreet.accounting.tight.lattice.lower import gather_cells
from discreet.accounting.tight.rounding import FloatArray
from support.lattices import COSTS, curve_of, grid_for, measures_of

DIRECTIONS = [
    pytest.param(direction, id=f"{cost}-{i}")
    for cost in COSTS
    for i, direction in enumerate(directions(cost))
]


def check_below(direction: Direction, spacing: float) -> None:
    lower = gather_cells(direction, grid_for(direction, 2.0, spacing))
    for epsilon in np.linspace(-0.5, 2.0, 26):
        over = direction.cells(np.array([epsilon])).over
        if epsilon > lower.loss[0]:
            assert curve_of(lower, epsilon + lower.slack) <= over.upper[-1] + 1e-15


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("spacing", [0.003, 0.02, 0.11])
def test_the_measure_is_below_the_curve(direction: Direction, spacing: float) -> None:
    check_below(direction, spacing)


@pytest.mark.parametrize("constant", [-1.0, -0.4, 0.3, 1.0])
def test_it_is_a_lower_bound_whatever_the_parts_are(
    constant: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    # If what is not balanced stayed where it was put, a wrong solver would make a wrong bound.
    def wrong(worth: module._Worth, centre: int) -> FloatArray:
        return np.full(len(worth.under) + 1, constant)

    monkeypatch.setattr(module, "_balance", wrong)
    for cost in (Gaussian(1.0), PoissonGaussian(0.3, 2.0)):
        check_below(directions(cost)[0], 0.05)


@pytest.mark.parametrize(
    "cost",
    [Gaussian(1.0), PoissonGaussian(0.3, 1.0), PoissonGaussian(0.05, 1.0, replace=True)],
)
def test_both_measures_are_exact_to_second_order(cost: Cost) -> None:
    def gap(spacing: float) -> float:
        upper, lower = measures_of(directions(cost)[0], 2.0, spacing)
        return (
            tilted(((upper, 1),), 2.0, outward=1).log_total
            - tilted(((lower, 1),), 2.0, outward=-1).log_total
        )

    assert gap(0.02) == pytest.approx(2.0 * 3.0 * 0.02**2 / 6.0, rel=0.3)
    assert gap(0.01) == pytest.approx(gap(0.02) / 4.0, rel=0.2)
