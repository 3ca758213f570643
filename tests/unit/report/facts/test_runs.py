"""The runs of a ledger, each by itself."""

import json
from dataclasses import replace

import discreet as dp
from discreet._digits import upward
from discreet.report.facts.runs import (
    continued_by,
    counted_steps,
    epsilon_of_each,
    growth,
    run_state,
)
from support.reports import DELTA, INFO, STEP, extend, ledger_of, listed, step_of


def test_several_runs_with_different_steps_are_one_claim() -> None:
    others = (step_of(dp.Everything(), 30.0), 3), (step_of(dp.Poisson(0.02), 4.0), 7)
    ledger = ledger_of((STEP, 20), budget=listed((STEP, 20), *others))
    extend(ledger, *others, info=replace(INFO, label="second"))
    report = dp.Report.of(ledger, delta=DELTA)
    assert report.guarantee == dp.account(ledger, delta=DELTA)
    document = json.loads(report.json())
    assert [row["cells"][:2] for row in document["charges"]["rows"]] == [
        ["first", "20"],
        ["second", "3"],
        ["second", "7"],
    ]
    assert [row["cells"][1] for row in document["runs"]["rows"]] == ["first", "second", "together"]
    alone = [row["cells"][-1] for row in document["runs"]["rows"]]
    expected = [
        dp.account(steps, delta=DELTA, adjacency=INFO.adjacency).upper
        for steps in ([(STEP, 20)], others)
    ]
    assert alone == [upward(expected[0]), upward(expected[1]), upward(report.guarantee.upper)]
    assert len(document["groups"]) == 3


def test_what_counts_of_a_run_is_its_plan_unless_a_public_reason_ended_it() -> None:
    for reason, counted in (("", 9), ("power failure", 4)):
        ledger = dp.Ledger.in_memory()
        run = ledger.begin(INFO, [(STEP, 9)])
        list(run.steps(STEP, 4))
        run.end(reason)
        snapshot = ledger.snapshot()
        (record,) = snapshot.runs
        assert counted_steps(snapshot, record) == ((STEP, counted),)
        assert run_state(snapshot, record) == ("ended early" if reason else "over")


def test_a_run_that_another_took_the_place_of_counts_what_it_was_charged() -> None:
    ledger = dp.Ledger.in_memory()
    killed = ledger.begin(INFO, [(STEP, 9)])
    list(killed.steps(STEP, 4))
    ledger.begin(INFO, [(STEP, 5)], continues=killed.number)
    snapshot = ledger.snapshot()
    first, second = snapshot.runs
    assert continued_by(snapshot, first) == second
    assert continued_by(snapshot, second) is None
    assert run_state(snapshot, first) == f"continued by run {second.number}"
    assert run_state(snapshot, second) == "going, or killed"
    assert counted_steps(snapshot, first) == ((STEP, 4),)


def test_the_growth_of_a_list_is_what_was_added_after_the_first_release() -> None:
    ledger = ledger_of((STEP, 9))
    assert growth(ledger.snapshot()) == ()
    ledger.extend_list([(STEP, 3)], reason="power failure")
    assert growth(ledger.snapshot()) == ((STEP, 3),)


def test_a_void_ledger_has_no_epsilon_of_single_runs() -> None:
    ledger = ledger_of((STEP, 9))
    assert epsilon_of_each(ledger.snapshot(), DELTA).keys() == {ledger.runs()[0].number}
    ledger.mark(ledger.runs()[0].number, "unsafe_example")
    assert epsilon_of_each(ledger.snapshot(), DELTA) == {}
