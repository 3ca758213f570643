"""What a book refuses although the chain is whole, and what it reads."""

from dataclasses import replace
from typing import Any

import pytest

import discreet as dp
from discreet.ledger.storage.book import Book, follow
from discreet.ledger.storage.codec import encode
from discreet.ledger.storage.rows import Began, Ended, Held, Marked, Opened, Reserved, Row, Settled
from discreet.ledger.terms import Rule, Terms
from support.examples import INFO, OTHER_STEP, STEP


def read(*rows: Row) -> Book:
    book = Book()
    for row in rows:
        body = encode(row)
        book.read(body, follow(book.digest, body))
    return book


OPENED, BEGAN = Opened("id", "now"), Began(INFO, (), "now")
LIST = Terms(rule=Rule.LIST, planned=((STEP, 2),))
HELD = Held(LIST, "", "now")
PLANNED = Began(INFO, (), "now", ((STEP, 2),))
FILTER = Terms(rule=Rule.GAUSSIAN_FILTER, epsilon=2.0, delta=1e-6)
UNSETTLED = Held(Terms(rule=Rule.FILTER, epsilon=2.0, delta=1e-6), "", "now")
ODOMETER = Terms(
    rule=Rule.ODOMETER,
    epsilon=5.0,
    delta=1e-6,
    planned=((STEP, 2),),
    levels=((1, 0.5),),
    orders=((9.0, 0.25), (20.0, 0.25)),
)
ELSEWHERE = dp.ledger.Step(dp.Everything(), dp.ledger.GaussianSum("x", 1, 1))


def after(terms: Terms, reason: str, **changes: Any) -> Held:
    return Held(replace(terms, **changes), reason, "now")


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([BEGAN], "opens the ledger first"),
        ([OPENED, OPENED], "only there"),
        ([OPENED, Reserved(1, STEP, 1)], "a run that began"),
        ([OPENED, HELD, BEGAN, Reserved(2, 2, 1)], "spells out a step"),
        ([OPENED, HELD, BEGAN, Reserved(2, ELSEWHERE, 1)], "groups that run 2 declared"),
        ([OPENED, HELD, BEGAN, Settled(2, 0)], "not settled yet"),
        ([OPENED, HELD, BEGAN, Reserved(2, STEP, 2), Settled(3, 3)], "at most the 2 steps"),
        (
            [OPENED, HELD, BEGAN, Reserved(2, STEP, 2), Settled(3, 1), Settled(3, 0)],
            "not settled yet",
        ),
        ([OPENED, BEGAN, Reserved(1, STEP, 1)], "terms that were complete before the first charge"),
        (
            [OPENED, UNSETTLED, BEGAN, Reserved(2, STEP, 1)],
            "terms that were complete before the first charge",
        ),
        ([OPENED, HELD, BEGAN, Reserved(2, STEP, 3)], "the list that was fixed"),
        ([OPENED, HELD, BEGAN, Reserved(2, OTHER_STEP, 1)], "the list that was fixed"),
        ([OPENED, HELD, PLANNED, BEGAN, Reserved(3, STEP, 1)], "the list that was fixed"),
        ([OPENED, HELD, PLANNED, PLANNED], "the list that was fixed"),
        ([OPENED, HELD, Began(INFO, (), "now", ((STEP, 3),))], "the list that was fixed"),
        ([OPENED, HELD, Began(INFO, (), "now", (), 7)], "a run that began"),
        (
            [OPENED, HELD, BEGAN, Began(INFO, (), "now", (), 2), Began(INFO, (), "now", (), 2)],
            "nobody continued yet",
        ),
        (
            [OPENED, HELD, BEGAN, Began(INFO, (), "now", (), 2), Reserved(2, STEP, 1)],
            "a run that is not over",
        ),
        ([OPENED, HELD, BEGAN, Ended(2, ""), Reserved(2, STEP, 1)], "a run that is not over"),
        ([OPENED, HELD, BEGAN, Ended(2, ""), Ended(2, "")], "a run that is not over"),
        ([OPENED, HELD, BEGAN, Ended(2, "fire"), Ended(2, "flood")], "a run that is not over"),
        (
            [OPENED, HELD, BEGAN, Began(INFO, (), "now", (), 2), Ended(2, "fire")],
            "a run that is not over",
        ),
        ([OPENED, HELD, Ended(2, "")], "a run that began"),
        ([OPENED, HELD, Marked(2, "unsafe_thing")], "a run that began"),
        ([OPENED, HELD, after(LIST, "fewer", planned=((STEP, 1),))], "a list that only grows"),
        ([OPENED, HELD, after(LIST, "", planned=((STEP, 3),))], "a list that only grows"),
        (
            [OPENED, HELD, after(LIST, "", epsilon=1.0, delta=1e-6)],
            "a reason for a budget that changes",
        ),
        ([OPENED, HELD, after(FILTER, "by looking")], "the rule 'list'"),
        ([OPENED, after(FILTER, ""), HELD], "the rule 'gaussian-filter'"),
        ([OPENED, UNSETTLED, after(ODOMETER, "by looking")], "the rule 'filter'"),
        ([OPENED, UNSETTLED, after(FILTER, "", epsilon=3.0)], "a reason for a budget that changes"),
        ([OPENED, UNSETTLED, after(FILTER, "by looking", delta=1e-5)], "the delta"),
        ([OPENED, after(FILTER, ""), after(FILTER, "by looking", delta=1e-5)], "the delta"),
        (
            [OPENED, after(FILTER, ""), after(FILTER, "by looking", epsilon=3.0)],
            "whose budget is not raised",
        ),
        ([OPENED, after(ODOMETER, ""), after(ODOMETER, "no limit", epsilon=None)], "a number"),
        (
            [OPENED, after(ODOMETER, ""), after(ODOMETER, "x", levels=((1, 0.25),))],
            "the levels and orders",
        ),
        (
            [OPENED, after(ODOMETER, ""), after(ODOMETER, "x", orders=((9.0, 0.5),))],
            "the levels and orders",
        ),
        (
            [OPENED, after(ODOMETER, ""), after(ODOMETER, "x", planned=((STEP, 9),))],
            "a list that only grows",
        ),
    ],
)
def test_a_row_must_make_sense_after_those_before_it(rows: list[Row], reason: str) -> None:
    with pytest.raises(dp.errors.LedgerCorrupt, match=reason) as caught:
        read(*rows)
    assert caught.value.row == len(rows) - 1


@pytest.mark.parametrize(
    "rows",
    [
        [UNSETTLED, after(FILTER, "")],
        [UNSETTLED, after(UNSETTLED.terms, "before the first run", epsilon=9.0)],
        [after(FILTER, ""), after(FILTER, "less is enough", epsilon=1.0)],
        [HELD, after(LIST, "power failure", planned=((STEP, 3), (OTHER_STEP, 1)))],
        [HELD, after(LIST, "the officer asks for one", epsilon=1.0, delta=1e-6)],
        [after(ODOMETER, ""), after(ODOMETER, "more is needed", epsilon=6.0)],
        [HELD, BEGAN, Ended(2, ""), Ended(2, "power failure")],
        [HELD, PLANNED, Ended(2, ""), PLANNED],
        [HELD, PLANNED, Began(INFO, (), "now", ((STEP, 2),), 2)],
    ],
)
def test_what_may_change_is_read(rows: list[Row]) -> None:
    assert read(OPENED, *rows).snapshot().schema == 2
