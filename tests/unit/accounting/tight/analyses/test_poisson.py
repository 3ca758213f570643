"""The Poisson-subsampled Gaussian: cells against quadrature and brute force, in every direction."""

import math

import numpy as np
import pytest

from discreet.accounting.tight.analyses.poisson import (
    PoissonAdd,
    PoissonRemove,
    PoissonReplace,
    normal_cells,
)
from discreet.accounting.tight.interface import Direction
from discreet.accounting.tight.rounding import OutOfRangeError
from support.brute_force import Law, curve, divergence

Q, S = 0.3, 0.9
SAMPLED: Law = [(1.0 - Q, 0.0), (Q, 1.0)]
PAIRS = [
    pytest.param(PoissonRemove(Q, S), SAMPLED, [(1.0, 0.0)], id="remove"),
    pytest.param(PoissonAdd(Q, S), [(1.0, 0.0)], SAMPLED, id="add"),
    pytest.param(PoissonReplace(Q, S), SAMPLED, [(1.0 - Q, 0.0), (Q, -1.0)], id="replace"),
    pytest.param(PoissonRemove(1.0, S), [(1.0, 1.0)], [(1.0, 0.0)], id="gaussian"),
]


@pytest.mark.parametrize(("direction", "p", "q"), PAIRS)
def test_the_curve_is_the_hockey_stick_of_the_pair(direction: Direction, p: Law, q: Law) -> None:
    for epsilon in (-2.0, -0.36, -0.1, 0.0, 0.2, 1.0, 2.5):
        lower, upper = curve(direction, epsilon)
        assert lower <= upper <= lower * (1.0 + 1e-9) + 1e-12
        assert divergence(p, q, S, epsilon) == pytest.approx(lower, abs=2e-6)


@pytest.mark.parametrize(("direction", "p", "q"), PAIRS)
def test_quadrature_and_cells_agree(direction: Direction, p: Law, q: Law) -> None:
    nodes = direction.quadrature()
    assert np.all(np.diff(nodes.loss) >= 0.0)
    weight = np.exp(nodes.log_weight)
    assert weight.sum() == pytest.approx(1.0, abs=1e-12)
    assert np.sum(weight * np.exp(-nodes.loss)) == pytest.approx(1.0, abs=1e-12)
    edges = np.linspace(-1.03, 1.01, 30)
    mass = direction.cells(edges).mass
    assert mass.lower.sum() <= 1.0 <= mass.upper.sum()
    assert mass.upper.sum() - mass.lower.sum() < 1e-12
    above = float(weight[nodes.loss > edges[-1]].sum())
    assert above == pytest.approx(float(mass.upper[-1]), abs=0.05)


def test_no_mass_below_the_least_loss() -> None:
    cells = PoissonRemove(Q, S).cells(np.array([-5.0, math.log(1.0 - Q) - 1e-6, 0.0]))
    assert float(cells.mass.upper[0]) < 1e-290
    assert float(cells.mass.upper[1]) < 1e-290


def test_a_sparse_sample_keeps_its_digits() -> None:
    # N1 - r N0 without the factor q taken out would be rounding alone at q = 1e-12.
    lower, upper = curve(PoissonRemove(1e-12, 1.0), 0.0)
    exact = 1e-12 * math.erf(0.5 / math.sqrt(2.0))
    assert lower <= exact <= upper <= lower * (1.0 + 1e-9)


@pytest.mark.parametrize("direction", [PoissonRemove(0.1, 1.0), PoissonReplace(0.1, 1.0)])
def test_edges_without_a_certificate_are_refused(direction: Direction) -> None:
    with pytest.raises(OutOfRangeError, match="within the range of float64"):
        direction.cells(np.array([0.0, 600.0]))


def test_cells_of_the_normal_law_sum_to_one() -> None:
    mass = normal_cells(np.array([-40.0, -1.0, 0.0, 0.5, 41.0]))
    assert mass.lower.sum() <= 1.0 <= mass.upper.sum()
    assert mass.lower[2] <= 0.3413447460685429 <= mass.upper[2]
