from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import pytest

from discreet.accounting.costs import FixedSizeGaussian, Gaussian, PoissonGaussian
from discreet.accounting.tight.analyses.groups import (
    ShiftsAdd,
    ShiftsRemove,
    group_directions,
    group_epsilon,
)
from discreet.accounting.tight.analyses.poisson import PoissonAdd, PoissonRemove
from discreet.accounting.tight.lattice.bracket import epsilon_bracket
from discreet.accounting.tight.lattice.pair import Composition
from discreet.errors import AccountingError

if TYPE_CHECKING:
    from discreet.accounting.tight.interface import Direction


def _delta(direction: Direction, epsilon: float) -> float:
    return float(direction.cells(np.array([epsilon])).over.upper[-1])


def test_one_unit_is_the_poisson_pair() -> None:
    both = group_directions(PoissonGaussian(0.1, 0.8), size=1)
    expected: tuple[Direction, Direction] = PoissonRemove(0.1, 0.8), PoissonAdd(0.1, 0.8)
    for found, known in zip(both, expected, strict=True):
        for epsilon in (-0.05, 0.0, 0.1, 1.0):
            assert math.isclose(
                _delta(found, epsilon), _delta(known, epsilon), rel_tol=1e-8, abs_tol=1e-11
            )


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0, 4.0])
def test_the_curve_of_a_group_against_an_integral(epsilon: float) -> None:
    k, q, s = 3, 0.2, 0.9
    x = np.linspace(-9.0, 14.0, 40_001)
    density = [
        np.exp(-0.5 * ((x - i) / s) ** 2) / (s * math.sqrt(2 * math.pi)) for i in range(k + 1)
    ]
    mixture = sum(math.comb(k, i) * q**i * (1 - q) ** (k - i) * density[i] for i in range(k + 1))
    remove, add = group_directions(PoissonGaussian(q, s), size=k)
    t = math.exp(epsilon)
    assert math.isclose(
        _delta(remove, epsilon),
        np.trapezoid(np.maximum(mixture - t * density[0], 0.0), x),
        rel_tol=1e-4,
    )
    exact = np.trapezoid(np.maximum(density[0] - t * mixture, 0.0), x)
    assert math.isclose(_delta(add, epsilon), exact, rel_tol=1e-4, abs_tol=1e-10)


def test_cells_of_a_group_are_consistent() -> None:
    pair = group_directions(PoissonGaussian(0.2, 0.9), size=4)[0]
    edges = np.array(
        [-2.0, -0.5, -0.1, 0.0, 0.4, 1.5, 6.0]
    )  # the first two lie at or below the least loss
    cells = pair.cells(edges)
    assert math.isclose(cells.mass.upper.sum(), 1.0, rel_tol=1e-10)
    for i in range(1, len(edges)):
        low, high = math.exp(-edges[i - 1]), math.exp(-edges[i])
        both = cells.over.upper[i] * low + cells.under.upper[i] * high
        assert math.isclose(both, cells.mass.upper[i] * (low - high), rel_tol=1e-8, abs_tol=1e-12)


def test_twenty_units_against_a_library() -> None:
    # dp-accounting 0.6.0, MixtureOfGaussiansDpEvent, discretisation 1e-3: 13.5717; k steps of one
    # unit: far above 20.
    found = group_epsilon([(PoissonGaussian(0.005, 1.0), 200)], size=20, delta=1e-6)
    assert found.lower <= 13.571701850271198
    assert math.isclose(found.upper, 13.5717, rel_tol=1e-3)
    assert found.lower < found.upper


def test_weights_are_not_below_the_binomial_ones() -> None:
    remove = group_directions(PoissonGaussian(0.3, 1.0), size=6)[0]
    assert isinstance(remove, ShiftsRemove)
    q = Fraction(0.3)
    for i in range(1, 7):
        exact = sum(math.comb(6, j) * q**j * (1 - q) ** (6 - j) for j in range(i, 7))
        assert (
            sum(Fraction(weight) for weight in remove.weights[i - 1 :]) + Fraction(remove.infinite)
            >= exact
        )


def test_a_group_costs_more_than_a_unit_and_less_than_one_unit_k_times_over() -> None:
    counted = [(PoissonGaussian(0.01, 2.0), 100)]
    found = [group_epsilon(counted, size=k, delta=1e-5).upper for k in (1, 2, 4, 8)]
    assert found == sorted(found)
    assert (
        found[3]
        < 8 * epsilon_bracket(Composition(((PoissonRemove(0.01, 2.0), 100),)), 1e-9, 1e-2).upper
    )


def test_gaussians_scale_and_others_are_refused() -> None:
    one, two = group_directions(Gaussian(4.0), size=2)
    assert one == two == PoissonRemove(1.0, 2.0)
    for cost in (PoissonGaussian(0.1, 1.0, replace=True), FixedSizeGaussian(1, 10, 1.0)):
        with pytest.raises(AccountingError, match="group_guarantee"):
            group_directions(cost, size=2)
    assert group_epsilon([], size=3, delta=1e-6).upper == 0.0


def test_a_loss_out_of_reach_is_refused() -> None:
    pair = ShiftsRemove((0.1, 0.1), 1.0)
    for direction in (pair, ShiftsAdd(pair)):
        with pytest.raises(AccountingError, match="within the range"):
            direction.cells(np.array([0.0, 600.0]))
