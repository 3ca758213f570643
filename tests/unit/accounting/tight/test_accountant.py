"""The tight accountant: which road an answer takes, and that every road ends in an interval."""

import math

import pytest

from discreet.accounting import rdp
from discreet.accounting.costs import (
    FixedSizeGaussian,
    Gaussian,
    Laplace,
    PoissonGaussian,
    Response,
)
from discreet.accounting.gaussian import gaussian_delta, gaussian_epsilon
from discreet.accounting.tight.accountant import (
    NOTHING,
    Interval,
    sketched_epsilon,
    tight_delta,
    tight_epsilon,
    tight_upper,
)
from discreet.accounting.tight.lattice.coarse import MOST
from discreet.errors import AccountingError

POISSON = (PoissonGaussian(0.01, 1.0), 100)


def test_no_cost_is_nothing() -> None:
    assert tight_epsilon((), 1e-6) == tight_delta((), 0.0) == NOTHING
    assert tight_upper((), 1e-6) == 0.0


def test_gaussians_are_folded_and_answered_in_closed_form() -> None:
    costs = ((Gaussian(6.0), 9),)
    interval = tight_epsilon(costs, 1e-6)
    assert (interval.lower, interval.upper) == gaussian_epsilon(2.0, 1e-6)
    assert tight_upper(costs, 1e-6) == interval.upper
    delta = tight_delta(costs, 1.0)
    assert (delta.lower, delta.upper) == gaussian_delta(2.0, 1.0)


def test_steps_that_only_dominate_add_to_the_upper_end_alone() -> None:
    # Counting them in the lower end would claim a loss that no data sets are known to have.
    shuffled = Gaussian(2.0, attained=False)
    assert tight_epsilon(((shuffled, 1),), 1e-6).lower == 0.0
    alone = tight_epsilon((POISSON,), 1e-6)
    together = tight_epsilon((POISSON, (shuffled, 1)), 1e-6)
    assert together.lower == alone.lower
    assert together.upper > alone.upper


@pytest.mark.parametrize("costs", [(POISSON,), ((FixedSizeGaussian(10, 1000, 1.0), 50),)])
def test_no_answer_is_above_the_renyi_bound(costs: tuple[tuple[PoissonGaussian, int], ...]) -> None:
    assert tight_epsilon(costs, 1e-6).upper <= rdp.epsilon(costs, delta=1e-6).value
    assert tight_delta(costs, 1.0).upper <= rdp.delta(costs, epsilon=1.0).value


@pytest.mark.parametrize("cost", [PoissonGaussian(0.01, 0.01), Laplace(1e-3)])
def test_losses_out_of_range_leave_the_renyi_bound(cost: PoissonGaussian | Laplace) -> None:
    interval = tight_epsilon(((cost, 10),), 1e-6)
    bound = rdp.epsilon([(cost, 10)], delta=1e-6).value
    assert interval == Interval(0.0, bound, bound)
    assert tight_upper(((cost, 10),), 1e-6) == bound


def test_one_step_has_its_own_curve() -> None:
    assert tight_delta(((Laplace(1.0), 1),), 0.3).upper == pytest.approx(-math.expm1(-0.35))
    interval = tight_epsilon(((Response(2, 0.75), 1),), 0.25)
    assert interval.lower <= math.log(2.0) <= interval.upper
    assert interval.upper - interval.lower < 1e-9


def test_too_many_costs_of_other_kinds_are_refused() -> None:
    costs = tuple((Laplace(2.0 + i), 1) for i in range(MOST + 1))
    with pytest.raises(AccountingError, match="different steps"):
        tight_epsilon(costs, 1e-6)


def test_many_poisson_costs_are_answered_by_fewer() -> None:
    costs = tuple((PoissonGaussian(0.01, 1.0 + 1e-4 * i), 2) for i in range(MOST + 1))
    interval = tight_epsilon(costs, 1e-6, 1e-2)
    same = tight_epsilon(((PoissonGaussian(0.01, 1.0), 2 * (MOST + 1)),), 1e-6, 1e-2)
    assert 0.0 < interval.lower <= interval.upper
    assert interval.lower <= same.upper


@pytest.mark.parametrize("ends", [(1.0, 0.5, 2.0), (0.0, math.nan, 1.0), (0.0, 1.0, math.nan)])
def test_p37_an_interval_is_in_order_or_refused(ends: tuple[float, float, float]) -> None:
    with pytest.raises(AccountingError, match="lower <= estimate <= upper"):
        Interval(*ends)


@pytest.mark.parametrize("steps", [1, 100, 10_000, 1_000_000])
@pytest.mark.parametrize("probability", [1e-3, 0.1])
def test_a_sketch_is_near_the_answer(probability: float, steps: int) -> None:
    costs = ((PoissonGaussian(probability, 2.0), steps),)
    found = tight_epsilon(costs, 1e-6)

    # Beyond an epsilon of some hundreds there is the saddle point alone.
    few_digits = found.estimate > 300.0
    assert sketched_epsilon(costs, 1e-6) == pytest.approx(
        found.estimate, rel=1e-3 if few_digits else 1e-6
    )


def test_a_sketch_of_what_is_not_known_is_not_a_number() -> None:
    assert math.isnan(sketched_epsilon((), 1e-6))
    assert math.isnan(sketched_epsilon(((PoissonGaussian(0.5, 0.01), 3),), 1e-6))


def test_one_step_is_known_to_twelve_digits() -> None:
    found = tight_epsilon(((PoissonGaussian(0.01, 1.0), 1),), 1e-5)
    assert found.lower <= 0.1994504477959 <= found.upper
    assert found.upper - found.lower <= 1e-11 * found.upper
