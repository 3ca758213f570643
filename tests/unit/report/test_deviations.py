"""Plan against ledger against budget against audit: what differs is named, and how bad it is."""

import json
from dataclasses import replace

import pytest

import discreet as dp
from discreet.plan.calibrated import Target
from support.reports import DELTA, INFO, STEP, audit_of, executed, extend, ledger_of, planned, step_of

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


def alarming(report: dp.Report) -> list[str]:
    rows = json.loads(report.json())["comparison"]["rows"]
    return [row["cells"][0] for row in rows if row["alarming"]]


def status(report: dp.Report) -> str:
    return str(json.loads(report.json())["status"]["key"])


# --- plan ---


def test_what_was_planned_and_done_has_no_deviation() -> None:
    report = dp.Report.of(executed(PLAN), delta=DELTA, plan=PLAN)
    assert found(report) == []
    assert alarming(report) == []
    assert "compared with the plan" in report.markdown()


def test_without_a_plan_it_says_that_nothing_was_compared() -> None:
    report = dp.Report.of(ledger_of((STEP, 20)), delta=DELTA)
    assert "compared with nothing but itself. Not given: plan, budget, audit." in report.markdown()
    assert "No plan was given" in report.html()


def test_other_sampling_is_wrong() -> None:
    ledger = ledger_of((dp.Step(dp.Poisson(0.06), PLAN.step.queries), 20), info=PLAN.run_info("final"))
    report = dp.Report.of(ledger, delta=DELTA, plan=PLAN)
    start = "20 steps of run “final” are not the plan's: "
    how = "sampling is Poisson with probability 0.06, not Poisson with probability 0.05."
    assert ("wrong", start + how) in found(report)
    assert "sampling" in alarming(report)
    assert status(report) == "deviates"


def test_other_noise_is_wrong_also_beside_planned_steps() -> None:
    other = dp.Step(dp.Poisson(0.05), [dp.GaussianSum("grad/*", 1.0, 4.0)])
    report = dp.Report.of(ledger_of((PLAN.step, 20), (other, 1), info=PLAN.run_info("final")), delta=DELTA, plan=PLAN)
    only(report, "wrong", "1 step of run", "group grad/* has sensitivity 1 and noise 4, not sensitivity 1 and noise 5")
    assert {"group grad/*", "noise multiplier, folded"} <= set(alarming(report))


def test_groups_too_many_and_too_few_are_wrong() -> None:
    step = dp.Step(dp.Poisson(0.05), [dp.GaussianSum("other", 1.0, 5.0)])
    ledger = ledger_of((step, 20), info=replace(PLAN.run_info("final"), groups=("grad/*", "other")))
    texts = " ".join(text for _, text in found(dp.Report.of(ledger, delta=DELTA, plan=PLAN)))
    assert "group grad/* is missing" in texts
    assert "group other is not in the plan" in texts


def test_more_steps_are_wrong_and_fewer_a_note() -> None:
    only(dp.Report.of(executed(PLAN, 21), delta=DELTA, plan=PLAN), "wrong", "21 steps were charged; the plan has 20")
    only(dp.Report.of(executed(PLAN, 19), delta=DELTA, plan=PLAN), "note", "19 steps were charged; the plan has 20")


def test_a_killed_and_resumed_run_has_more_steps_without_being_wrong() -> None:
    ledger = dp.Ledger.in_memory()
    ledger.begin(PLAN.run_info("final"))
    ledger.reserve(PLAN.step, count=8)  # killed
    extend(ledger, (PLAN.step, 15), info=PLAN.run_info("final"))
    severities = {severity for severity, _ in found(dp.Report.of(ledger, delta=DELTA, plan=PLAN))}
    assert severities == {"note"}
    assert "steps" not in alarming(dp.Report.of(ledger, delta=DELTA, plan=PLAN))


def test_steps_of_other_runs_are_a_note_if_they_bear_another_name() -> None:
    ledger = executed(PLAN)
    extend(ledger, (dp.Step(dp.Poisson(0.05), [dp.GaussianSum("grad/*", 1.0, 9.0)]), 7), info=PLAN.run_info("tuning"))
    report = dp.Report.of(ledger, delta=DELTA, plan=PLAN)
    only(report, "note", "7 steps of runs that are not of this plan", "“tuning”")
    same = executed(PLAN)
    extend(same, (dp.Step(dp.Poisson(0.05), [dp.GaussianSum("grad/*", 1.0, 9.0)]), 7), info=PLAN.run_info("final"))
    only(dp.Report.of(same, delta=DELTA, plan=PLAN), "wrong", "7 steps of run “final” are not the plan's")


def test_another_unit_adjacency_or_lower_numerics_is_wrong() -> None:
    for change, text in (
        ({"unit": dp.Unit.USER}, "unit is example; the ledger has user"),
        ({"adjacency": dp.Adjacency.ZERO_OUT}, "adjacency is add-or-remove; the ledger has zero-out"),
        ({"numerics": dp.Numerics.IDEALISED}, "numerics idealised; the plan asks for certified"),
    ):
        ledger = ledger_of((PLAN.step, 20), info=replace(PLAN.run_info("final"), **change))
        report = dp.Report.of(ledger, delta=DELTA, plan=PLAN)
        only(report, "wrong", text)
        assert alarming(report) == [next(iter(change))]


def test_better_numerics_are_fine() -> None:
    ledger = ledger_of((PLAN.step, 20), info=replace(PLAN.run_info("final"), numerics=dp.Numerics.EXACT))
    assert found(dp.Report.of(ledger, delta=DELTA, plan=PLAN)) == []


def test_marks_are_wrong() -> None:
    ledger = executed(PLAN)
    ledger.mark("unsafe_example")
    only(dp.Report.of(ledger, delta=DELTA, plan=PLAN), "wrong", "marked unsafe_example")


# --- targets and budgets ---


def test_spending_the_whole_target_is_fine_and_more_is_wrong() -> None:
    plan = planned(epsilon=2.0)
    assert found(dp.Report.of(executed(plan), plan=plan)) == []
    more = dp.Report.of(executed(plan, 30), plan=plan)
    assert any(how == "wrong" and "above the target of epsilon 2" in text for how, text in found(more))
    assert "epsilon at delta 1e-05" in alarming(more)


def test_a_target_at_another_delta_is_compared_at_that_delta() -> None:
    plan = replace(PLAN, target=Target(epsilon=0.2, delta=1e-9))
    spent = dp.account(executed(plan), delta=1e-9).upper
    report = dp.Report.of(executed(plan), delta=DELTA, plan=plan)
    assert dp.account(executed(plan), delta=DELTA).upper < 0.2 < spent
    only(report, "wrong", "above the target of epsilon 0.2 at delta 1e-09")


def test_what_a_guard_admitted_is_not_said_to_exceed_it() -> None:
    """The budget lies inside the bracket of the usual tolerance: a guard narrows it, and so does the report."""
    rough = dp.account([(STEP, 400)], delta=DELTA, adjacency=INFO.adjacency)
    budget = dp.Budget(epsilon=(rough.upper + (rough.estimate or 0.0)) / 2.0, delta=DELTA)
    assert budget.epsilon < rough.upper
    ledger = dp.Ledger.in_memory(guard=budget)
    extend(ledger, (STEP, 400), info=INFO)
    assert found(dp.Report.of(ledger, budget=budget)) == []


# --- audit ---


def test_an_audit_below_the_claim_is_no_deviation() -> None:
    ledger = ledger_of((STEP, 20))
    report = dp.Report.of(ledger, delta=DELTA, audit=audit_of(ledger))
    assert found(report) == []
    assert "at least 0.1 (confidence 0.95)" in report.html()
    assert "The audit passes: nothing that was measured contradicts the claim." in report.html()


def test_the_share_of_the_claim_is_rounded_down_and_said_for_each_bound() -> None:
    ledger = ledger_of((STEP, 20))
    upper = report_upper(ledger)
    audit = replace(audit_of(ledger, lower=upper * 0.0999), assumed_lower=upper * 0.6999, assumes="noise is scaled")
    assert "| 9 %; 69 % under the assumption |" in dp.Report.of(ledger, delta=DELTA, audit=audit).markdown()
    for other in (replace(audit, unit=dp.Unit.USER), audit_of(ledger_of((STEP, 5)))):  # not of this claim: no share of it
        text = dp.Report.of(ledger, delta=DELTA, audit=other).markdown()
        assert "share of the claim reached" not in text
        assert "The audit passes" not in text
    assert "The audit passes" not in dp.Report.of(ledger, delta=DELTA, audit=audit_of(ledger, lower=50.0)).markdown()


def test_p43_an_audit_above_the_claim_contradicts_it() -> None:
    ledger = ledger_of((STEP, 20))
    report = dp.Report.of(ledger, delta=DELTA, audit=audit_of(ledger, lower=report_upper(ledger) * 1.001))
    only(report, "wrong", "The audit refutes the claim")
    assert status(report) == "contradicted"
    assert not json.loads(report.json())["claim"]["holds"]
    assert json.loads(report.json())["claim"]["epsilon_upper"] == "infinity"
    assert "The claim of the ledger, which is contradicted" in report.html()
    assert "epsilon at delta 1e-05, measured" in alarming(report)


def test_a_bound_under_an_assumption_refutes_and_says_which() -> None:
    ledger = ledger_of((STEP, 20))
    for factor, contradicts in ((0.999, False), (1.001, True)):
        audit = replace(audit_of(ledger), assumed_lower=report_upper(ledger) * factor, assumes="noise is scaled")
        report = dp.Report.of(ledger, delta=DELTA, audit=audit)
        assert "measured, under an assumption" in report.markdown()
        assert (status(report) == "contradicted") is contradicts
        assert ("(confidence 0.95, if noise is scaled)" in report.markdown()) is contradicts


def report_upper(ledger: dp.Ledger) -> float:
    return dp.Report.of(ledger, delta=DELTA).guarantee.upper


def test_p43_an_audit_is_compared_at_its_own_delta() -> None:
    ledger = ledger_of((STEP, 20))
    upper = report_upper(ledger)
    smaller = replace(audit_of(ledger, lower=upper * 1.05), delta=1e-9)  # allowed there: epsilon is larger at a smaller delta
    assert found(dp.Report.of(ledger, delta=DELTA, audit=smaller)) == []
    larger = replace(audit_of(ledger, lower=upper * 0.95), delta=1e-2)  # refuted there
    only(dp.Report.of(ledger, delta=DELTA, audit=larger), "wrong", "The audit refutes the claim")


def test_an_audit_of_another_ledger_is_wrong_and_not_compared() -> None:
    ledger = ledger_of((STEP, 20))
    report = dp.Report.of(ledger, delta=DELTA, audit=audit_of(ledger_of((STEP, 5)), lower=50.0))
    only(report, "wrong", "another ledger")
    assert status(report) == "deviates"


def test_an_audit_of_an_earlier_state_still_refutes() -> None:
    ledger = ledger_of((STEP, 20))
    small, large = audit_of(ledger), audit_of(ledger, lower=50.0)
    extend(ledger, (STEP, 5), info=INFO)
    only(dp.Report.of(ledger, delta=DELTA, audit=small), "note", "an earlier state")
    assert status(dp.Report.of(ledger, delta=DELTA, audit=large)) == "contradicted"


@pytest.mark.parametrize("change", [{"unit": dp.Unit.USER}, {"adjacency": dp.Adjacency.REPLACE_ONE}, {"delta": 0.0}], ids=str)
def test_an_audit_of_something_else_refutes_nothing(change: dict[str, object]) -> None:
    ledger = ledger_of((STEP, 20))
    audit = replace(audit_of(ledger, lower=50.0), **change)  # type: ignore[arg-type]
    only(dp.Report.of(ledger, delta=DELTA, audit=audit), "note", "something else than what is claimed")


def test_under_a_filter_an_audit_is_compared_where_the_budget_implies_something() -> None:
    budget = dp.Budget(epsilon=2.0, delta=DELTA)
    ledger = ledger_of((STEP, 5), info=replace(INFO, parameters=dp.Parameters.CHOSEN_FROM_OUTPUTS))
    high = audit_of(ledger, lower=2.5)
    assert status(dp.Report.of(ledger, budget=budget, audit=replace(high, delta=1e-3))) == "contradicted"
    only(dp.Report.of(ledger, budget=budget, audit=replace(high, delta=1e-9)), "note", "something else")


def test_a_full_batch_step_is_compared_too() -> None:
    plan = dp.Plan(sampler=dp.Sampler(dp.Everything(), records=100_000, steps=3), mechanism=dp.Gaussian(1.0, 9.0))
    ledger = ledger_of((plan.step, 3), info=plan.run_info("final"))
    assert found(dp.Report.of(ledger, delta=1e-6, plan=plan)) == []
    assert alarming(dp.Report.of(ledger_of((step_of(dp.Everything()), 3)), delta=1e-6, plan=plan))


# --- programmes of several plans ---


LOOK = dp.Plan(sampler=dp.Sampler(dp.Everything(), records=1_000, steps=1), mechanism=dp.Gaussian(1.0, 20.0))
BOTH = dp.Programme({"look": LOOK, "train": PLAN})


def test_a_programme_that_was_executed_has_no_deviation() -> None:
    ledger = ledger_of((LOOK.step, 1), info=LOOK.run_info("look"))
    extend(ledger, (PLAN.step, PLAN.steps), info=PLAN.run_info("train"))
    report = dp.Report.of(ledger, delta=DELTA, plan=BOTH)
    assert found(report) == []
    assert alarming(report) == []
    assert "look: steps" in report.markdown()


def test_a_plan_of_a_programme_with_more_steps_or_other_noise_is_wrong_and_named() -> None:
    ledger = ledger_of((LOOK.step, 2), info=LOOK.run_info("look"))
    extend(ledger, (PLAN.step, PLAN.steps), info=PLAN.run_info("train"))
    report = dp.Report.of(ledger, delta=DELTA, plan=BOTH)
    only(report, "wrong", "2 steps were charged; plan “look” has 1.")
    assert alarming(report) == ["look: steps"]

    ledger = ledger_of((LOOK.step, 1), info=LOOK.run_info("look"))
    extend(ledger, (PLAN.step, PLAN.steps), (step_of(dp.Poisson(0.05), noise_std=0.5), 3), info=PLAN.run_info("train"))
    report = dp.Report.of(ledger, delta=DELTA, plan=BOTH)
    only(report, "wrong", "3 steps of run “train” are not the plan's", "group grad is not in the plan")


def test_a_plan_of_a_programme_that_did_not_run_and_runs_beside_it_are_noted() -> None:
    ledger = ledger_of((PLAN.step, PLAN.steps), info=PLAN.run_info("train"))
    extend(ledger, (step_of(dp.Poisson(0.05), noise_std=9.0), 4), info=PLAN.run_info("other"))
    texts = found(dp.Report.of(ledger, delta=DELTA, plan=BOTH))
    assert [severity for severity, _ in texts] == ["note", "note"]
    assert "0 steps were charged; plan “look” has 1." in texts[0][1]
    assert "4 steps of runs that are not of these plans are in the ledger (“other”)" in texts[1][1]


def test_p41_a_plan_of_a_programme_that_ran_with_other_noise_under_another_name_is_wrong() -> None:
    """The other plan ran as planned. That must not turn what was done in place of this one into a run beside it."""
    ledger = ledger_of((LOOK.step, 1), info=LOOK.run_info("look"))
    less = planned(noise_multiplier=0.5)
    extend(ledger, (less.step, less.steps), info=less.run_info("training, second attempt"))
    report = dp.Report.of(ledger, delta=DELTA, plan=BOTH)
    wrong = [text for severity, text in found(report) if severity == "wrong"]
    assert len(wrong) == 1
    assert "20 steps of run “training, second attempt” are not the plan's" in wrong[0]
    assert "noise 0.5, not sensitivity 1 and noise 5" in wrong[0]
    assert "train: noise multiplier, folded" in alarming(report)
    assert status(report) == "deviates"


def test_a_plan_of_a_programme_that_did_not_run_raises_no_alarm_over_what_others_did() -> None:
    """Statistics with exact numerics are asked for; training, which ran, was asked for less."""
    programme = dp.Programme({"look": replace(LOOK, numerics=dp.Numerics.EXACT), "train": PLAN})
    ledger = ledger_of((PLAN.step, PLAN.steps), info=PLAN.run_info("train"))
    report = dp.Report.of(ledger, delta=DELTA, plan=programme)
    only(report, "note", "0 steps were charged; plan “look” has 1.")
    assert alarming(report) == []


def test_phases_with_equal_steps_are_counted_together() -> None:
    schedule = dp.Programme({"a": PLAN, "b": PLAN})
    ledger = ledger_of((PLAN.step, 2 * PLAN.steps), info=PLAN.run_info("a"))
    assert found(dp.Report.of(ledger, delta=DELTA, plan=schedule)) == []
    extend(ledger, (PLAN.step, 1), info=PLAN.run_info("b"))
    only(dp.Report.of(ledger, delta=DELTA, plan=schedule), "wrong", "plan “a” and plan “b” has")


def test_the_target_of_a_programme_is_a_ceiling() -> None:
    calibrated = BOTH.calibrated(epsilon=1.0, delta=DELTA)
    ledger = ledger_of((calibrated["look"].step, 1), info=LOOK.run_info("look"))
    extend(ledger, (calibrated["train"].step, PLAN.steps), info=PLAN.run_info("train"))
    assert found(dp.Report.of(ledger, plan=calibrated)) == []
    extend(ledger, (calibrated["train"].step, PLAN.steps), info=PLAN.run_info("train"))
    texts = found(dp.Report.of(ledger, plan=calibrated))
    assert any(severity == "wrong" and "above the target of epsilon 1" in text for severity, text in texts)
