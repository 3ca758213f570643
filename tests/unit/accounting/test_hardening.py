"""Inputs on which an earlier version claimed too little, crashed or hung: each was found by attack,
and must stay closed.
"""

import math
import time
from typing import Any

import numpy as np
import pytest

import discreet as dp
from discreet.accounting import TradeOff
from discreet.accounting._binomial import at_least

EVERYTHING = dp.Everything()
INFO = dp.ledger.RunInfo(
    unit=dp.Unit.EXAMPLE,
    adjacency=dp.Adjacency.ADD_OR_REMOVE,
    groups=("l",),
    numerics=dp.Numerics.EXACT,
    randomness=dp.units.Randomness.SYSTEM,
    parameters=dp.units.Parameters.FIXED_IN_ADVANCE,
)


def account(
    sampling: dp.ledger.Sampling, query: dp.ledger.Query, count: int = 1, **asked: Any
) -> dp.Guarantee:
    adjacency = asked.pop("adjacency", dp.Adjacency.ADD_OR_REMOVE)
    return dp.account([(dp.ledger.Step(sampling, query), count)], adjacency=adjacency, **asked)


@pytest.mark.parametrize("scale", [1e-5, 1e-3, 1 / 800, 1 / 400])
@pytest.mark.parametrize("count", [1, 3])
def test_p37_losses_beyond_the_range_of_floats_are_not_taken_for_nothing(
    scale: float, count: int
) -> None:
    laplace = dp.ledger.LaplaceSum("l", 1.0, scale)
    assert account(EVERYTHING, laplace, count, delta=1e-6).upper == pytest.approx(
        count / scale, rel=1e-2
    )
    assert account(EVERYTHING, laplace, count, epsilon=1.0).delta > 0.99
    choice = dp.ledger.ExponentialChoice("c", 1.0, scale)
    assert account(EVERYTHING, choice, delta=1e-6).upper == pytest.approx(2 / scale, rel=1e-2)
    with pytest.raises(dp.errors.BudgetExceeded):
        dp.Ledger.in_memory(budget=dp.Budget(epsilon=1.0, delta=1e-6)).begin(
            INFO, [(dp.ledger.Step(EVERYTHING, laplace), count)]
        )


@pytest.mark.parametrize(
    ("probability", "records", "epsilon", "truth"),
    [(1.0, 1, 1.5, 0.1597), (0.9, 1, 1.5, 0.1091), (0.5, 1, 1.5, 0.01422), (1.0, 2, 2.0, 0.1825)],
)
def test_a_limit_equal_to_the_number_of_records_cuts_the_neighbour(
    probability: float, records: int, epsilon: float, truth: float
) -> None:
    """The truth by brute force over two data sets: one has `records` records, its neighbour one
    more, which is cut.
    """
    for accountant in ("tight", "rdp"):
        sampling = dp.ledger.TruncatedPoisson(probability, records, records)
        found = account(
            sampling, dp.ledger.GaussianSum("g", 1.0, 1.0), epsilon=epsilon, accountant=accountant
        )
        assert found.delta >= truth


def test_binomial_tails_of_very_many_trials_are_bounded_by_what_is_known() -> None:
    low, high = at_least(int(0.3e16) + 10**8, 10**16, 0.3)
    assert low <= 0.0146 <= high
    assert at_least(2**61, 2**62, 0.5) == (0.0, 1.0)
    assert (
        account(
            dp.ledger.TruncatedPoisson(0.5, 2**61, 2**62),
            dp.ledger.GaussianSum("g", 1, 1),
            delta=1e-6,
        ).upper
        > 4.0
    )


def test_an_atom_at_the_edge_is_counted() -> None:
    """Randomized response: the loss is an atom; at an epsilon just below it, delta is not 0."""
    truth, categories = 0.9999999995117498, 7
    found = account(
        EVERYTHING,
        dp.ledger.RandomizedResponse("r", categories, truth),
        epsilon=23.231952568350128,
        adjacency=dp.Adjacency.REPLACE_ONE,
    )
    assert found.delta >= 5.6e-16
    tiny = account(
        EVERYTHING,
        dp.ledger.RandomizedResponse("r", 5, 0.2),
        delta=1e-18,
        adjacency=dp.Adjacency.REPLACE_ONE,
    )
    assert tiny.upper > 0.0


@pytest.mark.parametrize("noise", [1e-3, 1e-4, 1e-6, 1e-200, 1e155, 1e200])
@pytest.mark.parametrize(
    "sampling",
    [dp.Poisson(0.5), dp.ledger.BallsInBins(2), dp.ledger.TruncatedPoisson(0.5, 700, 1000)],
)
def test_noise_of_any_size_is_answered_or_refused_at_once(
    sampling: dp.ledger.Sampling, noise: float
) -> None:
    start = time.process_time()
    try:
        found = account(sampling, dp.ledger.GaussianSum("g", 1.0, noise), 10, delta=1e-6)
    except dp.errors.AccountingError:
        assert noise < 1e-100
    else:
        assert found.upper < 1e-100 if noise > 1 else found.upper > 1e5
    assert time.process_time() - start < 5.0


def test_a_lower_bound_from_some_costs_and_an_estimate_from_all_agree() -> None:
    steps = [
        (dp.ledger.Step(EVERYTHING, dp.ledger.RandomizedResponse("r", 4, 0.6)), 50),
        (
            dp.ledger.Step(
                dp.ledger.TruncatedPoisson(0.1, 150, 1000), dp.ledger.GaussianSum("g", 1.0, 1.33)
            ),
            500,
        ),
    ]
    found = dp.account(steps, delta=0.1, tolerance=1e-3, adjacency=dp.Adjacency.REPLACE_ONE)
    assert found.estimate is not None
    assert found.lower <= found.estimate <= found.upper


def test_a_finer_tolerance_is_never_worse() -> None:
    before = math.inf
    for tolerance in (1e-3, 1e-4, 1e-5, 1e-6):
        found = account(
            dp.Poisson(0.005),
            dp.ledger.GaussianSum("g", 1.0, 1.0),
            20_000,
            delta=1e-6,
            tolerance=tolerance,
        )
        assert found.upper - found.lower <= before
        assert found.lower <= 4.61056723 <= found.upper
        before = found.upper - found.lower


def test_ten_thousand_different_steps_are_bracketed_in_seconds() -> None:
    noises = np.linspace(1.0, 2.0, 10_000)
    steps = [
        (dp.ledger.Step(dp.Poisson(0.01), dp.ledger.GaussianSum("g", 1.0, noise)), 1)
        for noise in noises
    ]
    start = time.process_time()
    found = dp.account(steps, delta=1e-6, adjacency=dp.Adjacency.ADD_OR_REMOVE)
    assert time.process_time() - start < 60.0
    assert 0.0 < found.lower <= found.upper <= 1.05 * found.lower
    for extreme, compare in ((1.0, max), (2.0, min)):
        same = account(
            dp.Poisson(0.01), dp.ledger.GaussianSum("g", 1.0, extreme), 10_000, delta=1e-6
        )
        assert compare(same.upper, found.upper) == same.upper


def test_a_small_budget_for_an_adaptive_run_finds_its_order() -> None:
    step = dp.ledger.Step(dp.Poisson(0.001), dp.ledger.GaussianSum("g", 1.0, 20.0))
    run = dp.ledger.RunInfo(
        unit=dp.Unit.EXAMPLE,
        adjacency=dp.Adjacency.ADD_OR_REMOVE,
        groups=("g",),
        numerics=dp.Numerics.IDEALISED,
        randomness=dp.units.Randomness.SYSTEM,
        parameters=dp.units.Parameters.CHOSEN_FROM_OUTPUTS,
    )
    for epsilon in (0.02, 0.1, 0.2, 1.0):
        budget = dp.Filter(epsilon=epsilon, delta=1e-6)
        dp.Ledger.in_memory(budget=budget).begin(run, [(step, 100)])
        with pytest.raises(dp.errors.BudgetExceeded):
            dp.Ledger.in_memory(budget=budget).begin(run, [(step, 10**12)])


def test_an_accountant_that_is_no_name_is_said() -> None:
    with pytest.raises(dp.errors.ParameterError, match="'tight' or 'rdp'"):
        account(EVERYTHING, dp.ledger.GaussianSum("g", 1, 1), delta=1e-6, accountant=["tight"])


def test_a_point_that_says_nothing_claims_nothing() -> None:
    assert float(TradeOff((1000.0,), (0.0,)).miss_rate(1e-310)) == 0.0


def test_delta_one_is_stated_as_one() -> None:
    assert account(EVERYTHING, dp.ledger.GaussianSum("g", 1.0, 1e-3), epsilon=0.0).delta == 1.0
