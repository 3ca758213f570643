"""Measures and their composition, piece by piece."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from discreet.accounting.costs import (
    BoundedRange,
    Cost,
    Gaussian,
    Laplace,
    PoissonGaussian,
    Response,
)
from discreet.accounting.tight.analyses.poisson import PoissonRemove
from discreet.accounting.tight.analyses.registry import directions
from discreet.accounting.tight.lattice import bracket, window
from discreet.accounting.tight.lattice.bracket import epsilon_bracket
from discreet.accounting.tight.lattice.compose import compose, tilted
from discreet.accounting.tight.lattice.lower import gather
from discreet.accounting.tight.lattice.nodes import lattice, scope
from discreet.accounting.tight.lattice.pair import Problem
from discreet.accounting.tight.lattice.upper import Measure, spread
from discreet.accounting.tight.rounding import WIDE, U

if TYPE_CHECKING:
    from discreet.accounting.tight.interface import Direction

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
BOTH = [
    pytest.param(way, id=f"{cost}-{i}") for cost in COSTS for i, way in enumerate(directions(cost))
]


def _measures(way: Direction, theta: float, spacing: float) -> tuple[Measure, Measure]:
    nodes = way.quadrature()
    area = scope(nodes, theta, spacing, 1e-20, 1e-12)
    grid = lattice(area, spacing, area.centre, max(1, int(0.5 / ((1.0 + theta) * spacing))))
    return spread(way, grid), gather(way, grid)


def _curve(measure: Measure, epsilon: float) -> float:
    return (
        float(np.sum(measure.mass * np.maximum(-np.expm1(epsilon - measure.loss), 0.0)))
        + measure.infinite
    )


@pytest.mark.parametrize("way", BOTH)
@pytest.mark.parametrize("spacing", [0.003, 0.02, 0.11])
def test_spread_is_above_and_gather_below_the_curve(way: Direction, spacing: float) -> None:
    upper, lower = _measures(way, 2.0, spacing)
    for epsilon in np.linspace(-0.5, 2.0, 26):
        over = way.cells(np.array([epsilon])).over
        assert _curve(upper, epsilon - upper.slack) >= over.lower[-1] - 1e-15
        if epsilon > lower.loss[0]:
            assert _curve(lower, epsilon + lower.slack) <= over.upper[-1] + 1e-15


@pytest.mark.parametrize(
    "cost", [Gaussian(1.0), PoissonGaussian(0.3, 1.0), PoissonGaussian(0.05, 1.0, replace=True)]
)
def test_both_are_exact_to_second_order(cost: Cost) -> None:
    way = directions(cost)[0]

    def gap(spacing: float) -> float:
        upper, lower = _measures(way, 2.0, spacing)
        return (
            tilted(((upper, 1),), 2.0, outward=1).log_total
            - tilted(((lower, 1),), 2.0, outward=-1).log_total
        )

    assert gap(0.02) == pytest.approx(2.0 * 3.0 * 0.02**2 / 6.0, rel=0.3)
    assert gap(0.01) == pytest.approx(gap(0.02) / 4.0, rel=0.2)


def test_cells_agree_with_the_quadrature() -> None:
    for cost in COSTS:
        for way in directions(cost):
            nodes = way.quadrature()
            weight = np.exp(nodes.log_weight)
            assert weight.sum() == pytest.approx(1.0, abs=1e-12)
            assert np.sum(weight * np.exp(-nodes.loss)) == pytest.approx(1.0, abs=1e-12)
            mass = way.cells(np.linspace(-1.03, 1.01, 30)).mass
            assert mass.lower.sum() <= 1.0 <= mass.upper.sum()
            assert mass.upper.sum() - mass.lower.sum() < 1e-12


@pytest.mark.parametrize("count", [1, 2, 7])
def test_composition_equals_direct_convolution_within_its_error(count: int) -> None:
    upper, _ = _measures(directions(PoissonGaussian(0.1, 1.0))[0], 3.0, 0.05)
    part = tilted(((upper, count),), 3.0, outward=1)
    dense = np.zeros(part.places[0].max() - part.places[0].min() + 1)
    np.add.at(dense, part.places[0] - part.places[0].min(), part.weights[0])
    exact = dense
    for _ in range(count - 1):
        exact = np.convolve(exact, dense)
    first = int(count * part.places[0].min())
    found = compose(part, first, 4096)
    assert found.error < 1e-12
    assert np.max(np.abs(found.mass[: len(exact)] - exact)) <= found.error + 1e-15


@pytest.mark.skipif(not WIDE, reason="long double is no wider than float64 here")
@pytest.mark.parametrize(("probability", "count"), [(0.1, 7), (1e-4, 1000), (0.1, 5000)])
def test_long_double_agrees_within_a_far_smaller_error(probability: float, count: int) -> None:
    upper, _ = _measures(directions(PoissonGaussian(probability, 1.0))[0], 3.0, 0.01)
    part = tilted(((upper, count),), 3.0, outward=1)
    usual, wide = compose(part, -8192, 16384), compose(part, -8192, 16384, extended=True)
    assert wide.error < usual.error / 500.0
    assert np.max(np.abs(usual.mass - wide.mass)) <= usual.error + wide.error + U * np.max(
        wide.mass
    )
    # The claim of the smaller error itself, where float64 cannot judge: most of this window is
    # empty but for rounding.
    assert np.min(wide.mass) >= -wide.error


@pytest.mark.skipif(not WIDE, reason="long double is no wider than float64 here")
@pytest.mark.parametrize(("steps", "probability"), [(10_000, 1e-5), (10_000, 1e-4)])
def test_long_double_narrows_brackets_that_rounding_would_leave_wide(
    steps: int, probability: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = Problem(((PoissonRemove(probability, 1.0), steps),))
    narrow = epsilon_bracket(problem, 1e-12, 1e-3)
    assert narrow.upper - narrow.lower <= 1e-3 * narrow.upper
    for module in (bracket, window):
        monkeypatch.setattr(module, "WIDE", False)
    wide = epsilon_bracket(problem, 1e-12, 1e-3)
    assert wide.upper - wide.lower > 1e-3 * wide.upper
    assert max(narrow.lower, wide.lower) <= min(narrow.upper, wide.upper)
