"""P43: wrong estimators, made by patching the right ones, state more than is true; the same checks
of coverage catch them.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from discreet import _strict_json
from discreet.canaries import Scores
from support.mutations import Mutation, assert_caught, by_name, replaced


def module(name: str) -> ModuleType:
    """Functions have the names of their modules, so that importing finds the function."""
    return sys.modules[f"discreet.auditing.estimators.{name}"]


def best_number_of_guesses(monkeypatch: pytest.MonkeyPatch) -> None:
    right: Callable[..., Any] = module("one_run")._Ranked
    monkeypatch.setattr(module("one_run"), "_Ranked", lambda scores, _: right(scores, 1))


def rates_for_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    def plain(successes: int, trials: int, *, error: float) -> float:
        return max(successes, 0.5) / trials

    for name in ("lowest_rate", "highest_rate"):
        monkeypatch.setattr(module("threshold"), name, plain)


def limit_fitted_to_all(scores: Scores) -> tuple[int, int]:
    limit = module("guesses")._limit(scores.values, scores.inside)
    return int(np.count_nonzero((scores.values > limit) != scores.inside)), len(scores)


def no_leak(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module("one_run"), "_largest", lambda guesses, *_: np.zeros(guesses.size))


def delta_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    right: Callable[..., float] = module("threshold")._measured
    monkeypatch.setattr(
        module("threshold"),
        "_measured",
        lambda half, limit, way, _, share: right(half, limit, way, 0.0, share),
    )


STATISTICS, UNIT = "statistics/test_estimators.py", "unit/auditing/estimators"


MUTATIONS = [
    Mutation(
        "P43 one run: the best number of guesses, not corrected",
        best_number_of_guesses,
        f"{STATISTICS}::test_p43_one_run_covers_randomised_response",
    ),
    Mutation(
        "P43 one run: delta taken as 0", no_leak, f"{STATISTICS}::test_p43_one_run_covers_a_leak"
    ),
    Mutation(
        "P43 one run: delta taken as 0, against the worst mechanism",
        no_leak,
        f"{UNIT}/test_one_run.py::test_p43_no_mechanism_betrays_more_than_the_bound",
    ),
    Mutation(
        "P43 threshold: rates for bounds",
        rates_for_bounds,
        f"{STATISTICS}::test_p43_threshold_covers_randomised_response",
    ),
    Mutation(
        "P43 threshold: delta taken as 0",
        delta_ignored,
        f"{STATISTICS}::test_p43_threshold_covers_a_leak",
    ),
    Mutation(
        "P43 threshold: canaries of one run taken for independent",
        replaced(Scores, "independent", True),
        f"{STATISTICS}::test_p43_canaries_of_one_run_are_not_taken_for_independent",
    ),
    Mutation(
        "P43 threshold: shared runs not refused",
        replaced(Scores, "independent", True),
        f"{UNIT}/test_threshold.py::test_p43_canaries_that_share_a_run_are_refused",
    ),
    Mutation(
        "P43 scaled: the limit is fitted to the canaries that it judges",
        replaced(module("scaled"), "wrong_guesses", limit_fitted_to_all),
        f"{STATISTICS}::test_p43_scores_that_say_nothing_bound_nothing",
    ),
    Mutation(
        "P45 scores: of a key given twice, the second wins",
        replaced(_strict_json, "_DECODER", json.JSONDecoder()),
        "unit/canaries/test_scores.py::test_p45_a_key_given_twice_is_refused",
    ),
    Mutation(
        "one run: members listed first pass for coins",
        replaced(module("one_run"), "checked_coins", lambda _, scores: scores),
        f"{UNIT}/test_one_run.py::test_what_is_no_coin_is_refused[listed first]",
    ),
    Mutation(
        "P43 one run: coins that served in two runs pass",
        replaced(module("guesses"), "_refuse_repeated", lambda *_: None),
        f"{UNIT}/test_one_run.py::test_p43_coins_that_served_in_two_runs_are_refused[one_run]",
    ),
]


@by_name(MUTATIONS)
def test_the_bug_is_caught(mutation: Mutation, tmp_path: Path) -> None:
    assert_caught(mutation, tmp_path)
