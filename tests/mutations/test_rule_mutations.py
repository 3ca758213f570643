"""Deliberate bugs in the rules of lists, filters and odometers, each caught by the analyst who
looks before every decision.
"""

from pathlib import Path
from typing import Any

import pytest

from discreet import budget
from discreet.accounting import accountant, odometer
from discreet.accounting.tight import tight_epsilon
from discreet.ledger import Snapshot, Terms
from support.mutations import Mutation, assert_caught, by_name, replaced

GAME = "laws/test_analyst.py"
EQUAL_RUNS = f"{GAME}::test_equal_runs_stay_within_what_an_odometer_claims"


def nothing_is_refused(self: Snapshot) -> None:
    """A second run may be charged to a list, which counts what was charged."""


def only_what_was_taken(self: Snapshot) -> Any:
    return tuple(self.charged().items())


def full_delta_for_every_level(terms: Terms, charged: Any) -> Any:
    level = RIGHT_LEVEL(terms, charged)
    return None if level is None else (level[0], 1.0)


def full_delta_for_every_order(leaves: Any, orders: Any, delta: float) -> float:
    return min(RIGHT_MIXTURE(leaves, [(order, 1.0)], delta) for order, _ in orders)


class WhateverFits:
    """In the place of a filter: the tight accountant, asked anew with every proposal."""

    name = "whatever fits"

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self.delta = terms.delta

    def spend(self, leaves: Any) -> None:
        delta, epsilon = self._terms.delta or 0.0, self._terms.epsilon or 0.0
        budget._refuse_above(epsilon, delta, tight_epsilon(leaves, delta, 1e-3).upper, self.name)


def whatever_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "filter_of", WhateverFits)
    monkeypatch.setattr(accountant, "filter_of", WhateverFits)


RIGHT_LEVEL = odometer._level
RIGHT_MIXTURE = odometer.mixture_epsilon

MUTATIONS = [
    Mutation(
        "T01 a list admits what the tight accountant admits",
        replaced(Snapshot, "check_list", nothing_is_refused),
        f"{GAME}::test_a_list_is_for_what_was_fixed_in_advance",
    ),
    Mutation(
        "T01 a filter that looks for whatever rule still fits",
        whatever_fits,
        f"{GAME}::test_a_filter_is_fixed_before_the_first_release",
    ),
    Mutation(
        "T01 every level of an odometer has all of delta",
        replaced(odometer, "_level", full_delta_for_every_level),
        EQUAL_RUNS,
    ),
    Mutation(
        "T01 every order of an odometer has all of delta",
        replaced(odometer, "mixture_epsilon", full_delta_for_every_order),
        f"{GAME}::test_a_mixture_of_orders_is_more_than_the_best_of_them",
    ),
    Mutation(
        "T04 the analyst pays for the steps taken only",
        replaced(Snapshot, "counted", only_what_was_taken),
        f"{GAME}::test_a_run_that_was_stopped_by_what_it_showed_costs_more_than_the_steps_it_took",
    ),
]


@by_name(MUTATIONS)
def test_the_bug_is_caught(mutation: Mutation, tmp_path: Path) -> None:
    assert_caught(mutation, tmp_path)
