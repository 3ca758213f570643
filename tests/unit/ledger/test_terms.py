"""Terms: what each rule takes, shares that never exceed the whole, plans in which every kind stands
once.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import discreet as dp
from discreet.ledger.terms import Rule, Terms, planned_steps
from support.examples import OTHER_STEP, STEP

LIST = Terms(rule=Rule.LIST)
FILTER = Terms(rule=Rule.FILTER, epsilon=2.0, delta=1e-6)
RENYI = Terms(rule=Rule.RENYI_FILTER, epsilon=2.0, delta=1e-6, orders=((12.0, 1.0),))
GAUSSIAN = Terms(rule=Rule.GAUSSIAN_FILTER, epsilon=2.0, delta=1e-6)
ODOMETER = Terms(rule=Rule.ODOMETER, delta=1e-6)
READY = Terms(
    rule=Rule.ODOMETER,
    delta=1e-6,
    planned=((STEP, 5),),
    levels=((1, 0.5), (2, 0.25)),
    orders=((4.0, 0.125), (9.0, 0.125)),
)


def test_what_is_left_to_the_first_run_is_not_complete() -> None:
    assert [terms.complete for terms in (LIST, FILTER, ODOMETER)] == [False, False, False]
    assert [terms.complete for terms in (RENYI, GAUSSIAN, READY)] == [True, True, True]
    assert replace(LIST, planned=((STEP, 1),)).complete


def test_which_rules_are_filters() -> None:
    filters = {rule for rule in Rule if rule.is_filter}
    assert filters == {Rule.FILTER, Rule.RENYI_FILTER, Rule.GAUSSIAN_FILTER}


@pytest.mark.parametrize(
    ("terms", "changes"),
    [
        (LIST, {"rule": "list"}),
        (LIST, {"rule": None}),
        (LIST, {"epsilon": 1.0}),  # a budget without a delta
        (LIST, {"epsilon": 0.0, "delta": 1e-6}),
        (LIST, {"epsilon": float("inf"), "delta": 1e-6}),
        (LIST, {"epsilon": True, "delta": 1e-6}),
        (LIST, {"epsilon": 1.0, "delta": 1.0}),
        (LIST, {"epsilon": 1.0, "delta": 0.0}),
        (LIST, {"levels": ((1, 0.5),)}),
        (LIST, {"orders": ((2.0, 1.0),)}),
        (LIST, {"planned": ((STEP, 0),)}),
        (LIST, {"planned": ((STEP, 1.5),)}),
        (LIST, {"planned": (STEP,)}),
        (LIST, {"planned": (("step", 1),)}),
        (FILTER, {"epsilon": None}),
        (FILTER, {"delta": None}),
        (FILTER, {"orders": ((2.0, 1.0),)}),
        (FILTER, {"planned": ((STEP, 1),)}),
        (RENYI, {"orders": ()}),
        (RENYI, {"orders": ((2.0, 0.5), (3.0, 0.5))}),
        (RENYI, {"orders": ((1.0, 1.0),)}),
        (RENYI, {"orders": ((2.0, 1.5),)}),
        (RENYI, {"orders": ((2.0, 0.0),)}),
        (RENYI, {"orders": ((float("nan"), 1.0),)}),
        (RENYI, {"orders": [(2.0, 1.0)]}),
        (RENYI, {"orders": (2.0,)}),
        (RENYI, {"planned": ((STEP, 1),)}),
        (GAUSSIAN, {"orders": ((2.0, 1.0),)}),
        (ODOMETER, {"delta": None}),
        (ODOMETER, {"levels": ((1, 0.5),)}),
        (READY, {"planned": ()}),
        (READY, {"orders": ()}),
        (READY, {"levels": ()}),
        (READY, {"levels": ((0, 0.5), (2, 0.25))}),
        (READY, {"levels": ((1, 0.5), (2, 0.2500001))}),
        (READY, {"orders": ((4.0, 0.125), (9.0, 0.1250001))}),
    ],
)
def test_what_a_rule_does_not_take_is_refused(terms: Terms, changes: dict[str, Any]) -> None:
    with pytest.raises(dp.errors.ParameterError):
        replace(terms, **changes)


def test_t01_shares_of_all_rules_that_may_be_used_add_up_to_one_at_most_exactly() -> None:
    """In fractions, not in floats: three tenths and seven tenths of delta, as floats, are more than
    the whole.
    """
    with pytest.raises(dp.errors.ParameterError, match="add up to at most 1"):
        replace(READY, levels=((1, 0.5),), orders=((4.0, 0.25), (9.0, 0.25000000000000006)))
    assert replace(READY, levels=((1, 0.5),), orders=((4.0, 0.25), (9.0, 0.25))).complete


def test_planned_steps_have_every_kind_once_in_the_order_they_came() -> None:
    assert planned_steps("x", [(OTHER_STEP, 1), (STEP, 2), (OTHER_STEP, 3)]) == (
        (OTHER_STEP, 4),
        (STEP, 2),
    )
    assert planned_steps("x", ()) == ()
    with pytest.raises(dp.errors.ParameterError, match="parameter of x must be"):
        planned_steps("x", [(STEP, 1, 2)])  # type: ignore[list-item]
