"""P43: wrong estimators, made by patching the right ones, state more than is true; the same checks of coverage catch them."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import discreet.auditing  # noqa: F401  (its modules are found by name)
from discreet.canaries import Scores
from support.mutations import Mutation, assert_caught, by_name, replaced

ESTIMATORS = "statistics/test_estimators.py"
LEAKS = "statistics/test_leaks.py"
ONE_RUN = "unit/auditing/test_one_run.py"


def module(name: str) -> ModuleType:
    """Functions have the names of their modules, so that importing finds the function."""
    return sys.modules[f"discreet.auditing.{name}"]


def best_number_of_guesses(monkeypatch: pytest.MonkeyPatch) -> None:
    right: Callable[..., Any] = module("one_run")._Ranked
    monkeypatch.setattr(module("one_run"), "_Ranked", lambda scores, _: right(scores, 1))


def rates_for_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    def plain(successes: int, trials: int, *, error: float) -> float:
        return max(successes, 0.5) / trials

    for name in ("lowest_rate", "highest_rate"):
        monkeypatch.setattr(module("threshold"), name, plain)


def limit_fitted_to_all(scores: Scores) -> tuple[int, int]:
    limit = module("learned")._limit(scores.values, scores.inside)
    return int(np.count_nonzero((scores.values > limit) != scores.inside)), len(scores)


def no_leak(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module("one_run"), "_largest", lambda guesses, *_: np.zeros(guesses.size))


def delta_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    right: Callable[..., float] = module("threshold")._measured
    monkeypatch.setattr(
        module("threshold"), "_measured", lambda half, limit, way, _, share: right(half, limit, way, 0.0, share)
    )


MUTATIONS = [
    Mutation(
        "P43 one run: the best number of guesses, not corrected",
        best_number_of_guesses,
        f"{ESTIMATORS}::test_one_run_keeps_its_confidence",
    ),
    Mutation(
        "P43 one run: delta taken as 0",
        no_leak,
        f"{ONE_RUN}::test_p43_no_mechanism_betrays_more_than_the_bound[0.2-0.5-3-3]",
    ),
    Mutation(
        "P43 one run: delta taken as 0, seen in a leak", no_leak, f"{LEAKS}::test_p43_a_leak_within_delta_refutes_nothing"
    ),
    Mutation("P43 threshold: rates for bounds", rates_for_bounds, f"{ESTIMATORS}::test_threshold_keeps_its_confidence"),
    Mutation("P43 threshold: delta taken as 0", delta_ignored, f"{ESTIMATORS}::test_threshold_keeps_its_confidence"),
    Mutation(
        "P43 threshold: canaries of one run taken for independent",
        replaced(Scores, "independent", True),
        "unit/auditing/test_threshold_and_hits.py::test_p43_canaries_that_share_a_run_are_refused",
    ),
    Mutation(
        "P43 threshold: a run that betrays all or nothing is counted canary by canary",
        replaced(Scores, "independent", True),
        f"{LEAKS}::test_p43_a_run_that_betrays_all_or_nothing_is_one_observation",
    ),
    Mutation(
        "P43 scaled: the limit is fitted to the canaries that it judges",
        replaced(module("scaled"), "wrong_guesses", limit_fitted_to_all),
        f"{ESTIMATORS}::test_gaussian_noise_keeps_its_confidence",
    ),
    Mutation(
        "one run: members listed first pass for coins",
        replaced(module("one_run"), "checked_coins", lambda _, scores: scores),
        f"{ONE_RUN}::test_what_is_no_coin_is_refused[listed first]",
    ),
]


@by_name(MUTATIONS)
def test_the_bug_is_caught(mutation: Mutation, tmp_path: Path) -> None:
    assert_caught(mutation, tmp_path)
