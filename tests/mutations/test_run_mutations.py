"""Deliberate bugs of runs that are resumed, budgeted or logged, and the test that notices each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import default_collate

import discreet as dp
from discreet.accounting import LiveEpsilon
from discreet.aggregation import session
from discreet.aggregation.release import Release
from discreet.randomness import Source
from discreet.training import checkpoint
from discreet.training.loading import Loading
from support.mutations import Mutation, assert_caught, by_name, replaced

SESSIONS = "unit/aggregation/test_session.py"
CHECKPOINTS = "unit/training/test_checkpoint.py"
LOADING = "unit/training/test_loading.py"
LOGGED = "unit/training/test_logs.py"


def a_resumed_run_is_not_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    right = dp.Ledger.steps

    def wrong(self: dp.Ledger, step: dp.Step, total: int, *, block: int | None = None) -> Iterator[int]:
        seen = sum(charge.count for charge in self.charges() if charge.step == step)
        return iter(range(total)) if seen else right(self, step, total, block=block)

    monkeypatch.setattr(dp.Ledger, "steps", wrong)


def every_run_has_the_same_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Source, "system", lambda: Source.unsafe_test_key(bytes(32)))


def a_resumed_run_takes_all_steps_again(monkeypatch: pytest.MonkeyPatch) -> None:
    right = session.Session.samples
    monkeypatch.setattr(session.Session, "samples", lambda self, _start, state, **more: right(self, 0, state, **more))


def the_adaptive_state_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    right = checkpoint.Checkpoint.read

    def wrong(path: Any) -> checkpoint.Checkpoint:
        found = right(path)
        return checkpoint.Checkpoint(found.plan, found.step, dict.fromkeys(found.state, 1.0), found.head, found.objects)

    monkeypatch.setattr(checkpoint.Checkpoint, "read", wrong)


def the_ledger_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dp.Ledger, "verify", lambda self, _head=None: self)


def anything_is_unpickled(monkeypatch: pytest.MonkeyPatch) -> None:
    right = torch.load
    wrong = lambda path, **_: right(path, weights_only=False)  # noqa: E731  (a patch)
    monkeypatch.setattr(torch, "load", wrong)


def logs_see_sums_without_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Release, "mean", lambda self, leaf: (self.sums[leaf] / self.divisors[leaf]).round(1))


def epsilon_of_this_run_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    right = LiveEpsilon.__init__

    def wrong(self: LiveEpsilon, *, before: Any = (), **more: Any) -> None:
        del before
        right(self, **more)

    monkeypatch.setattr(LiveEpsilon, "__init__", wrong)


MUTATIONS = [
    Mutation(
        "P41 a resumed run is not charged",
        a_resumed_run_is_not_charged,
        f"{CHECKPOINTS}::test_p41_a_branch_is_a_new_release_and_is_charged",
    ),
    Mutation(
        "P20 every run has the same key",
        every_run_has_the_same_key,
        f"{CHECKPOINTS}::test_p20_a_resumed_run_draws_other_noise_and_other_samples",
    ),
    Mutation(
        "P20 a resumed run takes all steps again",
        a_resumed_run_takes_all_steps_again,
        f"{CHECKPOINTS}::test_a_run_goes_on_where_it_was",
    ),
    Mutation(
        "P24 a resumed run forgets the threshold",
        the_adaptive_state_is_forgotten,
        f"{CHECKPOINTS}::test_a_run_goes_on_where_it_was",
    ),
    Mutation(
        "P41 any ledger will do for a resumed run",
        the_ledger_is_not_compared,
        f"{CHECKPOINTS}::test_an_older_copy_of_the_ledger_is_refused",
    ),
    Mutation(
        "P46 a checkpoint is unpickled",
        anything_is_unpickled,
        f"{CHECKPOINTS}::test_p46_a_damaged_or_hostile_file_is_refused_and_not_executed[trap]",
    ),
    Mutation(
        "P42 raw values in logs",
        logs_see_sums_without_noise,
        f"{LOGGED}::test_p42_a_log_sees_what_was_released_and_nothing_else",
    ),
    Mutation(
        "P39 earlier runs on the ledger are left out",
        epsilon_of_this_run_alone,
        f"{LOGGED}::test_epsilon_in_logs_is_never_below_the_truth_and_ends_at_it",
    ),
    Mutation(
        "P30 a loader's own sampler is discarded",
        replaced(Loading, "of", lambda source, **_: Loading(source.dataset, default_collate)),
        f"{LOADING}::test_p30_a_loader_with_a_sampler_of_its_own_is_refused[subset]",
    ),
    Mutation(
        "P38 the budget is asked too late",
        replaced(session, "_affordable", lambda ledger, planned: planned.count),
        f"{SESSIONS}::test_p38_a_plan_that_does_not_fit_is_refused_before_anything_is_charged",
    ),
    Mutation(
        "P38 a whole block or nothing",
        replaced(dp.Ledger, "_reserve_part", dp.Ledger._reserve),
        f"{SESSIONS}::test_p38_until_budget_ends_with_the_last_step_that_fits",
    ),
]


@by_name(MUTATIONS)
def test_the_bug_is_caught(mutation: Mutation, tmp_path: Path) -> None:
    assert_caught(mutation, tmp_path)
