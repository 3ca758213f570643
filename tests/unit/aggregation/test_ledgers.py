"""Whose ledger it is, and whether its terms cover a plan."""

from pathlib import Path

import pytest

import discreet as dp
from discreet.aggregation.ledgers import check_terms, opened_ledger
from discreet.units import Parameters

FIXED, CHOSEN = Parameters.FIXED_IN_ADVANCE, Parameters.CHOSEN_FROM_OUTPUTS


def plan(mechanism: object = dp.Gaussian(1.0, 2.0)) -> dp.Plan:
    sampler = dp.Sampler(dp.Everything(), records=9, steps=1)
    return dp.Plan(sampler=sampler, mechanism=mechanism, leaves={"x": 2})  # type: ignore[arg-type]


def test_a_path_is_opened_for_the_run_to_close(tmp_path: Path) -> None:
    own, ledger = opened_ledger(tmp_path / "a.ledger", None)
    assert own
    ledger.close()


def test_a_ledger_of_the_user_is_left_open_to_the_user() -> None:
    """A run that closed it would break the next one on the same ledger."""
    ledger = dp.Ledger.in_memory()
    assert opened_ledger(ledger, None) == (False, ledger)


def test_a_budget_for_a_ledger_that_is_open_is_refused() -> None:
    """Ignored, it would let a run go on beyond it."""
    with pytest.raises(dp.errors.ParameterError, match="budget"):
        opened_ledger(dp.Ledger.in_memory(), dp.Budget(epsilon=1.0, delta=1e-6))


def test_a_budget_covers_no_group_without_noise() -> None:
    limited = dp.Ledger.in_memory(budget=dp.Budget(epsilon=1.0, delta=1e-6))
    with pytest.raises(dp.errors.BudgetExceeded, match="without noise: all"):
        check_terms(plan(dp.NotPrivate()), limited, FIXED)
    check_terms(plan(dp.NotPrivate()), dp.Ledger.in_memory(), FIXED)
    check_terms(plan(), limited, FIXED)


def test_t01_a_list_covers_no_plan_that_is_chosen_from_outputs() -> None:
    listed = dp.Ledger.in_memory(budget=dp.Budget(epsilon=1.0, delta=1e-6))
    for ledger, got in ((dp.Ledger.in_memory(), "its first run plans"), (listed, "held to a list")):
        with pytest.raises(dp.errors.LedgerMisuse, match=got):
            check_terms(plan(), ledger, CHOSEN)
    check_terms(plan(), dp.Ledger.in_memory(budget=dp.Filter(epsilon=1.0, delta=1e-6)), CHOSEN)
    check_terms(plan(), dp.Ledger.in_memory(budget=dp.Odometer(delta=1e-6)), CHOSEN)
