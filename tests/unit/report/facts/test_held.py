"""What a ledger is held to, row by row, and how its runs ended."""

import json

import pytest

import discreet as dp
from support.reports import DELTA, INFO, STEP, items, ledger_of


@pytest.mark.parametrize("reason", ["", "power failure"])
def test_nothing_taken_costs_the_plan_unless_a_public_reason_was_declared(reason: str) -> None:
    ledger = dp.Ledger.in_memory()
    run = ledger.begin(INFO, [(STEP, 5)])
    run.reserve(STEP, count=5).settle()
    run.end(reason)
    report = dp.Report.of(ledger, delta=DELTA)
    assert report.guarantee.upper == (
        0.0 if reason else dp.account([(STEP, 5)], delta=DELTA, adjacency=INFO.adjacency).upper
    )
    assert (f"Declared: “{reason}”." in report.html()) is bool(reason)


def test_every_budget_that_a_ledger_had_is_shown_with_its_reason() -> None:
    ledger = ledger_of((STEP, 20))
    ledger.change_budget(3.0, delta=DELTA, reason="the board")
    ledger.change_budget(2.0, reason="the board again")
    document = json.loads(dp.Report.of(ledger).json())["held_to"]
    cells = [row["cells"][1:] for row in document["table"]["rows"]]
    rule = "list fixed in advance"
    assert cells == [
        [rule, "no limit", "—", "20", "—"],
        [rule, "3", "1e-05", "20", "the board"],
        [rule, "2", "1e-05", "20", "the board again"],
    ]
    assert document["paragraphs"][0] == (
        "A list of 20 steps that was fixed before the first release, and never more than (2, "
        "1e-05)."
    )


def test_a_list_is_checked_from_the_rows_and_reasons_are_on_somebodys_word() -> None:
    ledger = dp.Ledger.in_memory()
    run = ledger.begin(INFO, [(STEP, 20)])
    for _ in run.steps(STEP, 8):
        pass
    run.end("power failure")
    report = dp.Report.of(ledger, delta=DELTA)
    assumptions = items(report, "json")["3b"]
    assert (
        "they are a list yes, checked The list is in the rows before the first charge"
        in assumptions
    )
    assert (
        f"Run {run.number} (“first”) ended early for a public reason relied on Declared: "
        "“power failure”."
    ) in assumptions
    assert (
        report.guarantee.upper
        == dp.account([(STEP, 8)], delta=DELTA, adjacency=INFO.adjacency).upper
    )
    (row, _) = json.loads(report.json())["runs"]["rows"]
    assert row["cells"][3:7] == ["20", "8", "ended early", "power failure"]
