"""Laws of the tight accountant."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from discreet.accounting import account, rdp
from discreet.accounting.costs import BoundedRange, Cost, Gaussian, Laplace, PoissonGaussian
from discreet.accounting.gaussian import fold, gaussian_delta, gaussian_epsilon
from discreet.accounting.normalise import normalise
from discreet.accounting.tight import tight_delta, tight_epsilon
from discreet.accounting.tight.analyses.poisson import PoissonRemove
from discreet.accounting.tight.analyses.registry import directions
from discreet.accounting.tight.lattice.bracket import delta_bracket, epsilon_bracket
from discreet.accounting.tight.lattice.pair import Composition
from discreet.ledger.events import Everything, GaussianSum, LaplaceSum, Poisson, Step
from discreet.units import Adjacency

ADD = Adjacency.ADD_OR_REMOVE
FEW = settings(max_examples=12, deadline=None)

probability = st.floats(1e-4, 0.9).map(lambda x: float(f"{x:.3g}"))
noise = st.floats(0.5, 10.0).map(lambda x: float(f"{x:.3g}"))
count = st.integers(1, 3_000)
delta = st.sampled_from([1e-3, 1e-5, 1e-8, 1e-12, 1e-15])


@FEW
@given(probability, noise, count, delta)
def test_lower_estimate_upper_renyi_are_in_order(q: float, z: float, k: int, d: float) -> None:
    costs: tuple[tuple[Cost, int], ...] = ((PoissonGaussian(q, z), k),)
    found = tight_epsilon(costs, d)
    assert 0.0 <= found.lower <= found.estimate <= found.upper <= rdp.epsilon(costs, delta=d).value


@pytest.mark.parametrize("mixed", [(), ((PoissonGaussian(0.01, 1.0), 100),)])
def test_the_renyi_cap_holds_where_a_pair_only_dominates(
    mixed: tuple[tuple[Cost, int], ...],
) -> None:
    """Rényi analysis of a bounded range beats its dominating pair: leaving the cap out because the
    curve looks tight fails.
    """
    costs: tuple[tuple[Cost, int], ...] = ((BoundedRange(0.1), 100), *mixed)
    pairs = epsilon_bracket(
        Composition(tuple((directions(cost)[0], k) for cost, k in costs)), 1e-5, 1e-3
    )
    assert rdp.epsilon(costs, delta=1e-5).value < pairs.lower
    assert tight_epsilon(costs, 1e-5).upper <= rdp.epsilon(costs, delta=1e-5).value
    assert tight_delta(costs, 1.4).upper <= rdp.delta(costs, epsilon=1.4).value


@FEW
@given(probability, noise, st.lists(st.integers(0, 40), min_size=1, max_size=4))
def test_composition_counts_and_order_do_not_matter(q: float, z: float, counts: list[int]) -> None:
    first = Step(Poisson(q), [GaussianSum("grad", 1.0, z)])
    second = Step(Everything(), [LaplaceSum("sum", 1.0, 20.0)])
    pairs = [(first, k) for k in counts] + [(second, 2)]
    copies = [(first, 1)] * sum(counts) + [(second, 1)] * 2
    assert normalise(pairs, ADD) == normalise(copies[::-1], ADD)
    assert account(pairs, delta=1e-6, adjacency=ADD) == account(
        copies[::-1], delta=1e-6, adjacency=ADD
    )


@FEW
@given(probability, noise, st.integers(1, 5), st.integers(1, 500))
def test_p34_groups_cost_what_one_folded_group_costs(
    q: float, z: float, groups: int, k: int
) -> None:
    # Each of G groups has noise multiplier z sqrt(G), so that together they have z.
    many = Step(
        Poisson(q),
        [GaussianSum(f"g{i}", 0.5 + i, z * math.sqrt(groups) * (0.5 + i)) for i in range(groups)],
    )
    one = Step(Poisson(q), [GaussianSum("all", 1.0, z)])
    found = account([(many, k)], delta=1e-6, adjacency=ADD)
    expected = account([(one, k)], delta=1e-6, adjacency=ADD)
    assert found.lower <= expected.upper * (1 + 1e-9)
    assert expected.lower <= found.upper * (1 + 1e-9)
    apart = [(Step(Poisson(q), [query]), k) for query in many.queries]
    if groups > 1 and expected.lower > 0.1 and q < 0.3:
        # Composed as if each group had a sample of its own the cost is another one: here it must
        # not be mistaken for it.
        assert normalise(apart, ADD) != normalise([(many, k)], ADD)


@FEW
@given(probability, noise, count, st.sampled_from([1e-5, 1e-10]))
def test_monotone_in_probability_noise_count_and_delta(
    q: float, z: float, k: int, d: float
) -> None:
    base = tight_epsilon(((PoissonGaussian(q, z), k),), d)
    for worse, at in (
        (((PoissonGaussian(min(0.99, q * 1.1), z), k),), d),
        (((PoissonGaussian(q, z / 1.1), k),), d),
        (((PoissonGaussian(q, z), k + 1 + k // 10),), d),
        (((PoissonGaussian(q, z), k),), d / 2),
    ):
        assert tight_epsilon(worse, at).upper >= base.lower


@FEW
@given(noise, st.integers(1, 400), delta)
def test_probability_one_equals_the_closed_form(z: float, k: int, d: float) -> None:
    low, high = gaussian_epsilon(fold([(z, k)]), d)
    assert high - low <= 1e-8 * high + 1e-12
    found = epsilon_bracket(Composition(((PoissonRemove(1.0, z), k),)), d, 1e-3)
    assert found.lower <= high
    assert low <= found.upper
    step = Step(Poisson(1.0), [GaussianSum("grad", 1.0, z)])
    assert account([(step, k)], delta=d, adjacency=ADD).upper == high


@FEW
@given(noise, st.floats(0.0, 20.0))
def test_delta_of_a_gaussian_in_two_ways(z: float, epsilon: float) -> None:
    low, high = gaussian_delta(z, epsilon)
    if high < 1e-250:
        return
    found = delta_bracket(Composition(((PoissonRemove(1.0, z), 1),)), epsilon, 1e-3)
    assert found.lower <= high
    assert low <= found.upper


@FEW
@given(probability, noise, st.integers(2, 1_000), st.floats(0.05, 5.0))
def test_delta_and_epsilon_are_inverse(q: float, z: float, k: int, epsilon: float) -> None:
    costs = ((PoissonGaussian(q, z), k),)
    at = tight_delta(costs, epsilon)
    if not 1e-14 < at.lower <= at.upper < 0.5:
        return
    assert tight_epsilon(costs, at.upper).lower <= epsilon
    assert tight_epsilon(costs, at.lower).upper >= epsilon


@FEW
@given(probability, noise, st.integers(1, 300), st.integers(1, 300), delta)
def test_a_product_of_spectra_is_one_power(q: float, z: float, j: int, k: int, d: float) -> None:
    nearly = math.nextafter(math.nextafter(z, 0.0), 0.0)
    apart = tight_epsilon(((PoissonGaussian(q, z), j), (PoissonGaussian(q, nearly), k)), d)
    together = tight_epsilon(((PoissonGaussian(q, z), j + k),), d)
    assert apart.lower <= together.upper
    assert together.lower <= apart.upper


@FEW
@given(probability, noise, st.integers(1, 200), delta)
def test_replace_one_costs_at_least_add_or_remove(q: float, z: float, k: int, d: float) -> None:
    plain = tight_epsilon(((PoissonGaussian(q, z), k),), d)
    replaced = tight_epsilon(((PoissonGaussian(q, z, replace=True), k),), d)
    assert replaced.upper >= plain.lower


@FEW
@given(st.floats(0.5, 20.0), st.integers(1, 50))
def test_laplace_never_costs_more_than_pure_composition(b: float, k: int) -> None:
    found = tight_epsilon(((Laplace(b), k),), 1e-9)
    assert found.lower <= k / b
    assert found.upper <= k / b * (1 + 1e-9)


def test_gaussians_and_samples_together_lie_between_each_alone_and_the_sum() -> None:
    sampled: tuple[Cost, int] = (PoissonGaussian(0.01, 1.0), 1_000)
    plain: tuple[Cost, int] = (Gaussian(2.0), 3)
    both = tight_epsilon((sampled, plain), 1e-6)
    assert both.lower > max(
        tight_epsilon((sampled,), 1e-6).upper, tight_epsilon((plain,), 1e-6).upper
    )
    assert both.upper < tight_epsilon((sampled,), 5e-7).upper + tight_epsilon((plain,), 5e-7).upper
    assert both.upper - both.lower <= 1.01e-3 * both.upper


@pytest.mark.parametrize("d", [1e-5, 1e-15])
def test_more_time_only_narrows(d: float) -> None:
    costs = ((PoissonGaussian(0.02, 1.2), 500),)
    coarse, fine = tight_epsilon(costs, d, 1e-2), tight_epsilon(costs, d, 1e-4)
    assert max(coarse.lower, fine.lower) <= min(coarse.upper, fine.upper)
    assert fine.upper - fine.lower <= 1e-4 * fine.upper
