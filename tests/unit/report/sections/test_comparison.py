"""Plan, ledger and audit side by side: alarming where they differ."""

import json
from dataclasses import replace

import discreet as dp
from support.reports import DELTA, STEP, audit_of, ledger_of, step_of


def found(report: dp.Report) -> list[tuple[str, str]]:
    return [(deviation.severity, deviation.text) for deviation in report.deviations]


def alarming(report: dp.Report) -> list[str]:
    rows = json.loads(report.json())["comparison"]["rows"]
    return [row["cells"][0] for row in rows if row["alarming"]]


def test_the_share_of_the_claim_is_rounded_down_and_said_for_each_bound() -> None:
    ledger = ledger_of((STEP, 20))
    upper = report_upper(ledger)
    audit = replace(
        audit_of(ledger, lower=upper * 0.0999),
        assumed_lower=upper * 0.6999,
        assumes="noise is scaled",
    )
    assert (
        "| 9 %; 69 % under the assumption |"
        in dp.Report.of(ledger, delta=DELTA, audit=audit).markdown()
    )
    for other in (
        replace(audit, unit=dp.Unit.USER),
        audit_of(ledger_of((STEP, 5))),
    ):  # not of this claim: no share of it
        text = dp.Report.of(ledger, delta=DELTA, audit=other).markdown()
        assert "share of the claim reached" not in text
        assert "The audit passes" not in text
    assert (
        "The audit passes"
        not in dp.Report.of(ledger, delta=DELTA, audit=audit_of(ledger, lower=50.0)).markdown()
    )


def report_upper(ledger: dp.Ledger) -> float:
    return dp.Report.of(ledger, delta=DELTA).guarantee.upper


def test_a_full_batch_step_is_compared_too() -> None:
    plan = dp.Plan(
        sampler=dp.Sampler(dp.Everything(), records=100_000, steps=3),
        mechanism=dp.Gaussian(1.0, 9.0),
    )
    ledger = ledger_of((plan.step, 3), info=plan.run_info("final"))
    assert found(dp.Report.of(ledger, delta=1e-6, plan=plan)) == []
    assert alarming(dp.Report.of(ledger_of((step_of(dp.Everything()), 3)), delta=1e-6, plan=plan))


def test_more_values_than_fit_a_cell_are_counted() -> None:
    steps = [(step_of(dp.Everything(), 30.0 + number), 1) for number in range(5)]
    report = dp.Report.of(ledger_of(*steps), delta=DELTA)
    rows = {
        row["cells"][0]: row["cells"] for row in json.loads(report.json())["comparison"]["rows"]
    }
    assert rows["noise multiplier, folded"][2].endswith("; and 2 more")


def test_without_plan_and_audit_the_notes_say_that_nothing_was_compared() -> None:
    notes = json.loads(dp.Report.of(ledger_of((STEP, 2)), delta=DELTA).json())["comparison_notes"]
    assert notes[0].startswith("No plan was given")
    assert "nothing was measured" in notes[1]
