"""A plan for people: it and its neighbours, each accounted for."""

import discreet as dp
from discreet.cli.views.plan_view import _nearby
from support.command import PLAN

DELTA = 1e-6


def test_neighbours_are_the_plan_with_one_number_halved_or_doubled() -> None:
    found = {change.change: change.epsilon for change in _nearby(PLAN, DELTA)}
    assert next(iter(found)) == "as planned"
    here = found["as planned"]
    assert here == dp.account(PLAN, delta=DELTA).upper
    for more, less in (("batch", "noise"), ("steps", "noise")):
        assert found[f"twice the {more}"] > here
        assert found[f"half the {more}"] < here
        assert found[f"twice the {less}"] < here
