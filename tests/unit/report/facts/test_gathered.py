"""What a report is about: which delta it states, and what it refuses to be given."""

from dataclasses import replace

import pytest

import discreet as dp
from support.reports import DELTA, INFO, STEP, executed, extend, ledger_of, listed, planned

FILTERED = replace(INFO, parameters=dp.units.Parameters.CHOSEN_FROM_OUTPUTS)
BUDGET = dp.Filter(epsilon=2.0, delta=DELTA)


def test_delta_comes_from_the_argument_then_the_target_then_the_budget() -> None:
    plan = planned(epsilon=2.0)
    ledger = executed(plan)
    assert dp.Report.of(ledger, delta=1e-7, plan=plan).guarantee.delta == 1e-7
    held = executed(plan, budget=dp.Budget(epsilon=3.0, delta=1e-4))
    assert dp.Report.of(held, plan=plan).guarantee.delta == DELTA
    assert dp.Report.of(held).guarantee.delta == 1e-4
    with pytest.raises(dp.errors.ParameterError, match="delta"):
        dp.Report.of(ledger)
    with pytest.raises(dp.errors.ParameterError, match="delta"):
        dp.Report.of(ledger, plan=planned())


def test_delta_comes_last_from_the_target_of_the_plan_in_the_rows() -> None:
    plan = planned(epsilon=2.0)
    ledger = dp.Ledger.in_memory()
    run = ledger.begin(plan.run_info("final"), [(plan.step, plan.steps)], plan=plan.as_row())
    for _ in run.steps(plan.step, plan.steps):
        pass
    assert dp.Report.of(ledger).guarantee.delta == DELTA


@pytest.mark.parametrize("name", ["plan", "audit", "subject"])
def test_arguments_of_another_kind_are_refused(name: str) -> None:
    with pytest.raises(dp.errors.ParameterError, match=name):
        dp.Report.of(ledger_of((STEP, 1)), delta=DELTA, **{name: "x"})  # type: ignore[arg-type]


def test_p39_a_filter_proves_nothing_at_another_delta() -> None:
    with pytest.raises(dp.errors.ParameterError, match="delta"):
        dp.Report.of(ledger_of((STEP, 5), info=FILTERED, budget=BUDGET), delta=1e-9)


def test_a_plan_that_does_not_know_its_leaves_is_refused_with_advice() -> None:
    plan = dp.Plan(
        sampler=dp.Sampler(dp.Poisson(0.05), records=1000, steps=2), mechanism=dp.Split(1.0, 2.0)
    )
    with pytest.raises(dp.errors.ParameterError, match="run.plan"):
        dp.Report.of(ledger_of((STEP, 2)), delta=DELTA, plan=plan)


def test_the_report_is_about_the_ledger_as_it_was() -> None:
    ledger = ledger_of((STEP, 3), budget=listed((STEP, 53)))
    report = dp.Report.of(ledger, delta=DELTA)
    before = report.json()
    extend(ledger, (STEP, 50), info=INFO)
    assert report.json() == before
