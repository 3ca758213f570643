from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

from discreet.accounting import rdp
from discreet.accounting.costs import BoundedRange, Cost, Gaussian, Laplace, PoissonGaussian
from discreet.accounting.filters import GaussianFilter, RenyiFilter, choose_filter
from discreet.accounting.rdp.conversion import epsilon_from
from discreet.errors import AccountingError, BudgetExceeded, ParameterError


@pytest.mark.parametrize(
    ("epsilon", "delta", "noise"),  # analytic Gaussian mechanism, dp-accounting 0.6.0
    [
        (0.1, 1e-5, 30.749566),
        (1.0, 1e-5, 3.730632),
        (1.0, 1e-6, 4.224679),
        (8.0, 1e-5, 0.600229),
        (10.0, 1e-5, 0.499889),
    ],
)
def test_gaussian_limit_is_the_analytic_gaussian_mechanism(
    epsilon: float, delta: float, noise: float
) -> None:
    assert GaussianFilter(epsilon, delta).limit ** -0.5 == pytest.approx(noise, rel=1e-6)
    assert GaussianFilter(epsilon, delta).limit ** -0.5 >= noise * (1 - 1e-6)


@given(epsilon=st.floats(0.01, 20.0), exponent=st.floats(-15.0, -2.0))
def test_gaussian_limit_meets_its_delta(epsilon: float, exponent: float) -> None:
    delta = 10**exponent
    mu = math.sqrt(GaussianFilter(epsilon, delta).limit)
    truth = ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu)
    assert truth <= delta * (1 + 1e-6)


def test_gaussian_filter_loses_nothing_and_mixes_noise_levels() -> None:
    budget = GaussianFilter(1.0, 1e-5)
    noise = budget.limit**-0.5
    half = noise * math.sqrt(2) * (1 + 1e-12)
    assert budget.admits([(Gaussian(noise * (1 + 1e-12)), 1)])
    assert budget.admits([(Gaussian(half), 2)])
    assert not budget.admits([(Gaussian(half), 3)])
    after = budget.spend([(Gaussian(half), 1)])
    assert after.spent == pytest.approx(budget.limit / 2)
    assert after.admits([(Gaussian(half), 1)])
    with pytest.raises(BudgetExceeded):
        after.spend([(Gaussian(half * 0.99), 1)])


def test_gaussian_filter_refuses_what_it_has_no_theorem_for() -> None:
    for cost in (PoissonGaussian(0.1, 5.0), Laplace(5.0), BoundedRange(0.1)):
        with pytest.raises(AccountingError, match="filter"):
            GaussianFilter(1.0, 1e-5).admits([(cost, 1)])


@settings(max_examples=30, deadline=None)
@given(order=st.floats(1.5, 200.0), epsilon=st.floats(0.5, 10.0), exponent=st.floats(-12.0, -3.0))
def test_renyi_limit_is_the_conversion_solved_for_the_divergence(
    order: float, epsilon: float, exponent: float
) -> None:
    delta = 10**exponent
    try:
        limit = RenyiFilter(epsilon, delta, order).limit
    except AccountingError:
        assert epsilon_from(0.0, order, delta) >= epsilon
        return
    assert epsilon_from(limit, order, delta) <= epsilon * (1 + 1e-12)
    assert epsilon_from(limit * (1 + 1e-9) + 1e-9, order, delta) > epsilon


def test_renyi_filter_adds_along_the_path_at_one_order() -> None:
    budget = choose_filter([(PoissonGaussian(0.01, 1.0), 1)], epsilon=2.0, delta=1e-6)
    assert isinstance(budget, RenyiFilter)
    path: list[tuple[Cost, int]] = [
        (PoissonGaussian(0.01, 1.0), 100),
        (PoissonGaussian(0.02, 2.0), 50),
        (Laplace(10.0), 1),
    ]
    spent = budget
    for cost, count in path:
        spent = spent.spend([(cost, count)])
    assert spent.spent == pytest.approx(rdp.composed(path, budget.order), rel=1e-9)
    assert spent.spent >= rdp.composed(path, budget.order) * (1 - 1e-12)
    assert spent.order == budget.order
    with pytest.raises(BudgetExceeded, match="Nothing was charged"):
        spent.spend([(PoissonGaussian(0.01, 1.0), 100_000)])


def test_chosen_order_is_as_good_as_the_renyi_accountant_for_the_first_step() -> None:
    # Number of steps that fit: the filter fixed for this step reaches what the order-optimised
    # accountant reaches.
    cost = PoissonGaussian(0.01, 1.0)
    budget = choose_filter([(cost, 1)], epsilon=2.0, delta=1e-6)
    assert isinstance(budget, RenyiFilter)
    fits = math.floor(budget.limit / rdp.divergence(cost, budget.order))
    assert budget.admits([(cost, fits - 1)])
    assert not budget.admits([(cost, fits + 2)])
    assert rdp.epsilon([(cost, fits - 1)], delta=1e-6).value <= 2.0
    assert rdp.epsilon([(cost, fits + 20)], delta=1e-6).value > 2.0


def test_a_filter_picked_by_the_best_order_so_far_would_admit_more() -> None:
    # The named wrong implementation: re-optimising the order along the path. It admits a path that
    # the filter refuses.
    first, then = PoissonGaussian(0.001, 0.4), Gaussian(20.0)
    budget = choose_filter([(first, 1)], epsilon=6.0, delta=1e-6)
    count = next(k for k in range(1, 5000) if not budget.admits([(first, 1), (then, k)]))
    assert rdp.epsilon([(first, 1), (then, count)], delta=1e-6).value < 6.0


def test_gaussian_first_steps_choose_the_gaussian_filter() -> None:
    assert isinstance(choose_filter([(Gaussian(5.0), 1)], epsilon=1.0, delta=1e-5), GaussianFilter)
    assert isinstance(
        choose_filter([(Gaussian(5.0), 1), (Laplace(9.0), 1)], epsilon=1.0, delta=1e-5),
        RenyiFilter,
    )


def test_refusals() -> None:
    with pytest.raises(ParameterError):
        RenyiFilter(1.0, 1e-5, 1.0)
    with pytest.raises(AccountingError, match="larger order"):
        RenyiFilter(0.1, 1e-9, 2.0)
    with pytest.raises(ParameterError):
        GaussianFilter(0.0, 1e-5)
    with pytest.raises(ParameterError):
        GaussianFilter(1.0, 0.0)
