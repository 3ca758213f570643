"""Deliberate privacy bugs in the ledger, each applied to the real code, and the test that catches
it.
"""

import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import discreet as dp
from discreet import _process, _validate
from discreet.ledger import RunRecord, Snapshot, decisions
from discreet.ledger.journal import Journal
from discreet.ledger.storage import book, store
from support.mutations import Mutation, assert_caught, by_name, replaced

DAMAGE = "laws/test_damage.py"
EVENTS = "unit/ledger/events/test_step.py"
LEDGER = "unit/ledger/test_ledger.py"
LEASE = "unit/ledger/test_lease.py"
BOOK = "unit/ledger/storage/test_book.py"
STORE = "unit/ledger/storage/test_store.py"
RUN = "unit/ledger/test_run.py"
BUDGET = "unit/test_budget.py"


def records(count: Callable[[int, int], int]) -> Callable[[Any, int], RunRecord]:
    """A run's record with another idea of what was charged, from what is reserved and what of it is
    not settled.
    """
    right = book._Run.record

    def wrong(self: Any, number: int) -> RunRecord:
        charged = tuple(
            (step, count(total.count, total.unsettled)) for step, total in self.totals.items()
        )
        return replace(right(self, number), charged=charged)

    return wrong


def take_without_limit(self: dp.ledger.Lease) -> int:
    self._taken += 1
    return self._taken - 1


def budget_of_a_handle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever opens the file without a budget is held to none."""
    make, append, admit = dp.Ledger.__init__, Journal.append, decisions._admit
    with_a_budget: list[bool] = [False]
    stores: weakref.WeakSet[store.Store] = weakref.WeakSet()

    def remember(self: dp.Ledger, its_store: store.Store, **options: Any) -> None:
        if options.get("budget") is not None:
            stores.add(its_store)
        make(self, its_store, **options)

    def note(self: Journal, decide: Any) -> list[int]:
        with_a_budget[0] = self.store in stores
        return append(self, decide)

    monkeypatch.setattr(dp.Ledger, "__init__", remember)
    monkeypatch.setattr(Journal, "append", note)
    monkeypatch.setattr(
        decisions, "_admit", lambda snapshot: admit(snapshot) if with_a_budget[0] else None
    )


def shallow_synchronous(monkeypatch: pytest.MonkeyPatch) -> None:
    connect = store._connect

    def careless(uri: str) -> Any:
        connection = connect(uri)
        connection.execute("PRAGMA synchronous = NORMAL")
        return connection

    monkeypatch.setattr(store, "_connect", careless)


def settle_again(self: book.Book, row: Any) -> None:
    lease = self._reservations[row.lease]
    lease.total.count += row.taken - lease.count


MUTATIONS = [
    Mutation(
        "P41 an open reservation counts nothing",
        replaced(book._Run, "record", records(lambda count, unsettled: count - unsettled)),
        f"{LEASE}::test_a_reservation_counts_in_full_until_it_is_settled",
    ),
    Mutation(
        "P33 the ledger drops the count",
        replaced(book._Run, "record", records(lambda count, unsettled: min(count, 1))),
        f"{LEASE}::test_a_lease_never_left_counts_in_full",
    ),
    Mutation(
        "P34 numbers keep the type they came in",
        replaced(_validate, "positive", lambda owner, name, value: value),
        f"{EVENTS}::test_p34_an_int_or_float32_multiplier_makes_the_same_event",
    ),
    Mutation(
        "P41 a lease gives more than was charged",
        replaced(dp.ledger.Lease, "take", take_without_limit),
        f"{LEASE}::test_a_lease_gives_no_more_than_was_reserved",
    ),
    Mutation(
        "P20 a forked child takes its parent's steps again",
        replaced(_process, "current", lambda: "always the same"),
        f"{LEASE}::test_p20_a_fork_can_neither_take_nor_settle_nor_write",
    ),
    Mutation(
        "P20 a lease can be copied",
        replaced(dp.ledger.Lease, "__reduce_ex__", object.__reduce_ex__),
        f"{LEASE}::test_p20_a_lease_a_run_and_a_handle_cannot_be_copied",
    ),
    Mutation(
        "P38 the budget is not asked",
        replaced(decisions, "_admit", lambda snapshot: None),
        f"{LEDGER}::test_p38_a_budget_sees_the_proposed_charge_and_its_refusal_charges_nothing",
    ),
    Mutation(
        "rows missing at the end go unnoticed",
        replaced(book.Book, "check_head", lambda self, rows, digest: None),
        f"{DAMAGE}::test_every_edit_is_detected_or_harmless[rows]",
    ),
    Mutation(
        "a reservation can be settled twice",
        replaced(book.Book, "_settle", settle_again),
        f"{BOOK}::test_a_row_must_make_sense_after_those_before_it[rows7-not settled yet]",
    ),
    Mutation(
        "a commit may be lost with the power",
        shallow_synchronous,
        f"{STORE}::test_power_loss_settings_are_in_force",
    ),
    Mutation(
        "a list is not enforced",
        replaced(Snapshot, "check_list", lambda self: None),
        f"{RUN}::test_a_second_run_of_the_same_plan_is_refused_and_says_what_to_do",
    ),
    Mutation(
        "a commitment does not count against the list",
        replaced(Snapshot, "_taken_or_left", Snapshot.charged),
        f"{RUN}::test_what_a_run_may_still_take_is_not_free_for_another",
    ),
    Mutation(
        "T02 a budget holds only who names it",
        budget_of_a_handle,
        f"{BUDGET}::test_t02_four_writers_without_a_budget_of_their_own_are_held_to_the_files[filter]",
    ),
    Mutation(
        "T03 a ledger is opened with another budget than its own",
        replaced(decisions, "_same", lambda present, wanted: True),
        f"{BUDGET}::test_t03_a_ledger_that_began_without_a_budget_gets_none_by_opening_it",
    ),
    Mutation(
        "T04 a run that ended early counts as what it took",
        replaced(Snapshot, "counted", lambda self: tuple(self.charged().items())),
        f"{RUN}::test_t04_a_run_that_ends_early_costs_all_that_it_planned",
    ),
    Mutation(
        "T04 a public reason frees what another run promised",
        replaced(Snapshot, "_promised", lambda self: {}),
        f"{RUN}::test_t04_a_reason_does_not_free_what_another_run_promised",
    ),
]


@by_name(MUTATIONS)
def test_the_bug_is_caught(mutation: Mutation, tmp_path: Path) -> None:
    assert_caught(mutation, tmp_path)
