"""From facts to the document: charts, notes, and a page that stays readable."""

import json
import math
from dataclasses import replace

import discreet as dp
from support.reports import DELTA, INFO, STEP, extend, items, ledger_of, listed

FILTERED = replace(INFO, parameters=dp.units.Parameters.CHOSEN_FROM_OUTPUTS)
BUDGET = dp.Filter(epsilon=2.0, delta=DELTA)


def test_p39_a_filtered_ledger_claims_all_of_its_budget() -> None:
    report = dp.Report.of(ledger_of((STEP, 5), info=FILTERED, budget=BUDGET))
    assert (report.guarantee.upper, report.guarantee.delta) == (2.0, DELTA)
    document = json.loads(report.json())
    assert document["spending"] is None
    assert document["claim"]["epsilon_rdp"] is None
    assert (
        math.exp(2.0) * 0.01 + DELTA
        <= document["claim"]["hit_rate_at_1_percent"]
        < 0.0739 + 2 * DELTA
    )
    assert "filter" in items(report, "md")["3a"]
    assert "Under a filter" in items(report, "md")["3c"]
    assert (
        "Every charge fits a filter that was fixed before the first release yes, checked"
        in items(report, "json")["3b"]
    )
    assert document["held_to"]["table"]["rows"][-1]["cells"][2:4] == ["2", "1e-05"]


def test_many_groups_and_many_runs_stay_small() -> None:
    step = dp.ledger.Step(
        dp.Poisson(0.05),
        [dp.ledger.GaussianSum(f"group {i:03}" + "x" * 180, 1.0, 100.0) for i in range(60)],
    )
    ledger = ledger_of((step, 5), budget=listed((step, 5), (STEP, 24)))
    for i in range(12):
        extend(ledger, (STEP, 2), info=replace(INFO, label=f"run {i}"))
    page = dp.Report.of(ledger, delta=DELTA).html()
    assert len(page) < 500_000
    assert "48 more groups" in page
