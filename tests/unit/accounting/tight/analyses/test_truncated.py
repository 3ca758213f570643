from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import pytest

from discreet.accounting import rdp
from discreet.accounting.costs import FixedSizeGaussian, PoissonGaussian, TruncatedPoissonGaussian
from discreet.accounting.normalise import costs_of_step
from discreet.accounting.tight.analyses.fixed_size import fixed_size_directions
from discreet.accounting.tight.analyses.truncated import cut, truncated_directions
from discreet.accounting.tight.lattice.bracket import epsilon_bracket
from discreet.accounting.tight.lattice.pair import Composition
from discreet.ledger.events import GaussianSum, Step, TruncatedPoisson
from discreet.units import Adjacency
from support.brute_force import curve, divergence

if TYPE_CHECKING:
    pass

NOISE = 0.7
EPSILONS = (-1.5, -0.4, 0.0, 0.05, 0.3, 1.0, 2.0)


def _law(records: tuple[float, ...], probability: float, limit: int) -> list[tuple[float, float]]:
    """The sum over a Poisson sample, cut to a uniformly random subset of `limit`: every case, by
    brute force.
    """
    found: dict[float, float] = {}
    for drawn in itertools.product((False, True), repeat=len(records)):
        weight = math.prod(probability if one else 1 - probability for one in drawn)
        sample = [record for record, one in zip(records, drawn, strict=True) if one]
        subsets = list(itertools.combinations(sample, min(limit, len(sample))))
        for subset in subsets:
            found[sum(subset)] = found.get(sum(subset), 0.0) + weight / len(subsets)
    return [(weight, mean) for mean, weight in found.items()]


@pytest.mark.parametrize("limit", [1, 2])
@pytest.mark.parametrize("probability", [0.2, 0.7])
@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_no_pair_of_small_data_sets_is_above_the_curve(
    limit: int, probability: float, adjacency: Adjacency
) -> None:
    step = Step(TruncatedPoisson(probability, limit, 3), [GaussianSum("g", 1.0, NOISE)])
    (cost,) = costs_of_step(step, adjacency)
    assert isinstance(cost, TruncatedPoissonGaussian)
    forward, backward = truncated_directions(cost)
    for others, one in itertools.product([(-1.0, -1.0), (-1.0, 1.0), (0.0, 1.0)], (-1.0, 1.0)):
        for with_it, without in _neighbours(others, one, adjacency):
            p, q = _law(with_it, probability, limit), _law(without, probability, limit)
            for epsilon in EPSILONS:
                assert divergence(p, q, NOISE, epsilon) <= curve(forward, epsilon)[1] + 2e-6, (
                    with_it,
                    without,
                    epsilon,
                )
                assert divergence(q, p, NOISE, epsilon) <= curve(backward, epsilon)[1] + 2e-6, (
                    with_it,
                    without,
                    epsilon,
                )


def _neighbours(
    others: tuple[float, float], one: float, adjacency: Adjacency
) -> list[tuple[tuple[float, ...], tuple[float, ...]]]:
    if adjacency is Adjacency.ADD_OR_REMOVE:  # 3 records against 2, and 4 against 3
        return [((*others, one), others), ((*others, -1.0, one), (*others, -1.0))]
    if adjacency is Adjacency.ZERO_OUT:
        return [((*others, one), (*others, 0.0))]
    return [((*others, one), (*others, -one))]


def test_the_uncut_poisson_pair_would_be_too_small() -> None:
    # The named wrong analysis: accounting for a cut sample as if it were not cut.
    p, q = _law((-1.0, -1.0, 1.0), 0.7, 1), _law((-1.0, -1.0), 0.7, 1)
    wrong = divergence([(0.3, 0.0), (0.7, 1.0)], [(1.0, 0.0)], NOISE, 2.0)
    assert divergence(p, q, NOISE, 2.0) > wrong * 1.5
    assert (
        curve(truncated_directions(TruncatedPoissonGaussian(0.7, 1, 3, NOISE))[0], 2.0)[1]
        > wrong * 1.5
    )


def test_everything_drawn_and_cut_is_a_fixed_size() -> None:
    cut_cost = TruncatedPoissonGaussian(1.0, 20, 100, 1.0, replace=True)
    one, other = (
        truncated_directions(cut_cost)[0],
        fixed_size_directions(FixedSizeGaussian(20, 100, 1.0))[0],
    )
    for epsilon in EPSILONS:
        assert math.isclose(
            curve(one, epsilon)[1], curve(other, epsilon)[1], rel_tol=1e-9, abs_tol=1e-14
        )


def test_probabilities_of_a_cut_by_brute_force() -> None:
    cost = TruncatedPoissonGaussian(0.3, 3, 7, 1.0)
    masses = [math.comb(6, k) * 0.3**k * 0.7 ** (6 - k) for k in range(7)]
    found = cut(cost, 7)
    assert math.isclose(found.upper, sum(masses[3:]), rel_tol=1e-12)
    expected = sum(mass * 0.3 * 3 / (k + 1) for k, mass in enumerate(masses) if k >= 3) / sum(
        masses[3:]
    )
    assert expected <= found.taken <= expected * (1 + 1e-9)


@pytest.mark.parametrize(
    ("limit", "steps", "library", "ours"),
    [
        (5000, 200, 5.868710119, 5.7927),
        (5200, 200, 2.884976641, 2.8808),
        (5400, 200, 0.586813974, 0.5871),
        (5000, 20_000, 28.89918054, 24.135),
        (5200, 20_000, 6.628562097, 6.5951),
        (5400, 20_000, 4.610697338, 4.6118),
    ],
)
def test_against_the_values_of_a_library_that_uses_a_looser_pair(
    limit: int, steps: int, library: float, ours: float
) -> None:
    # dp-accounting 0.6.0, TruncatedSubsampledGaussianDpEvent, 1e6 records, probability .005, noise
    # 1, delta 1e-6.
    cost = TruncatedPoissonGaussian(0.005, limit, 1_000_000, 1.0)
    found = [
        epsilon_bracket(Composition(((one, steps),)), 1e-6, 1e-3)
        for one in truncated_directions(cost)
    ]
    upper = max(one.upper for one in found)
    assert math.isclose(upper, ours, rel_tol=1e-3)
    assert upper <= library * (1 + 1e-3)
    uncut = epsilon_bracket(Composition(((truncated_directions(_uncut())[0], steps),)), 1e-6, 1e-3)
    assert upper >= uncut.lower * (1 - 1e-9)
    assert upper <= rdp.epsilon([(cost, steps)], delta=1e-6).value


def _uncut() -> TruncatedPoissonGaussian:
    return TruncatedPoissonGaussian(0.005, 9000, 1_000_000, 1.0)


def test_a_limit_far_away_costs_nothing() -> None:
    one = truncated_directions(_uncut())[0]
    plain = PoissonGaussian(0.005, 1.0)
    expected = divergence(
        [(1 - plain.probability, 0.0), (plain.probability, 1.0)], [(1.0, 0.0)], 1.0, 0.01
    )
    assert math.isclose(curve(one, 0.01)[1], expected, rel_tol=1e-5)


def test_zero_out_is_told_apart_from_add_or_remove() -> None:
    step = Step(TruncatedPoisson(0.01, 10, 1000), [GaussianSum("g", 1.0, 1.0)])
    costs = {adjacency: costs_of_step(step, adjacency)[0] for adjacency in Adjacency}
    assert len(set(costs.values())) == 3
