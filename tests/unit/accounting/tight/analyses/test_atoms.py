"""Pairs given by outcomes: cells are sums, and moving outcomes to a lattice only adds."""

import math

import numpy as np
import pytest

from discreet.accounting.tight.analyses.atoms import Atoms, spread_out

LOSS = np.array([-0.7, -0.2, 0.1, 0.4, 1.3])
MASS = np.array([0.1, 0.3, 0.2, 0.3, 0.1])


def _curve(loss: object, mass: object, epsilon: float) -> float:
    return float(np.sum(np.asarray(mass) * np.maximum(-np.expm1(epsilon - np.asarray(loss)), 0.0)))


@pytest.mark.parametrize("epsilon", [-0.5, 0.1, 0.25, 2.0])
def test_the_last_cell_is_the_curve(epsilon: float) -> None:
    cells = Atoms(LOSS, MASS, 0.01, 0.0).cells(np.array([epsilon]))
    exact = _curve(LOSS, MASS, epsilon) + 0.01
    assert cells.over.lower[-1] <= exact <= cells.over.upper[-1]
    assert cells.over.upper[-1] - cells.over.lower[-1] < 1e-13


def test_cells_hold_their_outcomes_and_an_edge_the_one_on_it() -> None:
    cells = Atoms(LOSS, MASS, 0.05, 0.0).cells(np.array([-0.2, 0.3]))
    assert cells.mass.upper == pytest.approx([0.4, 0.2, 0.45])
    under = 0.1 * math.expm1(-0.2 + 0.7)
    assert cells.under.lower[0] <= under <= cells.under.upper[0]
    assert cells.under.upper[0] == pytest.approx(under)


@pytest.mark.parametrize("spacing", [0.01, 0.13, 0.9])
def test_moving_to_a_lattice_keeps_mass_and_mean_and_raises_the_curve(spacing: float) -> None:
    # Rounding to the nearest point would lower the curve at some epsilon.
    moved = spread_out(LOSS, MASS, spacing)
    assert np.diff(moved.loss) == pytest.approx(spacing)
    assert moved.mass.sum() == pytest.approx(1.0, abs=1e-9)
    mean = float(np.sum(MASS * np.exp(-LOSS)))
    assert float(np.sum(moved.mass * np.exp(-moved.loss))) == pytest.approx(mean, abs=1e-9)
    for epsilon in np.linspace(-1.0, 1.5, 51):
        exact = _curve(LOSS, MASS, float(epsilon))
        assert _curve(moved.loss, moved.mass, float(epsilon) - moved.slack) >= exact


def test_outcomes_without_mass_are_no_nodes() -> None:
    nodes = Atoms(LOSS, np.array([0.5, 0.0, 0.5, 0.0, 0.0]), 0.0, 0.0).quadrature()
    assert nodes.loss.tolist() == [-0.7, 0.1]
