"""Deliberate privacy bugs in the ledger, each applied to the real code, and the test that catches it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import discreet as dp
from discreet import _process, _validate
from discreet.ledger import book, store
from support.mutations import Mutation, assert_caught, by_name, replaced

DAMAGE = "laws/test_damage.py"
EVENTS = "unit/ledger/test_events.py"
LEDGER = "unit/ledger/test_ledger.py"


def charges(count: Callable[[dp.Charge], int]) -> Callable[[book.Book], tuple[dp.Charge, ...]]:
    """`Book.charges` with another idea of what counts."""
    right = book.Book.charges
    return lambda self: tuple(replace(charge, count=count(charge)) for charge in right(self))


def take_without_limit(self: dp.Lease) -> int:
    self._taken += 1
    return self._taken - 1


def without_guards(monkeypatch: pytest.MonkeyPatch) -> None:
    make = dp.Ledger.__init__
    monkeypatch.setattr(dp.Ledger, "__init__", lambda self, store, **ignored: make(self, store))


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
        replaced(book.Book, "charges", charges(lambda charge: charge.count - charge.unsettled)),
        f"{LEDGER}::test_a_reservation_counts_in_full_until_it_is_settled",
    ),
    Mutation(
        "P33 the ledger drops the count",
        replaced(book.Book, "charges", charges(lambda charge: min(charge.count, 1))),
        f"{LEDGER}::test_a_lease_never_left_counts_in_full",
    ),
    Mutation(
        "P34 numbers keep the type they came in",
        replaced(_validate, "positive", lambda owner, name, value: value),
        f"{EVENTS}::test_p34_an_int_or_float32_multiplier_makes_the_same_event",
    ),
    Mutation(
        "P41 a lease gives more than was charged",
        replaced(dp.Lease, "take", take_without_limit),
        f"{LEDGER}::test_a_lease_gives_no_more_than_was_reserved",
    ),
    Mutation(
        "P20 a forked child takes its parent's steps again",
        replaced(_process, "current", lambda: "always the same"),
        f"{LEDGER}::test_p20_a_fork_can_neither_take_nor_settle_nor_write",
    ),
    Mutation(
        "P20 a lease can be copied",
        replaced(dp.Lease, "__reduce_ex__", object.__reduce_ex__),
        f"{LEDGER}::test_p20_a_lease_and_a_handle_cannot_be_copied",
    ),
    Mutation(
        "P38 the budget is not asked",
        without_guards,
        f"{LEDGER}::test_p38_a_guard_sees_the_proposed_charge_and_its_refusal_charges_nothing",
    ),
    Mutation(
        "rows missing at the end go unnoticed",
        replaced(book.Book, "check_head", lambda self, rows, digest: None),
        f"{DAMAGE}::test_every_edit_is_detected_or_harmless[rows]",
    ),
    Mutation(
        "a reservation can be settled twice",
        replaced(book.Book, "_settle", settle_again),
        f"{LEDGER}::test_a_row_must_make_sense_after_those_before_it[rows7-not settled yet]",
    ),
    Mutation(
        "a commit may be lost with the power",
        shallow_synchronous,
        f"{LEDGER}::test_power_loss_settings_are_in_force",
    ),
]


@by_name(MUTATIONS)
def test_the_bug_is_caught(mutation: Mutation, tmp_path: Path) -> None:
    assert_caught(mutation, tmp_path)
