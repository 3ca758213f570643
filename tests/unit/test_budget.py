from __future__ import annotations

import math
from dataclasses import replace

import pytest

from discreet.accounting.accountant import account
from discreet.accounting.filters import GaussianFilter
from discreet.budget import Budget
from discreet.errors import AccountingError, BudgetExceeded, ParameterError
from discreet.ledger.events import Everything, GaussianSum, Poisson, Sampling, Step
from discreet.ledger.rows import Charge, RunInfo
from discreet.units import Adjacency, Numerics, Parameters, Randomness, Unit

FIXED = RunInfo(
    unit=Unit.USER,
    adjacency=Adjacency.ADD_OR_REMOVE,
    groups=("grad",),
    numerics=Numerics.CERTIFIED,
    randomness=Randomness.SYSTEM,
    parameters=Parameters.FIXED_IN_ADVANCE,
)
CHOSEN = replace(FIXED, parameters=Parameters.CHOSEN_FROM_OUTPUTS)


def charge(count: int, *, run: RunInfo = FIXED, sampling: Sampling = Poisson(0.01), noise: float = 1.0) -> Charge:  # noqa: B008
    return Charge(run, Step(sampling, [GaussianSum("grad", 1.0, noise)]), count)


def steps_that_fit(budget: Budget, run: RunInfo) -> int:
    low, high = 1, 100_000
    while high - low > 1:
        middle = (low + high) // 2
        try:
            budget([charge(middle, run=run)])
            low = middle
        except BudgetExceeded:
            high = middle
    return low


def test_an_empty_ledger_fits_anything() -> None:
    budget = Budget(epsilon=1e-9, delta=1e-9)
    budget(())
    with pytest.raises(BudgetExceeded):
        budget((charge(1),))


def test_p38_exactly_the_target_fits_and_anything_more_does_not() -> None:
    # One full-batch Gaussian: the accountant has a closed form, so the bound is the same whatever the tolerance.
    charges = [charge(1, sampling=Everything(), noise=2.0)]
    exact = account([(charges[0].step, 1)], delta=1e-6, adjacency=Adjacency.ADD_OR_REMOVE).upper
    Budget(epsilon=exact, delta=1e-6)(charges)
    with pytest.raises(BudgetExceeded, match="Nothing was charged"):
        Budget(epsilon=math.nextafter(exact, 0.0), delta=1e-6)(charges)


def test_fixed_parameters_are_accounted_tightly_and_stop_at_the_last_step_that_fits() -> None:
    tight = steps_that_fit(Budget(epsilon=2.0, delta=1e-6), FIXED)
    renyi = steps_that_fit(Budget(epsilon=2.0, delta=1e-6, accountant="rdp"), FIXED)
    assert tight > renyi
    step = charge(1).step
    assert account([(step, tight)], delta=1e-6, adjacency=Adjacency.ADD_OR_REMOVE).lower <= 2.0
    assert account([(step, tight + 2)], delta=1e-6, tolerance=1e-4, adjacency=Adjacency.ADD_OR_REMOVE).upper > 2.0


def test_p39_parameters_chosen_from_outputs_get_a_filter_not_the_tight_accountant() -> None:
    budget = Budget(epsilon=2.0, delta=1e-6)
    tight = steps_that_fit(budget, FIXED)
    filtered = steps_that_fit(budget, CHOSEN)
    assert filtered < tight  # a running tight accountant (the bug of P39) would give the same number
    with pytest.raises(BudgetExceeded, match="filter"):
        budget([charge(tight, run=CHOSEN)])
    with pytest.raises(BudgetExceeded, match="filter"):
        budget([charge(tight - 1), charge(1, run=CHOSEN)])  # one such run is enough


def test_the_guarantee_under_a_filter_is_the_budget_and_says_so() -> None:
    budget = Budget(epsilon=2.0, delta=1e-6)
    found = budget.guarantee([charge(10, run=CHOSEN)], marks=("unsafe_thing",))
    assert (found.lower, found.upper, found.delta) == (0.0, 2.0, 1e-6)  # not what ten steps cost
    assert "filter" in found.accountant
    assert any("admitted" in text for text in found.assumptions)
    assert found.voided_by == ("unsafe_thing",)
    assert found.unit == Unit.USER
    plain = budget.guarantee([charge(10)], marks=())
    assert plain.upper < 2.0
    assert plain.accountant == "tight"


def test_unsampled_gaussians_get_the_gaussian_filter_and_keep_it() -> None:
    budget = Budget(epsilon=1.0, delta=1e-5)
    limit = GaussianFilter(1.0, 1e-5).limit
    noise = math.sqrt(10 / limit) * (1 + 1e-9)
    full = charge(10, run=CHOSEN, sampling=Everything(), noise=noise)
    budget([full])
    assert budget.guarantee([full], marks=()).accountant == "Gaussian filter"
    with pytest.raises(BudgetExceeded, match="Gaussian filter"):
        budget([replace(full, count=11)])
    with pytest.raises(AccountingError, match="filter_order"):
        budget([full, charge(1, run=CHOSEN)])
    mixed = [charge(1, run=CHOSEN, sampling=Everything(), noise=30.0), charge(1, run=CHOSEN, noise=3.0)]
    Budget(epsilon=1.0, delta=1e-5, filter_order=20.0)(mixed)


def test_the_filter_is_decided_by_the_first_charge_alone() -> None:
    budget = Budget(epsilon=2.0, delta=1e-6)
    first = charge(5, run=CHOSEN)
    alone = budget.guarantee([first], marks=()).accountant
    assert (
        budget.guarantee(
            [first, charge(5, run=CHOSEN, noise=5.0), charge(1, sampling=Everything(), noise=40.0)], marks=()
        ).accountant
        == alone
    )


def test_refusals() -> None:
    with pytest.raises(ParameterError):
        Budget(epsilon=0.0, delta=1e-5)
    with pytest.raises(ParameterError):
        Budget(epsilon=1.0, delta=0.0)
    with pytest.raises(ParameterError):
        Budget(epsilon=1.0, delta=1e-5, accountant="clt")  # type: ignore[arg-type]
    with pytest.raises(ParameterError):
        Budget(epsilon=1.0, delta=1e-5, filter_order=1.0)
    with pytest.raises(AccountingError):
        Budget(epsilon=1.0, delta=1e-5).guarantee([], marks=())
    other = replace(CHOSEN, adjacency=Adjacency.ZERO_OUT)
    with pytest.raises(AccountingError, match="adjacency"):
        Budget(epsilon=9.0, delta=1e-5)([charge(1, run=CHOSEN), charge(1, run=other)])
