"""Which rows may follow a snapshot: pure functions, asked without a ledger."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

import discreet as dp
from discreet.ledger import Rule, RunRecord, Snapshot, Terms, decisions
from discreet.ledger.storage.rows import Began, Ended, Held, Marked, Reserved, Row
from support.examples import INFO, OTHER_STEP, STEP

EMPTY = Snapshot(runs=(), schema=2)
LIST = Terms(rule=Rule.LIST, planned=((STEP, 100),))
FILTER = Terms(rule=Rule.RENYI_FILTER, epsilon=4.0, delta=1e-6, orders=((8.0, 1.0),))
RUN = RunRecord(number=2, info=INFO, planned=((STEP, 60),), charged=((STEP, 20),))


def held_to(terms: Terms, *runs: RunRecord) -> Snapshot:
    return Snapshot(runs=runs, history=(Held(terms, "", "now"),), schema=2)


def began(
    *planned: tuple[dp.ledger.Step, int],
    continues: int | None = None,
    info: dp.ledger.RunInfo = INFO,
) -> Began:
    return Began(info, (), "now", planned, continues)


def kinds(rows: Sequence[Row]) -> list[type]:
    return [type(row) for row in rows]


def test_a_file_of_an_older_schema_is_not_written_to() -> None:
    decisions.check_writable(EMPTY)
    with pytest.raises(dp.errors.LedgerMisuse, match="Begin a new ledger, and account for both"):
        decisions.check_writable(replace(EMPTY, schema=1))


# --- the terms that a handle was opened with ---


def test_the_first_terms_are_a_row_and_the_same_again_are_none() -> None:
    (row,) = decisions.first_terms(EMPTY, LIST)
    assert isinstance(row, Held)
    assert (row.terms, row.reason) == (LIST, "")
    for wanted in (LIST, Terms(rule=Rule.LIST)):  # what is left open fits
        assert decisions.first_terms(held_to(LIST), wanted) == []
    assert (
        decisions.first_terms(held_to(FILTER), Terms(rule=Rule.FILTER, epsilon=4.0, delta=1e-6))
        == []
    )


@pytest.mark.parametrize(
    ("present", "wanted"),
    [
        (LIST, replace(LIST, epsilon=2.0, delta=1e-6)),
        (LIST, replace(LIST, planned=((STEP, 101),))),
        (LIST, replace(LIST, planned=((STEP, 99),))),
        (LIST, FILTER),
        (FILTER, LIST),
        (FILTER, replace(FILTER, epsilon=9.0)),
        (FILTER, replace(FILTER, epsilon=1.0)),
        (FILTER, replace(FILTER, delta=1e-5)),
        (FILTER, replace(FILTER, orders=((13.0, 1.0),))),
        (FILTER, Terms(rule=Rule.ODOMETER, delta=1e-6)),
        (FILTER, Terms(rule=Rule.FILTER, epsilon=3.0, delta=1e-6)),
    ],
)
def test_t02_t03_another_budget_than_the_ledgers_is_refused(present: Terms, wanted: Terms) -> None:
    with pytest.raises(dp.errors.LedgerMisuse, match="the ledger has its own"):
        decisions.first_terms(held_to(present), wanted)


# --- a run ---


def test_a_run_begins_with_the_row_that_completes_the_terms_before_it() -> None:
    assert kinds(decisions.beginning(EMPTY, began((STEP, 5)))) == [Held, Began]
    assert kinds(decisions.beginning(EMPTY, began())) == [
        Began
    ]  # nothing planned: nothing is settled yet
    assert kinds(decisions.beginning(held_to(LIST), began((STEP, 5)))) == [Began]
    open_filter = held_to(Terms(rule=Rule.FILTER, epsilon=2.0, delta=1e-6))
    completed, _ = decisions.beginning(open_filter, began((STEP, 5)))
    assert isinstance(completed, Held)
    assert completed.terms.rule is Rule.RENYI_FILTER
    assert (completed.terms.epsilon, completed.terms.delta) == (2.0, 1e-6)
    full_batch = dp.ledger.Step(dp.Everything(), dp.ledger.GaussianSum("grad", 1.0, 20.0))
    completed, _ = decisions.beginning(open_filter, began((full_batch, 5)))
    assert isinstance(completed, Held)
    assert completed.terms.rule is Rule.GAUSSIAN_FILTER


def test_an_odometer_is_completed_with_levels_and_orders_whose_shares_are_the_whole() -> None:
    completed, _ = decisions.beginning(
        held_to(Terms(rule=Rule.ODOMETER, delta=1e-6)), began((STEP, 100))
    )
    assert isinstance(completed, Held)
    terms = completed.terms
    assert terms.planned == ((STEP, 100),)
    assert sum(share for _, share in (*terms.levels, *terms.orders)) == 1.0
    assert dict(terms.levels)[1] == 0.5
    assert all(order > 1.0 for order, _ in terms.orders)


@pytest.mark.parametrize(
    ("snapshot", "row", "error"),
    [
        (held_to(LIST), began((STEP, 101)), dp.errors.BudgetExceeded),
        (held_to(LIST), began((OTHER_STEP, 1)), dp.errors.BudgetExceeded),
        (held_to(LIST, RUN), began((STEP, 41)), dp.errors.BudgetExceeded),
        (held_to(FILTER), began((STEP, 10**9)), dp.errors.BudgetExceeded),
        (held_to(LIST, RUN), began(continues=3), dp.errors.ParameterError),
        (held_to(LIST, replace(RUN, reason="fire")), began(continues=2), dp.errors.ParameterError),
        (
            held_to(LIST, RUN, RunRecord(number=3, info=INFO, continues=2)),
            began(continues=2),
            dp.errors.ParameterError,
        ),
        (
            EMPTY,
            began(info=replace(INFO, parameters=dp.units.Parameters.CHOSEN_FROM_OUTPUTS)),
            dp.errors.LedgerMisuse,
        ),
        (
            held_to(LIST),
            began(info=replace(INFO, parameters=dp.units.Parameters.CHOSEN_FROM_OUTPUTS)),
            dp.errors.LedgerMisuse,
        ),
        (
            held_to(FILTER, RUN),
            began(info=replace(INFO, unit=dp.Unit.USER)),
            dp.errors.LedgerMisuse,
        ),
        (
            held_to(FILTER, RUN),
            began(info=replace(INFO, adjacency=dp.Adjacency.ZERO_OUT)),
            dp.errors.LedgerMisuse,
        ),
    ],
)
def test_what_the_terms_do_not_admit_does_not_begin(
    snapshot: Snapshot, row: Began, error: type[Exception]
) -> None:
    with pytest.raises(error):
        decisions.beginning(snapshot, row)


def test_how_many_steps_fit_is_the_last_number_that_begins() -> None:
    for snapshot in (held_to(LIST, RUN), held_to(FILTER)):
        most = decisions.fitting(snapshot, began((STEP, 10**6)))
        decisions.beginning(snapshot, began((STEP, most)))
        with pytest.raises(dp.errors.BudgetExceeded):
            decisions.beginning(snapshot, began((STEP, most + 1)))
    assert decisions.fitting(held_to(LIST, RUN), began((STEP, 10))) == 10
    assert decisions.fitting(held_to(LIST, RUN), began((OTHER_STEP, 10))) == 0


# --- a reservation ---


def test_within_the_commitment_nothing_is_asked_and_beyond_it_the_terms_are() -> None:
    two = (
        RUN,
        RunRecord(number=3, info=INFO, planned=((STEP, 40),)),
    )  # the list is promised in full
    assert kinds(decisions.reservation(held_to(LIST, *two), Reserved(2, STEP, 40), STEP)) == [
        Reserved
    ]
    with pytest.raises(dp.errors.BudgetExceeded):
        decisions.reservation(held_to(LIST, *two), Reserved(2, STEP, 41), STEP)
    assert kinds(decisions.reservation(held_to(LIST, RUN), Reserved(2, STEP, 80), STEP)) == [
        Reserved
    ]
    with pytest.raises(dp.errors.BudgetExceeded):
        decisions.reservation(held_to(LIST, RUN), Reserved(2, STEP, 81), STEP)
    with pytest.raises(dp.errors.BudgetExceeded):
        decisions.reservation(held_to(FILTER, RUN), Reserved(2, STEP, 10**9), STEP)


def test_a_reservation_without_terms_settles_them_first() -> None:
    snapshot = Snapshot(runs=(RunRecord(number=1, info=INFO),), schema=2)
    held, reserved = decisions.reservation(snapshot, Reserved(1, STEP, 32), STEP)
    assert isinstance(held, Held)
    assert held.terms == Terms(rule=Rule.LIST, planned=((STEP, 32),))
    assert isinstance(reserved, Reserved)


@pytest.mark.parametrize(
    "decide",
    [
        lambda snapshot: decisions.reservation(snapshot, Reserved(9, STEP, 1), STEP),
        lambda snapshot: decisions.reservation(snapshot, Reserved(3, STEP, 1), STEP),
        lambda snapshot: decisions.marking(snapshot, Marked(9, "unsafe_thing")),
        lambda snapshot: decisions.ending(snapshot, Ended(9, "")),
        lambda snapshot: decisions.ending(snapshot, Ended(4, "again")),
        lambda snapshot: decisions.ending(snapshot, Ended(5, "continued")),
    ],
)
def test_a_run_that_is_over_or_never_was_is_refused(
    decide: Callable[[Snapshot], list[Row]],
) -> None:
    runs = (
        RUN,
        RunRecord(number=3, info=INFO, over=True),
        RunRecord(number=4, info=INFO, over=True, reason="fire"),
        RunRecord(number=5, info=INFO, over=True, planned=((STEP, 1),)),
        RunRecord(number=6, info=INFO, continues=5),
    )
    with pytest.raises(dp.errors.LedgerMisuse):
        decide(held_to(LIST, *runs))


def test_a_run_that_is_over_ends_no_more() -> None:
    snapshot = held_to(LIST, RUN, RunRecord(number=3, info=INFO, over=True))
    assert decisions.ending(snapshot, Ended(3, "")) == []
    assert decisions.ending(snapshot, Ended(3, "nothing is left to be freed")) == []


def test_a_reason_is_added_to_an_end_without_one() -> None:
    snapshot = held_to(LIST, replace(RUN, over=True))
    assert decisions.ending(snapshot, Ended(2, "power failure")) == [Ended(2, "power failure")]
    assert decisions.marking(snapshot, Marked(2, "unsafe_thing")) == [Marked(2, "unsafe_thing")]


# --- changes ---


def test_another_budget_is_a_row_with_its_reason() -> None:
    for epsilon in (3.5, 5.0):
        (row,) = decisions.another_budget(held_to(FILTER, RUN), epsilon, None, "a further run")
        assert isinstance(row, Held)
        assert (row.terms, row.reason) == (replace(FILTER, epsilon=epsilon), "a further run")
    (row,) = decisions.another_budget(held_to(LIST, RUN), 3.0, 1e-6, "the officer asks for one")
    assert isinstance(row, Held)
    assert row.terms == replace(LIST, epsilon=3.0, delta=1e-6)


@pytest.mark.parametrize(
    ("snapshot", "epsilon", "delta", "error"),
    [
        (EMPTY, 1.0, 1e-6, dp.errors.LedgerMisuse),
        (
            held_to(Terms(rule=Rule.GAUSSIAN_FILTER, epsilon=2.0, delta=1e-6)),
            2.1,
            None,
            dp.errors.LedgerMisuse,
        ),
        (held_to(FILTER, RUN), 4.0, 1e-5, dp.errors.ParameterError),
        (held_to(FILTER, RUN), 1.5431, None, dp.errors.BudgetExceeded),
        (
            held_to(FILTER, RUN),
            0.01,
            None,
            dp.errors.BudgetExceeded,
        ),  # for which the order allows nothing at all
        (held_to(LIST, RUN), 0.01, 1e-6, dp.errors.BudgetExceeded),
        (held_to(LIST, RUN), 3.0, None, dp.errors.ParameterError),  # a budget without a delta
        (held_to(replace(LIST, epsilon=3.0, delta=1e-6), RUN), 4.0, 1e-5, dp.errors.ParameterError),
    ],
)
def test_a_budget_that_cannot_be_changed_stays(
    snapshot: Snapshot, epsilon: float, delta: float | None, error: type[Exception]
) -> None:
    with pytest.raises(error):
        decisions.another_budget(snapshot, epsilon, delta, "by looking")


def test_a_longer_list_is_a_row_and_only_a_list_has_one() -> None:
    (row,) = decisions.longer_list(
        held_to(LIST, RUN), ((STEP, 5), (OTHER_STEP, 1)), "power failure"
    )
    assert isinstance(row, Held)
    assert row.terms.planned == ((STEP, 105), (OTHER_STEP, 1))
    for snapshot in (EMPTY, held_to(Terms(rule=Rule.LIST)), held_to(FILTER)):
        with pytest.raises(dp.errors.LedgerMisuse):
            decisions.longer_list(snapshot, ((STEP, 5),), "power failure")
