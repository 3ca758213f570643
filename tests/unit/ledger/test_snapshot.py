"""A snapshot: what was charged, what counts, what is committed, of ledgers and of plans; one
reading for all.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

import discreet as dp
from discreet.ledger import Rule, RunRecord, Snapshot, Terms
from discreet.ledger.storage.rows import Held
from support.examples import INFO, METRIC_STEP, OTHER_STEP, STEP, varied_ledger


def held(*terms: Terms) -> tuple[Held, ...]:
    return tuple(
        Held(each, f"reason {number}" if number else "", "now") for number, each in enumerate(terms)
    )


LIST = Terms(rule=Rule.LIST, planned=((STEP, 100), (OTHER_STEP, 7)))
RUN = RunRecord(
    number=2, info=INFO, planned=((STEP, 60),), charged=((STEP, 20),), unsettled=((STEP, 5),)
)


def test_a_ledger_is_read_as_a_whole() -> None:
    ledger = varied_ledger()
    snapshot = ledger.snapshot()
    assert (snapshot.charges, snapshot.marks, snapshot.runs) == (
        ledger.charges(),
        ledger.marks(),
        ledger.runs(),
    )
    assert (snapshot.head, snapshot.schema, snapshot.terms) == (ledger.head(), 2, ledger.terms)
    assert (snapshot.steps, snapshot.unsettled) == (15, 7)
    assert snapshot.charged() == {STEP: 12, OTHER_STEP: 1, METRIC_STEP: 2}
    assert [charge.number for charge in snapshot.charges] == [2, 2, snapshot.runs[1].number]
    assert snapshot.snapshot() is snapshot
    assert len(snapshot.ledger) == 32
    assert [(run.info.label, run.over, run.reason) for run in snapshot.runs] == [
        ("example", True, ""),
        ("second", True, ""),
        ("third", True, "out of time"),
    ]


def test_what_a_run_left_and_its_numbers_of_steps() -> None:
    assert RUN.left() == {STEP: 40}
    assert (RUN.steps, RUN.planned_steps) == (20, 60)
    beyond = replace(RUN, charged=((STEP, 61), (OTHER_STEP, 1)))
    assert beyond.left() == {}


def test_of_a_list_all_counts_and_under_other_rules_what_was_charged() -> None:
    listed = Snapshot(runs=(RUN,), history=held(LIST))
    assert dict(listed.counted()) == dict(listed.committed()) == {STEP: 100, OTHER_STEP: 7}
    for terms in (
        Terms(rule=Rule.RENYI_FILTER, epsilon=2.0, delta=1e-6, orders=((9.0, 1.0),)),
        Terms(rule=Rule.ODOMETER, delta=1e-6),
    ):
        other = Snapshot(runs=(RUN,), history=held(terms))
        assert dict(other.counted()) == {STEP: 20}
        assert dict(other.committed()) == {STEP: 60}
        over = replace(other, runs=(replace(RUN, over=True),))
        assert dict(over.committed()) == {STEP: 20}
    assert dict(Snapshot(runs=(RUN,), schema=1).counted()) == {STEP: 20}


def test_the_terms_are_the_last_of_their_history() -> None:
    snapshot = Snapshot(runs=(RUN,), history=held(LIST, replace(LIST, epsilon=3.0, delta=1e-6)))
    assert snapshot.terms is not None
    assert (snapshot.terms.epsilon, snapshot.rule) == (3.0, Rule.LIST)
    empty = Snapshot(runs=())
    assert (empty.terms, empty.rule, empty.counted()) == (None, None, ())


def test_a_run_that_is_proposed_is_refused_by_a_list_that_has_not_room() -> None:
    snapshot = Snapshot(runs=(RUN,), history=held(LIST))
    snapshot.check_list()
    snapshot.proposing(RunRecord(info=INFO, planned=((STEP, 40), (OTHER_STEP, 7)))).check_list()
    for planned in (((STEP, 41),), ((OTHER_STEP, 8),), ((METRIC_STEP, 1),)):
        with pytest.raises(dp.errors.BudgetExceeded, match="107 in all"):
            snapshot.proposing(RunRecord(info=INFO, planned=planned)).check_list()
    snapshot.proposing(RunRecord(info=INFO, planned=((STEP, 80),), continues=2)).check_list()
    assert [run.over for run in snapshot.proposing(RunRecord(info=INFO, continues=2)).runs] == [
        True,
        False,
    ]


def test_a_plan_and_a_programme_have_snapshots_without_a_ledger() -> None:
    plan = dp.Plan.dpsgd(sampling_probability=0.01, steps=30, noise_multiplier=1.1)
    snapshot = plan.snapshot()
    assert (snapshot.head, snapshot.ledger, snapshot.schema, snapshot.terms) == ("", "", None, None)
    assert dict(snapshot.counted()) == {plan.step: 30}
    assert snapshot.charges == plan.charges()
    assert plan.plans == {"": plan}
    both = dp.Programme({"first": plan, "second": plan})
    assert dict(both.snapshot().counted()) == {plan.step: 60}
    assert both.snapshot().charges == both.charges()
    assert dp.account(plan, delta=1e-6) == dp.account(snapshot, delta=1e-6)


def test_whether_outputs_had_a_part_is_what_any_run_declares() -> None:
    chosen = replace(RUN, info=replace(INFO, parameters=dp.units.Parameters.CHOSEN_FROM_OUTPUTS))
    assert not Snapshot(runs=(RUN,)).chosen_from_outputs
    assert Snapshot(runs=(RUN, chosen)).chosen_from_outputs
