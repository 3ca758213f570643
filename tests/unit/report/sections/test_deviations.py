"""Plan against ledger against budget against audit: what differs is named, and how bad it is."""

import json
from dataclasses import replace

import pytest

import discreet as dp
from discreet.ledger.rules import HasTerms
from discreet.plan.calibrated import Target
from support.reports import (
    DELTA,
    INFO,
    STEP,
    audit_of,
    executed,
    extend,
    ledger_of,
    listed,
    planned,
    step_of,
)

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
    assert "compared with nothing but itself. Not given: plan, audit." in report.markdown()
    assert "No plan was given to this report. The rows hold no plan" in report.html()


def test_other_sampling_is_wrong() -> None:
    ledger = ledger_of(
        (dp.ledger.Step(dp.Poisson(0.06), PLAN.step.queries), 20), info=PLAN.run_info("final")
    )
    report = dp.Report.of(ledger, delta=DELTA, plan=PLAN)
    start = "20 steps of run “final” are not the plan's: "
    how = "sampling is Poisson with probability 0.06, not Poisson with probability 0.05."
    assert ("wrong", start + how) in found(report)
    assert "sampling" in alarming(report)
    assert status(report) == "deviates"


def test_other_noise_is_wrong_also_beside_planned_steps() -> None:
    other = dp.ledger.Step(dp.Poisson(0.05), [dp.ledger.GaussianSum("grad/*", 1.0, 4.0)])
    report = dp.Report.of(
        ledger_of((PLAN.step, 20), (other, 1), info=PLAN.run_info("final")), delta=DELTA, plan=PLAN
    )
    only(
        report,
        "wrong",
        "1 step of run",
        "group grad/* has sensitivity 1 and noise 4, not sensitivity 1 and noise 5",
    )
    assert {"group grad/*", "noise multiplier, folded"} <= set(alarming(report))


def test_groups_too_many_and_too_few_are_wrong() -> None:
    step = dp.ledger.Step(dp.Poisson(0.05), [dp.ledger.GaussianSum("other", 1.0, 5.0)])
    ledger = ledger_of((step, 20), info=replace(PLAN.run_info("final"), groups=("grad/*", "other")))
    texts = " ".join(text for _, text in found(dp.Report.of(ledger, delta=DELTA, plan=PLAN)))
    assert "group grad/* is missing" in texts
    assert "group other is not in the plan" in texts


def test_more_steps_are_wrong_and_fewer_none_where_all_count() -> None:
    only(
        dp.Report.of(executed(PLAN, 21), delta=DELTA, plan=PLAN),
        "wrong",
        "21 steps were charged; the plan has 20",
    )
    stopped = stopped_early(PLAN, 7)
    report = dp.Report.of(stopped, delta=DELTA, plan=PLAN)
    assert found(report) == []  # the claim is about all 20
    assert report.guarantee == replace(
        dp.account(executed(PLAN), delta=DELTA), basis=report.guarantee.basis
    )
    assert (
        "was charged 7 of 20 planned steps and is over, without a public reason. All that it "
        "planned counts."
    ) in report.html()


def stopped_early(
    plan: dp.Plan, steps: int, reason: str = "", budget: HasTerms | None = None
) -> dp.Ledger:
    ledger = dp.Ledger.in_memory(budget=budget)
    run = ledger.begin(plan.run_info("final"), [(plan.step, plan.steps)], plan=plan.as_row())
    for _ in run.steps(plan.step, steps):
        pass
    run.end(reason)
    return ledger


def test_fewer_steps_are_a_note_where_the_claim_does_not_count_all() -> None:
    for ledger, why in (
        (
            stopped_early(PLAN, 7, "power failure"),
            "for a public reason, as was declared: “power failure”",
        ),
        (
            stopped_early(PLAN, 7, budget=dp.Filter(epsilon=2.0, delta=DELTA)),
            "The claim is about those charged.",
        ),
        (executed(PLAN, 7), "The claim is about those charged."),  # a list of 7
    ):
        only(
            dp.Report.of(ledger, delta=DELTA, plan=PLAN),
            "note",
            "7 steps were charged; the plan has 20.",
            why,
        )


def test_a_list_that_promises_more_than_the_plan_is_wrong_before_it_is_taken() -> None:
    longer = planned(steps=30)
    report = dp.Report.of(stopped_early(longer, 10), delta=DELTA, plan=PLAN)
    only(report, "wrong", "30 steps are on the ledger's list, and all count; the plan has 20.")


def test_a_killed_and_resumed_run_has_more_steps_without_being_wrong() -> None:
    ledger = dp.Ledger.in_memory()
    killed = ledger.begin(PLAN.run_info("final"), [(PLAN.step, PLAN.steps)])
    lease = killed.reserve(PLAN.step, count=8)
    ledger.extend_list([(PLAN.step, 3)], reason="power failure")
    resumed = ledger.begin(PLAN.run_info("final"), [(PLAN.step, 15)], continues=killed.number)
    for _ in resumed.steps(PLAN.step, 15):
        pass
    assert lease.left == 8  # never settled
    report = dp.Report.of(ledger, delta=DELTA, plan=PLAN)
    notes = found(report)
    assert {severity for severity, _ in notes} == {"note"}
    assert "23 steps count for the 20 of the plan." in notes[0][1]
    assert "steps" not in alarming(report)
    for words in (
        "then run 5 took its place",
        "The list grew by 3 steps for a public reason, as was declared: “power failure”",
    ):
        assert words in report.html()


def test_steps_of_other_runs_are_a_note_if_they_bear_another_name() -> None:
    other = dp.ledger.Step(dp.Poisson(0.05), [dp.ledger.GaussianSum("grad/*", 1.0, 9.0)])
    both = listed((PLAN.step, PLAN.steps), (other, 7))
    ledger = executed(PLAN, budget=both)
    extend(ledger, (other, 7), info=PLAN.run_info("tuning"))
    report = dp.Report.of(ledger, delta=DELTA, plan=PLAN)
    only(report, "note", "7 steps of runs that are not of this plan", "“tuning”")
    same = executed(PLAN, budget=both)
    extend(same, (other, 7), info=PLAN.run_info("final"))
    only(
        dp.Report.of(same, delta=DELTA, plan=PLAN),
        "wrong",
        "7 steps of run “final” are not the plan's",
    )


# --- the plans in the ledger's own rows ---


def test_another_unit_adjacency_or_lower_numerics_is_wrong() -> None:
    for change, text in (
        ({"unit": dp.Unit.USER}, "unit is example; the ledger has user"),
        (
            {"adjacency": dp.Adjacency.ZERO_OUT},
            "adjacency is add-or-remove; the ledger has zero-out",
        ),
        ({"numerics": dp.Numerics.IDEALISED}, "numerics idealised; the plan asks for certified"),
    ):
        ledger = ledger_of((PLAN.step, 20), info=replace(PLAN.run_info("final"), **change))
        report = dp.Report.of(ledger, delta=DELTA, plan=PLAN)
        only(report, "wrong", text)
        assert alarming(report) == [next(iter(change))]


def test_better_numerics_are_fine() -> None:
    ledger = ledger_of(
        (PLAN.step, 20), info=replace(PLAN.run_info("final"), numerics=dp.Numerics.EXACT)
    )
    assert found(dp.Report.of(ledger, delta=DELTA, plan=PLAN)) == []


def test_marks_are_wrong() -> None:
    ledger = executed(PLAN)
    ledger.mark(ledger.runs()[0].number, "unsafe_example")
    only(dp.Report.of(ledger, delta=DELTA, plan=PLAN), "wrong", "marked unsafe_example")


# --- targets and budgets ---


def test_spending_the_whole_target_is_fine_and_more_is_wrong() -> None:
    plan = planned(epsilon=2.0)
    assert found(dp.Report.of(executed(plan), plan=plan)) == []
    more = dp.Report.of(executed(plan, 30), plan=plan)
    assert any(
        how == "wrong" and "above the target of epsilon 2" in text for how, text in found(more)
    )
    assert "epsilon at delta 1e-05" in alarming(more)


def test_a_target_at_another_delta_is_compared_at_that_delta() -> None:
    plan = replace(PLAN, target=Target(epsilon=0.2, delta=1e-9))
    spent = dp.account(executed(plan), delta=1e-9).upper
    report = dp.Report.of(executed(plan), delta=DELTA, plan=plan)
    assert dp.account(executed(plan), delta=DELTA).upper < 0.2 < spent
    only(report, "wrong", "above the target of epsilon 0.2 at delta 1e-09")


def test_what_a_budget_admitted_is_not_said_to_exceed_it() -> None:
    """The budget lies inside the bracket of the usual tolerance: admission narrows it, and so does
    the report.
    """
    rough = dp.account([(STEP, 400)], delta=DELTA, adjacency=INFO.adjacency)
    budget = dp.Budget(epsilon=(rough.upper + (rough.estimate or 0.0)) / 2.0, delta=DELTA)
    assert budget.epsilon is not None
    assert budget.epsilon < rough.upper
    ledger = ledger_of((STEP, 400), budget=budget)
    report = dp.Report.of(ledger)
    assert found(report) == []
    assert f"budget {budget.epsilon!r}" in report.markdown()


# --- audit ---


def test_an_audit_below_the_claim_is_no_deviation() -> None:
    ledger = ledger_of((STEP, 20))
    report = dp.Report.of(ledger, delta=DELTA, audit=audit_of(ledger))
    assert found(report) == []
    assert "at least 0.1 (confidence 0.95)" in report.html()
    assert "The audit passes: nothing that was measured contradicts the claim." in report.html()


def test_p43_an_audit_above_the_claim_contradicts_it() -> None:
    ledger = ledger_of((STEP, 20))
    report = dp.Report.of(
        ledger, delta=DELTA, audit=audit_of(ledger, lower=report_upper(ledger) * 1.001)
    )
    only(report, "wrong", "The audit refutes the claim")
    assert status(report) == "contradicted"
    assert not json.loads(report.json())["claim"]["holds"]
    assert json.loads(report.json())["claim"]["epsilon_upper"] is None
    assert "The claim of the ledger, which is contradicted" in report.html()
    assert "epsilon at delta 1e-05, measured" in alarming(report)


def test_a_bound_under_an_assumption_refutes_and_says_which() -> None:
    ledger = ledger_of((STEP, 20))
    for factor, contradicts in ((0.999, False), (1.001, True)):
        audit = replace(
            audit_of(ledger), assumed_lower=report_upper(ledger) * factor, assumes="noise is scaled"
        )
        report = dp.Report.of(ledger, delta=DELTA, audit=audit)
        assert "measured, under an assumption" in report.markdown()
        assert (status(report) == "contradicted") is contradicts
        assert ("(confidence 0.95, if noise is scaled)" in report.markdown()) is contradicts


def report_upper(ledger: dp.Ledger) -> float:
    return dp.Report.of(ledger, delta=DELTA).guarantee.upper


def test_p43_an_audit_is_compared_at_its_own_delta() -> None:
    ledger = ledger_of((STEP, 20))
    upper = report_upper(ledger)
    smaller = replace(
        audit_of(ledger, lower=upper * 1.05), delta=1e-9
    )  # allowed there: epsilon is larger at a smaller delta
    assert found(dp.Report.of(ledger, delta=DELTA, audit=smaller)) == []
    larger = replace(audit_of(ledger, lower=upper * 0.95), delta=1e-2)  # refuted there
    only(dp.Report.of(ledger, delta=DELTA, audit=larger), "wrong", "The audit refutes the claim")


def test_an_audit_of_another_ledger_is_wrong_and_not_compared() -> None:
    ledger = ledger_of((STEP, 20))
    report = dp.Report.of(ledger, delta=DELTA, audit=audit_of(ledger_of((STEP, 5)), lower=50.0))
    only(report, "wrong", "another ledger")
    assert status(report) == "deviates"


def test_an_audit_of_an_earlier_state_still_refutes() -> None:
    ledger = ledger_of((STEP, 20), budget=listed((STEP, 25)))
    small, large = audit_of(ledger), audit_of(ledger, lower=50.0)
    extend(ledger, (STEP, 5), info=INFO)
    only(dp.Report.of(ledger, delta=DELTA, audit=small), "note", "an earlier state")
    assert status(dp.Report.of(ledger, delta=DELTA, audit=large)) == "contradicted"


@pytest.mark.parametrize(
    "change",
    [{"unit": dp.Unit.USER}, {"adjacency": dp.Adjacency.REPLACE_ONE}, {"delta": 0.0}],
    ids=str,
)
def test_an_audit_of_something_else_refutes_nothing(change: dict[str, object]) -> None:
    ledger = ledger_of((STEP, 20))
    audit = replace(audit_of(ledger, lower=50.0), **change)  # type: ignore[arg-type]
    only(
        dp.Report.of(ledger, delta=DELTA, audit=audit),
        "note",
        "something else than what is claimed",
    )


@pytest.mark.parametrize(
    "rule",
    [dp.Filter(epsilon=2.0, delta=DELTA), dp.Odometer(delta=DELTA)],
    ids=["filter", "odometer"],
)
def test_without_a_list_an_audit_is_compared_where_the_claim_implies_something(
    rule: HasTerms,
) -> None:
    ledger = ledger_of(
        (STEP, 5),
        info=replace(INFO, parameters=dp.units.Parameters.CHOSEN_FROM_OUTPUTS),
        budget=rule,
    )
    high = audit_of(ledger, lower=2.5)
    assert status(dp.Report.of(ledger, audit=replace(high, delta=1e-3))) == "contradicted"
    only(dp.Report.of(ledger, audit=replace(high, delta=1e-9)), "note", "something else")


# --- programmes of several plans ---


LOOK = dp.Plan(
    sampler=dp.Sampler(dp.Everything(), records=1_000, steps=1), mechanism=dp.Gaussian(1.0, 20.0)
)
BOTH = dp.Programme({"look": LOOK, "train": PLAN})


def both(*more: tuple[dp.ledger.Step, int], look: int = 1) -> dp.Ledger:
    """A ledger whose first run looked; the list has room for training,
    and for what else is named.
    """
    budget = listed((LOOK.step, look), (PLAN.step, PLAN.steps), *more)
    return ledger_of((LOOK.step, look), info=LOOK.run_info("look"), budget=budget)


def test_a_programme_that_was_executed_has_no_deviation() -> None:
    ledger = dp.Ledger.in_memory(budget=dp.Budget(plans=BOTH))
    extend(ledger, (LOOK.step, 1), info=LOOK.run_info("look"))
    extend(ledger, (PLAN.step, PLAN.steps), info=PLAN.run_info("train"))
    report = dp.Report.of(ledger, delta=DELTA, plan=BOTH)
    assert found(report) == []
    assert alarming(report) == []
    assert "look: steps" in report.markdown()


def test_a_plan_of_a_programme_with_more_steps_or_other_noise_is_wrong_and_named() -> None:
    ledger = both(look=2)
    extend(ledger, (PLAN.step, PLAN.steps), info=PLAN.run_info("train"))
    report = dp.Report.of(ledger, delta=DELTA, plan=BOTH)
    only(report, "wrong", "2 steps were charged; plan “look” has 1.")
    assert alarming(report) == ["look: steps"]

    noisier = step_of(dp.Poisson(0.05), noise_std=0.5)
    ledger = both((noisier, 3))
    extend(ledger, (PLAN.step, PLAN.steps), (noisier, 3), info=PLAN.run_info("train"))
    report = dp.Report.of(ledger, delta=DELTA, plan=BOTH)
    only(
        report,
        "wrong",
        "3 steps of run “train” are not the plan's",
        "group grad is not in the plan",
    )


def test_a_plan_of_a_programme_that_did_not_run_and_runs_beside_it_are_noted() -> None:
    beside = step_of(dp.Poisson(0.05), noise_std=9.0)
    ledger = ledger_of(
        (PLAN.step, PLAN.steps),
        info=PLAN.run_info("train"),
        budget=listed((PLAN.step, PLAN.steps), (beside, 4)),
    )
    extend(ledger, (beside, 4), info=PLAN.run_info("other"))
    texts = found(dp.Report.of(ledger, delta=DELTA, plan=BOTH))
    assert [severity for severity, _ in texts] == ["note", "note"]
    assert "0 steps were charged; plan “look” has 1." in texts[0][1]
    assert "4 steps of runs that are not of these plans are in the ledger (“other”)" in texts[1][1]


def test_a_plan_of_a_programme_that_is_on_the_list_and_did_not_run_counts_all_the_same() -> None:
    ledger = dp.Ledger.in_memory(budget=dp.Budget(plans=BOTH))
    extend(ledger, (PLAN.step, PLAN.steps), info=PLAN.run_info("train"))
    report = dp.Report.of(ledger, delta=DELTA, plan=BOTH)
    assert found(report) == []
    assert report.guarantee.upper == dp.account(BOTH, delta=DELTA).upper


def test_p41_a_plan_of_a_programme_that_ran_with_other_noise_under_another_name_is_wrong() -> None:
    """The other plan ran as planned. That must not turn what was done in place of this one into a
    run beside it.
    """
    less = planned(noise_multiplier=0.5)
    budget = listed((LOOK.step, 1), (less.step, less.steps))
    ledger = ledger_of((LOOK.step, 1), info=LOOK.run_info("look"), budget=budget)
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
    twice = (PLAN.step, 2 * PLAN.steps)
    assert (
        found(dp.Report.of(ledger_of(twice, info=PLAN.run_info("a")), delta=DELTA, plan=schedule))
        == []
    )
    ledger = ledger_of(
        twice, info=PLAN.run_info("a"), budget=listed((PLAN.step, 2 * PLAN.steps + 1))
    )
    extend(ledger, (PLAN.step, 1), info=PLAN.run_info("b"))
    only(dp.Report.of(ledger, delta=DELTA, plan=schedule), "wrong", "plan “a” and plan “b” has")


def test_the_target_of_a_programme_is_a_ceiling() -> None:
    calibrated = BOTH.calibrated(epsilon=1.0, delta=DELTA)
    look, train = calibrated["look"], calibrated["train"]
    ledger = dp.Ledger.in_memory(budget=dp.Budget(plans=calibrated))
    extend(ledger, (look.step, 1), info=LOOK.run_info("look"))
    extend(ledger, (train.step, PLAN.steps), info=PLAN.run_info("train"))
    assert found(dp.Report.of(ledger, plan=calibrated)) == []
    ledger.extend_list([(train.step, PLAN.steps)], reason="somebody wanted more")
    extend(ledger, (train.step, PLAN.steps), info=PLAN.run_info("train"))
    texts = found(dp.Report.of(ledger, plan=calibrated))
    assert any(
        severity == "wrong" and "above the target of epsilon 1" in text for severity, text in texts
    )
