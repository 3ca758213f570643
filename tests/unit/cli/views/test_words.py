"""A guarantee in words and for scripts: no number where there is none, and bounds rounded up."""

import re

import discreet as dp
from discreet.cli.views.words import (
    deviation_words,
    guarantee_data,
    guarantee_in_words,
    report_data,
)
from discreet.report import Deviation
from support.reports import DELTA, STEP, executed, ledger_of, planned

GUARANTEE = dp.account([(STEP, 20)], delta=DELTA, adjacency=dp.Adjacency.ADD_OR_REMOVE)


def test_numbers_for_scripts_are_not_rounded() -> None:
    data = guarantee_data(GUARANTEE)
    assert (data["epsilon"], data["epsilon_lower"]) == (GUARANTEE.upper, GUARANTEE.lower)
    assert data["statement"] == str(GUARANTEE)


def test_t05_a_void_guarantee_has_no_number_for_scripts() -> None:
    ledger = ledger_of((STEP, 20))
    ledger.mark(ledger.runs()[0].number, "unsafe_example")
    void = guarantee_data(dp.account(ledger, delta=DELTA))
    assert (void["valid"], void["epsilon"], void["epsilon_lower"]) == (False, None, None)


def test_what_an_attack_may_reach_is_rounded_up() -> None:
    lines, facts = guarantee_in_words(GUARANTEE, 0.12301)
    match = re.search(r"at most ([0-9.]+) % of those that were\.", lines[1])
    assert match is not None
    assert float(match[1]) == 12.4
    assert facts["attack"]["hit_rate"] == 0.12301
    assert guarantee_in_words(GUARANTEE, None)[1]["attack"] is None


def test_how_bad_a_deviation_is_comes_first() -> None:
    assert deviation_words(Deviation("wrong", "x")) == "DEVIATION: x"
    assert deviation_words(Deviation("note", "x")) == "Note: x"


def test_only_what_is_wrong_makes_a_report_deviate() -> None:
    plan = planned()
    assert report_data(dp.Report.of(executed(plan), delta=DELTA, plan=plan))["deviates"] is False
    other = dp.Report.of(ledger_of((STEP, 99)), delta=DELTA, plan=planned(steps=2))
    assert report_data(other)["deviates"] is True
