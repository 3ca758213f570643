"""Plans in the ledger's own rows, and whether its runs kept to them."""

import pytest

import discreet as dp
from discreet.ledger.rules import HasTerms
from discreet.report.facts.own_plans import agreement, differences, known_delta, own_plans
from support.reports import DELTA, ledger_of, planned

PLAN = planned()


def found(report: dp.Report) -> list[tuple[str, str]]:
    return [(deviation.severity, deviation.text) for deviation in report.deviations]


def only(report: dp.Report, severity: str, *texts: str) -> None:
    """Exactly one deviation, which says all of these."""
    assert len(found(report)) == 1
    how_bad, text = found(report)[0]
    assert how_bad == severity
    for needed in texts:
        assert needed in text


def stopped_early(
    plan: dp.Plan, steps: int, reason: str = "", budget: HasTerms | None = None
) -> dp.Ledger:
    ledger = dp.Ledger.in_memory(budget=budget)
    run = ledger.begin(plan.run_info("final"), [(plan.step, plan.steps)], plan=plan.as_row())
    for _ in run.steps(plan.step, steps):
        pass
    run.end(reason)
    return ledger


def test_a_run_that_kept_to_the_plan_in_its_own_row_needs_no_file() -> None:
    report = dp.Report.of(stopped_early(PLAN, 20), delta=DELTA)
    assert found(report) == []
    assert "1 run of 1 kept to the plan in the ledger&#39;s own rows." in report.html()
    assert "(1,000 records), which it is" in report.html()  # the row's plan says how many


@pytest.mark.parametrize(
    ("plan", "text"),
    [
        (planned(steps=10), "committed to 20 steps; the plan in its own row has 10."),
        (
            planned(noise_multiplier=6.0),
            "committed to 20 steps of another kind than the plan in its own row has.",
        ),
        (None, "holds a text in the place of its plan that cannot be read"),
    ],
    ids=["more steps", "other noise", "no plan"],
)
def test_a_run_that_is_not_of_the_plan_in_its_own_row_is_wrong(
    plan: dp.Plan | None, text: str
) -> None:
    ledger = dp.Ledger.in_memory()
    row = '{"schema": 99}' if plan is None else plan.as_row()
    run = ledger.begin(PLAN.run_info("final"), [(PLAN.step, PLAN.steps)], plan=row)
    for _ in run.steps(PLAN.step, PLAN.steps):
        pass
    only(dp.Report.of(ledger, delta=DELTA), "wrong", f"Run {run.number} (“final”) ", text)


def test_a_text_that_is_no_plan_is_named_and_read_no_further() -> None:
    ledger = dp.Ledger.in_memory()
    run = ledger.begin(PLAN.run_info("final"), [(PLAN.step, PLAN.steps)], plan="no plan at all")
    list(run.steps(PLAN.step, PLAN.steps))
    snapshot = ledger.snapshot()
    (sentence,) = differences(snapshot)
    assert "cannot be read" in sentence
    assert own_plans(snapshot) == ()
    assert known_delta(snapshot) is None


def test_without_runs_or_plans_there_is_nothing_to_agree_with() -> None:
    assert agreement(dp.Ledger.in_memory().snapshot()).startswith("No run has begun")
    assert agreement(ledger_of((PLAN.step, 1)).snapshot()).startswith("The rows hold no plan")
