"""The first screen: fail closed, and say what the claim means."""

import functools
import json
import math
from dataclasses import replace

import pytest

import discreet as dp
from discreet._digits import upward
from support.reports import (
    DELTA,
    INFO,
    STEP,
    audit_of,
    extend,
    items,
    ledger_of,
    listed,
    planned,
    step_of,
)

FORMATS = ("html", "md", "json")

FILTERED = replace(INFO, parameters=dp.units.Parameters.CHOSEN_FROM_OUTPUTS)


def status(report: dp.Report) -> str:
    return str(json.loads(report.json())["status"]["key"])


def test_a_marked_ledger_has_no_guarantee_and_no_curve() -> None:
    ledger = ledger_of((STEP, 20), budget=dp.Budget(epsilon=3.0, delta=DELTA))
    ledger.mark(ledger.runs()[0].number, "unsafe_example")
    report = dp.Report.of(ledger, plan=planned(epsilon=2.0), audit=audit_of(ledger))
    document = json.loads(report.json())
    assert status(report) == "void"
    assert not document["claim"]["holds"]
    numbers = [
        value for name, value in document["claim"].items() if name.startswith(("epsilon", "hit"))
    ]
    assert numbers == [None] * 7
    assert document["stamp"]["epsilon"] is None
    assert document["sentence"].endswith("in these data.")
    computed = dp.account([(STEP, 20)], delta=DELTA, adjacency=INFO.adjacency)
    for text in (report.html(), report.markdown(), report.json()):
        assert "-differentially private" not in text
        assert upward(computed.upper) not in text
        assert "infinity" not in text
    assert document["tradeoff"] is None is document["spending"]
    assert document["sentence"].startswith("There is no guarantee")
    for text in (report.html(), report.markdown(), report.json()):
        assert "NO GUARANTEE: voided by unsafe_example" in text
    assert "The ledger is marked unsafe_example" in report.deviations[0].text


def test_an_infinite_epsilon_is_no_guarantee() -> None:
    report = dp.Report.of(ledger_of((step_of(dp.Everything(), 1e-200), 2)), delta=DELTA)
    assert math.isinf(report.guarantee.upper)
    assert status(report) == "void"
    assert "no finite epsilon" in report.markdown()


def test_a_weak_guarantee_is_a_finite_one() -> None:
    report = dp.Report.of(ledger_of((step_of(dp.Everything(), 0.01), 2)), delta=DELTA)
    assert 10.0 < report.guarantee.upper < math.inf
    assert status(report) == "holds"
    assert "tier 3" in report.markdown()
    assert "factor of e^" in report.html()


def test_an_odometer_states_its_own_number_and_the_tight_one_beside_it_with_its_condition() -> None:
    ledger = ledger_of((STEP, 20), budget=dp.Odometer(delta=DELTA))
    extend(ledger, (STEP, 20), info=replace(FILTERED, label=""))
    report = dp.Report.of(ledger)
    tight = dp.account([(STEP, 40)], delta=DELTA, adjacency=INFO.adjacency).upper
    assert report.guarantee.if_fixed == tight < report.guarantee.upper
    document = json.loads(report.json())
    assert document["claim"]["epsilon_upper"] == report.guarantee.upper
    assert document["claim"]["epsilon_if_fixed"] == tight
    figures = {figure["name"]: figure for figure in document["figures"]}
    assert figures["epsilon, at most"]["value"] == upward(report.guarantee.upper)
    assert figures["if all was fixed in advance"]["value"] == upward(tight)
    assert (
        f"epsilon would be at most {upward(tight)}; whether they were, the ledger does not show."
        in document["meaning"][0]
    )
    assert (
        f"({upward(report.guarantee.upper)}, {DELTA!r})-differentially private"
        in document["sentence"]
    )
    assert (
        "What the odometer counts with was fixed before the first release yes, checked"
        in items(report, "json")["3b"]
    )
    assert [row["cells"][1] for row in document["runs"]["rows"]] == [
        "first",
        f"run {ledger.runs()[1].number}",
        "together",
    ]


def report_upper(ledger: dp.Ledger) -> float:
    return dp.Report.of(ledger, delta=DELTA).guarantee.upper


@pytest.mark.parametrize(("factor", "outcome"), [(0.5, "PASS"), (1.5, "FAIL")])
def test_the_audit_is_in_the_headline_with_the_share_it_reached(
    factor: float, outcome: str
) -> None:
    ledger = ledger_of((STEP, 20))
    document = json.loads(
        dp.Report.of(
            ledger, delta=DELTA, audit=audit_of(ledger, report_upper(ledger) * factor)
        ).json()
    )
    (figure,) = [figure for figure in document["figures"] if figure["name"] == "audit"]
    assert figure["value"] == outcome
    assert ("50 % of the claim reached" in figure["note"] or "49 % of" in figure["note"]) is (
        outcome == "PASS"
    )
    assert ("The audit passes, and reached" in document["status"]["text"]) is (outcome == "PASS")
    other = json.loads(
        dp.Report.of(ledger, delta=DELTA, audit=audit_of(ledger_of((STEP, 5)))).json()
    )
    assert [figure["value"] for figure in other["figures"] if figure["name"] == "audit"] == ["none"]


@functools.cache
def made(sampling: dp.ledger.Sampling, adjacency: dp.Adjacency) -> tuple[dp.Report, str]:
    """A report on a tuning run and a final run, and the head of its ledger."""
    info = replace(INFO, adjacency=adjacency, unit=dp.Unit("patient"))
    budget = listed((step_of(sampling), 7))
    ledger = ledger_of((step_of(sampling), 3), info=replace(info, label="tuning"), budget=budget)
    extend(ledger, (step_of(sampling), 4), info=replace(info, label="the final one"))
    return dp.Report.of(ledger, delta=DELTA), ledger.head()


@pytest.mark.parametrize("form", FORMATS)
def test_p48_headline_has_claim_unit_adjacency_delta_tier_and_both_accountants(form: str) -> None:
    report, _ = made(dp.Poisson(0.05), dp.Adjacency.ADD_OR_REMOVE)
    text = {"html": report.html, "md": report.markdown, "json": report.json}[form]().split(
        "The statement", 1
    )[0]
    claim, second = (
        report.guarantee,
        dp.account(
            [(step_of(dp.Poisson(0.05)), 7)],
            delta=DELTA,
            accountant="rdp",
            adjacency=INFO.adjacency,
        ),
    )
    for needed in (
        upward(claim.upper),
        "patient",
        "add-or-remove",
        repr(DELTA),
        "tier",
        "strong formal privacy",
        upward(second.upper),
    ):
        assert needed in text, needed
