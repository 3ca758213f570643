from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import numpy as np
import pytest

from discreet.accounting import rdp
from discreet.accounting.costs import FixedSizeGaussian
from discreet.accounting.tight.analyses.fixed_size import Exchange, fixed_size_directions
from discreet.accounting.tight.analyses.poisson import PoissonAdd, PoissonRemove
from discreet.accounting.tight.lattice.bracket import epsilon_bracket
from discreet.accounting.tight.lattice.pair import Composition
from support.brute_force import curve, divergence

if TYPE_CHECKING:
    from discreet.accounting.tight.rounding import FloatArray


@pytest.mark.parametrize(("g", "s"), [(0.3, 0.4), (0.005, 0.5), (0.7, 2.0)])
def test_the_curve_is_that_of_remove_above_zero_and_of_add_below(g: float, s: float) -> None:
    for epsilon in (-3.0, -0.4, -1e-3, 0.0, 1e-3, 0.2, 2.0):
        low, high = curve(Exchange(g, s), epsilon)
        side = PoissonRemove(g, s) if epsilon >= 0.0 else PoissonAdd(g, s)
        expected = divergence([(1 - g, 0.0), (g, 1.0)], [(1.0, 0.0)], s, epsilon)
        if epsilon < 0.0:
            expected = divergence([(1.0, 0.0)], [(1 - g, 0.0), (g, 1.0)], s, epsilon)
        assert math.isclose(low, expected, rel_tol=1e-5, abs_tol=1e-9)
        assert high - low <= 1e-10
        assert math.isclose(high, curve(side, epsilon)[1], rel_tol=1e-9, abs_tol=1e-10)


def test_masses_sum_to_one_and_cells_do_not_depend_on_where_zero_lies() -> None:
    pair = Exchange(0.1, 0.6)
    for edges in ([-1.0, -0.01, 0.02, 1.0], [-1.0, 0.0, 1.0], [0.3, 0.9], [-0.9, -0.3], [0.0]):
        cells = pair.cells(np.array(edges))
        assert math.isclose(cells.mass.lower.sum(), 1.0, rel_tol=1e-11)
        assert cells.mass.lower.sum() <= 1.0 <= cells.mass.upper.sum()
        # Over and under of one cell belong together: over e^-g + under e^-g' = P (e^-g - e^-g').
        for i in range(1, len(edges)):
            low, high = math.exp(-edges[i - 1]), math.exp(-edges[i])
            both = cells.over.upper[i] * low + cells.under.upper[i] * high
            assert math.isclose(
                both, cells.mass.upper[i] * (low - high), rel_tol=1e-8, abs_tol=1e-11
            )


def test_no_pair_of_small_data_sets_is_above_the_curve_on_either_side_of_zero() -> None:
    # Every data set of 3 records from {-1, 0, 1}, samples of 1 and 2, one record exchanged or
    # zeroed.
    noise = 0.7
    for size, others, one, two in itertools.product(
        (1, 2), [(-1.0, -1.0), (-1.0, 1.0), (0.0, -1.0)], (-1.0, 0.0, 1.0), (-1.0, 1.0)
    ):
        p, q = (_sums((*others, record), size) for record in (one, two))
        direction = fixed_size_directions(FixedSizeGaussian(size, 3, noise))[0]
        for epsilon in (-1.5, -0.5, -0.1, 0.0, 0.1, 0.5, 1.5, 3.0):
            assert divergence(p, q, noise, epsilon) <= curve(direction, epsilon)[1] + 2e-6


def _sums(records: tuple[float, ...], size: int) -> list[tuple[float, float]]:
    subsets = list(itertools.combinations(records, size))
    return [(1.0 / len(subsets), sum(subset)) for subset in subsets]


@pytest.mark.parametrize("steps", [200, 20_000])
def test_the_bound_lies_between_explicit_data_sets_and_the_renyi_bound(steps: int) -> None:
    cost = FixedSizeGaussian(5000, 1_000_000, 1.0)
    upper = epsilon_bracket(
        Composition(((fixed_size_directions(cost)[0], steps),)), 1e-6, 1e-2
    ).upper
    attained = [
        epsilon_bracket(Composition(((direction, steps),)), 1e-6, 1e-2).lower
        for direction in (PoissonRemove(0.005, 0.5), PoissonAdd(0.005, 0.5))
    ]
    stored_lower, ours = {200: (6.4933494, 6.6253), 20_000: (33.6213454, 42.4572)}[steps]
    assert max(attained) >= stored_lower * 0.99
    assert stored_lower <= max(attained) * 1.02 <= upper * 1.02
    assert upper <= rdp.epsilon([(cost, steps)], delta=1e-6).value
    assert math.isclose(upper, ours, rel_tol=1e-2)


def test_the_curve_above_zero_alone_does_not_survive_composition() -> None:
    """Randomized response among three values as the mechanism: the argument of the theorem knows
    nothing of Gaussians.

    The analysis that keeps H(M || Q) for all eps is right for one step at eps >= 0, and wrong for
    two.
    """
    g, truth = 0.7, math.exp(5.0) / (math.exp(5.0) + 2.0)
    other = (1.0 - truth) / 2.0
    a, b, c = (np.where(np.arange(3) == i, truth, other) for i in range(3))
    real = ((1 - g) * a + g * b, (1 - g) * a + g * c)
    claimed = ((1 - g) * a + g * b, a)
    for epsilon in np.linspace(0.0, 6.0, 25):
        assert _stick(*real, epsilon) <= _stick(*claimed, epsilon) + 1e-15
    twice_real = np.outer(real[0], real[0]), np.outer(real[1], real[1])
    twice_claimed = np.outer(claimed[0], claimed[0]), np.outer(claimed[1], claimed[1])
    assert _stick(*twice_real, 3.5) > _stick(*twice_claimed, 3.5) + 0.25
    # The combined curve as a pair: the losses of the claimed pair above 0, their mirror image
    # below, the rest at 0.
    up = claimed[0] > claimed[1]
    rest = 1.0 - claimed[0][up].sum() - claimed[1][up].sum()
    assert rest >= 0.0
    p = np.concatenate([claimed[0][up], claimed[1][up], [rest]])
    q = np.concatenate([claimed[1][up], claimed[0][up], [rest]])
    for epsilon in np.linspace(0.0, 9.0, 19):
        assert (
            _stick(*twice_real, epsilon) <= _stick(np.outer(p, p), np.outer(q, q), epsilon) + 1e-12
        )


def _stick(p: FloatArray, q: FloatArray, epsilon: float) -> float:
    return float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum())
