"""Losses on a segment: Laplace, bounded range and randomized response against closed forms."""

import math

import numpy as np
import pytest

from discreet.accounting.costs import BoundedRange, Cost, Laplace, Response
from discreet.accounting.tight.analyses.registry import directions
from support.brute_force import curve


@pytest.mark.parametrize("epsilon", [-0.8, 0.0, 0.3, 0.99])
def test_laplace_has_its_textbook_curve(epsilon: float) -> None:
    # b = 1: delta(eps) = 1 - e^((eps - 1)/2) for eps in [-1, 1] (both signs).
    lower, upper = curve(directions(Laplace(1.0))[0], epsilon)
    assert lower <= -math.expm1(0.5 * (epsilon - 1.0)) <= upper
    assert upper - lower < 1e-12


@pytest.mark.parametrize("eta", [0.1, 2.0])
def test_bounded_range_is_the_largest_curve_of_its_family(eta: float) -> None:
    direction = directions(BoundedRange(eta))[0]
    for epsilon in np.linspace(-0.9 * eta, 0.9 * eta, 7):
        lower, upper = curve(direction, float(epsilon))
        family = [
            (math.exp(eta) - math.exp(t)) * -math.expm1(epsilon - t) / math.expm1(eta)
            for t in np.linspace(max(epsilon, 0.0), eta, 4001)
        ]
        assert max(family) <= upper * (1.0 + 1e-12)
        # Within the family t lies in [0, eta]; outside the curve is an envelope, not attained.
        if epsilon > 0.0:
            assert max(family) == pytest.approx(lower, rel=1e-4)


@pytest.mark.parametrize("categories", [2, 5])
def test_response_has_three_losses(categories: int) -> None:
    truth = 0.6
    lie = (1.0 - truth) / (categories - 1)
    direction = directions(Response(categories, truth))[0]
    for epsilon in (-0.5, 0.0, 0.2, 2.0):
        exact = max(truth - math.exp(epsilon) * lie, 0.0) + max(lie - math.exp(epsilon) * truth, 0)
        exact += max(1.0 - math.exp(epsilon), 0.0) * (1.0 - truth - lie)
        lower, upper = curve(direction, epsilon)
        assert lower - 1e-12 <= exact <= upper + 1e-12


@pytest.mark.parametrize("cost", [Laplace(1.0), BoundedRange(1.5), Response(4, 0.5)])
def test_quadrature_and_cells_agree(cost: Cost) -> None:
    direction = directions(cost)[0]
    nodes = direction.quadrature()
    weight = np.exp(nodes.log_weight)
    assert weight.sum() == pytest.approx(1.0, abs=1e-12)
    assert np.sum(weight * np.exp(-nodes.loss)) == pytest.approx(1.0, abs=1e-12)
    mass = direction.cells(np.linspace(-1.03, 1.01, 30)).mass
    assert mass.lower.sum() <= 1.0 <= mass.upper.sum()
    assert mass.upper.sum() - mass.lower.sum() < 1e-12


def test_an_atom_on_an_edge_belongs_to_the_cell_below() -> None:
    direction = directions(Response(2, 0.75))[0]
    gap = Response(2, 0.75).gap
    cells = direction.cells(np.array([-gap, 0.0, gap]))
    assert cells.mass.lower[[0, 2]] == pytest.approx([0.25, 0.75], abs=1e-12)
    assert float(cells.mass.upper[3]) < 1e-300
