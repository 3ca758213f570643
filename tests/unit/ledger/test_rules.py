"""The rules of budgets: installed once for a process, and without them nothing is admitted."""

from pathlib import Path
from typing import Any

import pytest

import discreet as dp
from discreet.ledger import rules
from support.examples import INFO, STEP


def total(ledger: dp.Ledger) -> int:
    return sum(charge.count for charge in ledger.charges())


BUDGET = dp.Filter(epsilon=2.0, delta=1e-6)


def test_without_rules_a_ledger_with_a_budget_admits_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ledger = dp.Ledger.in_memory(budget=BUDGET)
    run = ledger.begin(INFO)
    monkeypatch.setattr(rules, "_rules", [])
    with pytest.raises(dp.errors.LedgerMisuse, match="Import discreet as a whole"):
        run.reserve(STEP, count=1)
    assert total(ledger) == 0


def test_what_is_no_budget_is_refused(tmp_path: Path) -> None:
    for wrong in (5, lambda charges: None, "2.0", dp.Budget):
        with pytest.raises(dp.errors.ParameterError, match="a Budget, a Filter, an Odometer"):
            dp.Ledger.in_memory(budget=wrong)  # type: ignore[arg-type]
        with pytest.raises(dp.errors.ParameterError, match="a Budget, a Filter, an Odometer"):
            dp.Ledger.open(tmp_path / "a.ledger", budget=wrong)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_what_is_installed_last_decides_for_all_ledgers(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing:
        def completed(self, terms: Any, planned: Any, adjacency: Any) -> Any:
            raise dp.errors.BudgetExceeded(expected="nothing", got="a run", do="Stop.")

        def admit(self, snapshot: Any) -> None:
            raise dp.errors.BudgetExceeded(expected="nothing", got="a charge", do="Stop.")

    monkeypatch.setattr(rules, "_rules", list(rules._rules))
    refusing = Refusing()
    rules.install(refusing)
    assert rules.installed() is refusing
    ledger = dp.Ledger.in_memory(budget=BUDGET)
    with pytest.raises(dp.errors.BudgetExceeded):
        ledger.begin(INFO).reserve(STEP, count=1)
    assert total(ledger) == 0


def test_no_budget_is_a_budget_too() -> None:
    rules.check_budget("Ledger.open", None)
    rules.check_budget("Ledger.open", BUDGET)
