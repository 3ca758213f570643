"""What a run plans is its commitment: it counts, it is enforced, and another run may take what is
left of it.
"""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import pytest

import discreet as dp
from discreet.ledger import Rule, Run, Terms, block_size
from discreet.ledger.storage.store import Store
from support.examples import INFO, OTHER_STEP, STEP, list_of, roomy_ledger, varied_ledger
from support.victims import FIRST
from support.victims import INFO as VICTIM

CHOSEN = replace(INFO, parameters=dp.units.Parameters.CHOSEN_FROM_OUTPUTS)


def take(run: Run, count: int, step: dp.ledger.Step = STEP) -> None:
    assert len(list(run.steps(step, count))) == count


def counted(ledger: dp.Ledger) -> dict[dp.ledger.Step, int]:
    return dict(ledger.snapshot().counted())


def upper(count: int) -> float:
    return dp.account([(STEP, count)], delta=1e-5, adjacency=INFO.adjacency).upper


# --- the list, which the first run settles ---


def test_the_first_run_settles_the_list_before_anything_is_charged() -> None:
    ledger = dp.Ledger.in_memory()
    assert ledger.snapshot().history == ()
    run = ledger.begin(INFO, [(STEP, 60), (OTHER_STEP, 5), (STEP, 40)], plan='{"a": "plan"}')
    assert ledger.terms == Terms(rule=Rule.LIST, planned=((STEP, 100), (OTHER_STEP, 5)))
    (record,) = ledger.runs()
    assert (record.number, record.planned, record.plan) == (
        run.number,
        ((STEP, 100), (OTHER_STEP, 5)),
        '{"a": "plan"}',
    )
    assert ledger.charges() == ()
    assert counted(ledger) == {STEP: 100, OTHER_STEP: 5}


def test_without_a_plan_the_first_reservation_is_the_list() -> None:
    ledger = dp.Ledger.in_memory()
    run = ledger.begin(INFO)
    assert ledger.terms is None
    run.reserve(STEP, count=10)
    head = ledger.head()
    for step in (STEP, OTHER_STEP):
        with pytest.raises(
            dp.errors.BudgetExceeded, match="the list that was fixed before the first release"
        ):
            run.reserve(step, count=1)
    assert ledger.head() == head


def test_a_list_is_a_quota_for_each_kind_of_step_whichever_run_takes_it() -> None:
    ledger = dp.Ledger.in_memory(budget=list_of((STEP, 100), (OTHER_STEP, 10)))
    for label, step, count in (
        ("first", STEP, 60),
        ("second", OTHER_STEP, 10),
        ("third", STEP, 40),
    ):
        run = ledger.begin(replace(INFO, label=label), [(step, count)])
        take(run, count, step)
        run.end()
    for step in (STEP, OTHER_STEP):
        with pytest.raises(
            dp.errors.BudgetExceeded, match=r"1 more; \d+ of \d+ are charged already"
        ):
            ledger.begin(INFO, [(step, 1)])
    assert counted(ledger) == {STEP: 100, OTHER_STEP: 10}


def test_what_a_run_may_still_take_is_not_free_for_another() -> None:
    ledger = dp.Ledger.in_memory()
    first = ledger.begin(INFO, [(STEP, 100)])
    take(first, 10)
    with pytest.raises(dp.errors.BudgetExceeded):
        ledger.begin(INFO, [(STEP, 1)])
    second = ledger.begin(INFO)
    with pytest.raises(dp.errors.BudgetExceeded):
        second.reserve(STEP, count=1)
    take(first, 90)
    assert counted(ledger) == {STEP: 100}


def test_t01_a_list_refuses_what_is_chosen_from_outputs_for_good() -> None:
    for ledger in (dp.Ledger.in_memory(), dp.Ledger.in_memory(budget=list_of((STEP, 100)))):
        for planned in ((), [(STEP, 1)]):
            with pytest.raises(dp.errors.LedgerMisuse, match="a filter or an odometer"):
                ledger.begin(CHOSEN, planned)
        assert ledger.runs() == ()


def test_a_second_run_of_the_same_plan_is_refused_and_says_what_to_do() -> None:
    ledger = dp.Ledger.in_memory()
    first = ledger.begin(INFO, [(STEP, 100)])
    take(first, 100)
    first.end()
    head = ledger.head()
    with pytest.raises(
        dp.errors.BudgetExceeded,
        match=r"Filter or an Odometer before its first run.*until_budget=True",
    ):
        ledger.begin(INFO, [(STEP, 100)])
    with pytest.raises(dp.errors.BudgetExceeded, match="1 of another kind"):
        ledger.check_admits(INFO, [(OTHER_STEP, 1)])
    assert ledger.fitting(INFO, STEP, 100) == 0
    assert ledger.head() == head


# --- ends ---


def test_t04_a_run_that_ends_early_costs_all_that_it_planned() -> None:
    ledger = dp.Ledger.in_memory()
    run = ledger.begin(INFO, [(STEP, 100)])
    take(run, 10)
    run.end()
    assert (ledger.snapshot().steps, counted(ledger)) == (10, {STEP: 100})
    claim = dp.account(ledger, delta=1e-5)
    assert claim.upper == upper(100)
    assert (
        "100 steps, a list that was fixed before the first release; 10 were charged, and all count"
        in claim.basis
    )


def test_t04_a_public_reason_makes_it_what_was_charged_and_is_said() -> None:
    ledger = dp.Ledger.in_memory()
    run = ledger.begin(INFO, [(STEP, 100)])
    take(run, 10)
    run.end("power failure")
    claim = dp.account(ledger, delta=1e-5)
    assert counted(ledger) == {STEP: 10}
    assert claim.upper == upper(10)
    assert "10 steps of 100 that were planned" in claim.basis
    declared = (
        "run 'example' ended after 10 of 100 planned steps for a public reason, as was declared: "
        "'power failure'"
    )
    assert declared in claim.assumptions
    with pytest.raises(dp.errors.BudgetExceeded):
        ledger.begin(INFO, [(STEP, 1)])  # what it left is gone


def test_a_reason_can_be_added_once_and_a_run_that_is_over_takes_nothing() -> None:
    ledger = dp.Ledger.in_memory()
    run = ledger.begin(INFO, [(STEP, 100)])
    take(run, 10)
    run.end()
    run.end()  # again, without a reason: nothing happens
    rows = ledger.head()
    with pytest.raises(dp.errors.LedgerMisuse, match="a run that is not over"):
        run.reserve(STEP, count=1)
    assert ledger.head() == rows
    run.end("power failure")
    with pytest.raises(dp.errors.LedgerMisuse, match="A reason can be added once"):
        run.end("a better one")
    (record,) = ledger.runs()
    assert (record.over, record.reason) == (True, "power failure")


def test_t04_a_reason_does_not_free_what_another_run_promised() -> None:
    """The first run's reason is added after the second drew on what it left, and stopped by
    looking.
    """
    ledger = dp.Ledger.in_memory()
    first = ledger.begin(INFO, [(STEP, 100)])
    take(first, 10)
    first.end()
    second = ledger.begin(INFO, [(STEP, 50)])
    take(second, 5)
    second.end()
    assert counted(ledger) == {STEP: 100}
    first.end("power failure")
    assert counted(ledger) == {STEP: 60}  # 10 and what the second promised


def test_t04_a_reason_does_not_free_what_an_earlier_run_left_by_looking() -> None:
    ledger = dp.Ledger.in_memory()
    first = ledger.begin(INFO, [(STEP, 100)])
    take(first, 10)
    first.end()
    second = ledger.begin(INFO, [(STEP, 90)])
    take(second, 5)
    second.end("power failure")
    assert counted(ledger) == {STEP: 100}


def test_of_a_list_with_several_plans_a_reason_frees_its_own_part_only() -> None:
    ledger = dp.Ledger.in_memory(budget=list_of((STEP, 100), (OTHER_STEP, 10)))
    run = ledger.begin(INFO, [(STEP, 60)])
    take(run, 20)
    run.end("power failure")
    assert counted(ledger) == {STEP: 60, OTHER_STEP: 10}
    ledger.begin(INFO, [(STEP, 40)])
    with pytest.raises(dp.errors.BudgetExceeded):
        ledger.begin(INFO, [(STEP, 1)])


def test_closing_the_ledger_ends_its_runs_and_a_kill_does_not(tmp_path: Path) -> None:
    path = tmp_path / "a.ledger"
    with dp.Ledger.open(path) as ledger:
        run = ledger.begin(INFO, [(STEP, 100)])
        run.reserve(STEP, count=10).take()
    (record,) = dp.Ledger.open(path, "r").runs()
    assert (record.over, record.steps, record.reason) == (True, 10, "")
    killed = dp.Ledger.open(tmp_path / "b.ledger")
    killed.begin(INFO, [(STEP, 100)]).reserve(STEP, count=10)
    killed._journal.store.close()  # as a kill leaves it: nothing settled, nothing ended
    reopened = dp.Ledger.open(tmp_path / "b.ledger")
    (record,) = reopened.runs()
    assert (record.over, record.steps, reopened.snapshot().unsettled) == (False, 10, 10)
    assert counted(reopened) == {STEP: 100}


# --- a run that takes the place of another ---


def test_a_run_that_continues_another_takes_what_it_left() -> None:
    ledger = dp.Ledger.in_memory()
    killed = ledger.begin(INFO, [(STEP, 100)])
    killed.reserve(STEP, count=32)  # never settled
    assert ledger.fitting(INFO, STEP, 100) == 0
    assert ledger.fitting(INFO, STEP, 100, continues=killed.number) == 68
    with pytest.raises(dp.errors.BudgetExceeded):
        ledger.begin(INFO, [(STEP, 69)], continues=killed.number)
    again = ledger.begin(INFO, [(STEP, 68)], continues=killed.number)
    take(again, 68)
    assert counted(ledger) == {STEP: 100}
    with pytest.raises(dp.errors.LedgerMisuse, match="continued by another"):
        killed.reserve(STEP, count=1)
    with pytest.raises(dp.errors.LedgerMisuse, match="not to a run that was continued"):
        killed.end("power failure")


def test_t04_a_run_that_took_anothers_place_cannot_name_a_reason() -> None:
    """What the other one left may have been left by looking; with a reason of its successor it
    would be forgotten.
    """
    ledger = dp.Ledger.in_memory()
    first = ledger.begin(INFO, [(STEP, 100)])
    take(first, 10)
    first.end()
    second = ledger.begin(INFO, [(STEP, 90)], continues=first.number)
    with pytest.raises(dp.errors.LedgerMisuse, match="took nobody's place"):
        second.end("the machine was needed")
    second.end()
    assert counted(ledger) == {STEP: 100}


def test_t04_what_a_run_left_counts_although_another_took_its_place_with_less() -> None:
    ledger = dp.Ledger.in_memory()
    first = ledger.begin(INFO, [(STEP, 100)])
    take(first, 10)
    first.end()
    second = ledger.begin(INFO, [(STEP, 1)], continues=first.number)
    take(second, 1)
    second.end()
    third = ledger.begin(INFO, [(STEP, 89)])
    third.end("the machine was needed")
    assert counted(ledger) == {STEP: 100}


def test_t04_leases_end_with_their_run() -> None:
    ledger = dp.Ledger.in_memory()
    run = ledger.begin(INFO, [(STEP, 100)])
    lease = run.reserve(STEP, count=100)
    lease.take()
    run.end("power failure")
    with pytest.raises(dp.errors.LedgerMisuse, match="a lease with steps left"):
        lease.take()
    assert counted(ledger) == {STEP: 1}


def test_t04_a_loop_ends_with_its_run() -> None:
    ledger = dp.Ledger.in_memory()
    run = ledger.begin(INFO, [(STEP, 100)])
    for number in run.steps(STEP, 100):
        if number == 4:
            run.end("power failure")
    assert number == 4
    assert counted(ledger) == {STEP: 5}


def test_t04_a_reason_frees_nothing_that_is_decided_after_it(tmp_path: Path) -> None:
    """An officer ends a run that is going elsewhere: what it has reserved it may still take, or
    not, by looking.
    """
    path = tmp_path / "a.ledger"
    with dp.Ledger.open(path) as going, dp.Ledger.open(path) as officer:
        run = going.begin(INFO, [(STEP, 100)])
        lease = run.reserve(STEP, count=32)
        officer.end(run.number, "the machine was needed")
        assert counted(officer) == {STEP: 32}
        lease.take()
        lease.settle()
        assert officer.snapshot().charged() == {STEP: 1}
        assert counted(officer) == {STEP: 32}


def test_an_interrupted_settlement_is_written_once_and_is_no_corruption() -> None:
    ledger = dp.Ledger.in_memory()
    run = ledger.begin(INFO, [(STEP, 100)])
    lease = run.reserve(STEP, count=10)
    lease.take()
    lease.settle()
    head = ledger.head()
    lease._settled = False  # as if Ctrl-C had come between the commit and the note of it
    lease.settle()
    assert ledger.head() == head
    ledger.verify()


def test_a_reason_where_nothing_is_left_is_no_reason() -> None:
    ledger = dp.Ledger.in_memory()
    run = ledger.begin(INFO, [(STEP, 3)])
    take(run, 3)
    run.end("power failure")
    claim = dp.account(ledger, delta=1e-5)
    assert (
        claim.basis == "3 steps, a list that was fixed before the first release; all were charged"
    )
    assert not any("power failure" in text for text in claim.assumptions)


def test_a_run_is_continued_once_and_not_after_a_public_reason() -> None:
    ledger = dp.Ledger.in_memory(budget=list_of((STEP, 100)))
    first = ledger.begin(INFO, [(STEP, 10)])
    ledger.begin(INFO, [(STEP, 10)], continues=first.number)
    head = ledger.head()
    with pytest.raises(dp.errors.ParameterError, match="continues"):
        ledger.begin(INFO, [(STEP, 10)], continues=first.number)
    ended = ledger.begin(INFO, [(STEP, 10)])
    ended.end("power failure")
    with pytest.raises(dp.errors.ParameterError, match="continues"):
        ledger.begin(INFO, [(STEP, 1)], continues=ended.number)
    assert ledger.verify(head) is ledger


# --- a list that grows ---


def test_a_list_grows_for_a_public_reason_which_every_guarantee_says() -> None:
    ledger = dp.Ledger.in_memory()
    run = ledger.begin(INFO, [(STEP, 100)])
    take(run, 100)
    ledger.extend_list([(STEP, 5), (OTHER_STEP, 2)], reason="power failure")
    take(run, 5)
    with pytest.raises(dp.errors.BudgetExceeded):
        run.reserve(STEP, count=1)
    assert counted(ledger) == {STEP: 105, OTHER_STEP: 2}
    assert [held.reason for held in ledger.snapshot().history] == ["", "power failure"]
    declared = "the list of steps grew for a public reason, as was declared: 'power failure'"
    assert declared in dp.account(ledger, delta=1e-5).assumptions


def test_only_a_list_grows_and_only_within_its_budget() -> None:
    for ledger in (dp.Ledger.in_memory(), dp.Ledger.in_memory(budget=dp.Odometer(delta=1e-5))):
        with pytest.raises(dp.errors.LedgerMisuse, match="held to a list"):
            ledger.extend_list([(STEP, 1)], reason="power failure")
    tight = dp.Ledger.in_memory(budget=dp.Budget(epsilon=upper(100), delta=1e-5))
    tight.begin(INFO, [(STEP, 100)])
    head = tight.head()
    with pytest.raises(dp.errors.BudgetExceeded):
        tight.extend_list([(STEP, 100)], reason="power failure")
    assert tight.head() == head


# --- under other rules a commitment is a promise to the run, and no part of the claim ---


@pytest.mark.parametrize(
    "budget", [dp.Filter(epsilon=2.0, delta=1e-5), dp.Odometer(delta=1e-5, epsilon=2.0)]
)
def test_a_commitment_is_admitted_as_a_whole_so_that_no_run_is_refused_half_way(
    budget: dp.Filter | dp.Odometer,
) -> None:
    ledger = dp.Ledger.in_memory(budget=budget)
    most = ledger.fitting(CHOSEN, STEP, 10**6)
    assert 1_000 < most < 10**6
    first = ledger.begin(CHOSEN, [(STEP, most)])
    with pytest.raises(dp.errors.BudgetExceeded):
        ledger.begin(CHOSEN, [(STEP, most)])
    take(first, most)
    with pytest.raises(dp.errors.BudgetExceeded):
        first.reserve(STEP, count=most)
    assert counted(ledger) == {STEP: most}


@pytest.mark.parametrize("budget", [dp.Filter(epsilon=2.0, delta=1e-5), dp.Odometer(delta=1e-5)])
def test_what_a_run_left_is_free_again_under_a_filter_or_an_odometer(
    budget: dp.Filter | dp.Odometer,
) -> None:
    ledger = dp.Ledger.in_memory(budget=budget)
    first = ledger.begin(CHOSEN, [(STEP, 500)])
    take(first, 10)
    assert dict(ledger.snapshot().committed()) == {STEP: 500}
    first.end()
    assert dict(ledger.snapshot().committed()) == counted(ledger) == {STEP: 10}
    take(ledger.begin(CHOSEN), 7)  # nothing planned: each block is asked for
    assert counted(ledger) == {STEP: 17}


@pytest.fixture
def ledger() -> dp.Ledger:
    return roomy_ledger()


@pytest.fixture
def run(ledger: dp.Ledger) -> Run:
    return ledger.begin(INFO)


def total(ledger: dp.Ledger) -> int:
    return sum(charge.count for charge in ledger.charges())


@pytest.mark.parametrize("block", [None, 1, 7, 100])
def test_steps_yields_each_number_once_and_charges_before(
    ledger: dp.Ledger, run: Run, block: int | None
) -> None:
    seen = []
    for number in run.steps(STEP, 50, block=block):
        seen.append(number)
        assert total(ledger) >= len(seen)
    assert seen == list(range(50))
    assert ledger.charges()[0].count == 50


def test_breaking_off_settles_to_the_steps_seen(ledger: dp.Ledger, run: Run) -> None:
    for number in run.steps(STEP, 1000):
        if number == 40:
            break
    assert total(ledger) == 41


def test_a_million_equal_steps_are_a_few_rows_and_over_count_by_an_eighth_at_most() -> None:
    taken, writes = 0, 0
    while taken < 1_000_000:
        block = block_size(taken)
        assert block <= max(32, taken / 8)
        taken, writes = taken + block, writes + 1
    assert writes < 120


def test_runs_share_a_ledger_and_are_charged_apart() -> None:
    ledger = varied_ledger()
    assert [run.info.label for run in ledger.runs()] == ["example", "second", "third"]
    assert [(charge.run.label, charge.count, charge.unsettled) for charge in ledger.charges()] == [
        ("example", 12, 5),
        ("example", 1, 0),
        ("second", 2, 2),
    ]


def test_a_run_that_another_process_took_the_place_of_is_over_and_closing_says_nothing(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.ledger"
    with dp.Ledger.open(path) as first, dp.Ledger.open(path) as second:
        slow = first.begin(VICTIM, [(FIRST, 4)])
        lease = slow.reserve(FIRST, count=2)
        second.begin(VICTIM, [(FIRST, 2)], continues=slow.number)
        lease.take()
        slow.end()
        with pytest.raises(dp.errors.LedgerMisuse, match="not to a run that was continued"):
            slow.end("power failure")
    with dp.Ledger.open(path, "r") as ledger:
        replaced, _ = ledger.verify().runs()
        assert (replaced.over, replaced.reason, replaced.steps) == (True, "", 1)


def rows_by_transaction(ledger: dp.Ledger, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The kinds of row that each further transaction stores, filled as they come."""
    transactions: list[list[str]] = []
    appending, append = Store.appending, Store.append

    def counted(self: Store) -> AbstractContextManager[None]:
        transactions.append([])
        return appending(self)

    def noted(self: Store, number: int, body: bytes, digest: bytes) -> None:
        transactions[-1].append(json.loads(body)["kind"])
        append(self, number, body, digest)

    monkeypatch.setattr(Store, "appending", counted)
    monkeypatch.setattr(Store, "append", noted)
    return transactions


def test_a_block_is_settled_in_the_transaction_that_reserves_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ledger = dp.Ledger.in_memory()
    run = ledger.begin(VICTIM, [(FIRST, 5)])
    transactions = rows_by_transaction(ledger, monkeypatch)
    for _ in run.steps(FIRST, 5, block=2):
        assert ledger.snapshot().unsettled <= 2
    assert transactions == [
        ["reserved"],
        ["settled", "reserved"],
        ["settled", "reserved"],
        ["settled"],
    ]
    assert (ledger.snapshot().steps, ledger.snapshot().unsettled) == (5, 0)


def test_a_block_is_settled_if_the_next_is_refused() -> None:
    ledger = dp.Ledger.in_memory()
    run = ledger.begin(VICTIM, [(FIRST, 3)])
    with pytest.raises(dp.errors.BudgetExceeded):
        list(run.steps(FIRST, 9, block=2))
    assert (ledger.snapshot().steps, ledger.snapshot().unsettled) == (3, 0)


def test_a_block_that_was_settled_meanwhile_is_not_settled_again() -> None:
    ledger = dp.Ledger.in_memory()
    run = ledger.begin(VICTIM, [(FIRST, 4)])
    for number in run.steps(FIRST, 4, block=2):
        if number == 1:
            for lease in list(ledger._leases):  # as another thread might
                lease.settle()
    assert (ledger.verify().snapshot().steps, ledger.snapshot().unsettled) == (4, 0)
