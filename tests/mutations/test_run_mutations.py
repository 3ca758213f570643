"""Deliberate bugs of runs that are resumed, budgeted or logged, and the test that notices each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import default_collate

import discreet as dp
from discreet.accounting import LiveEpsilon, sources
from discreet.aggregation import session
from discreet.aggregation.release import Release
from discreet.ledger import Run, Snapshot, decisions
from discreet.ledger.run import block_size
from discreet.randomness import Source
from discreet.training import checkpoint
from discreet.training.data.loading import Loading
from support.mutations import Mutation, assert_caught, by_name, replaced

SESSIONS = "unit/aggregation/test_session.py"
CHECKPOINTS = "unit/training/test_checkpoint.py"
LOADING = "unit/training/data/test_loading.py"
LOGGED = "unit/training/shown/test_logs.py"
STOPS = "unit/training/test_early_stop.py"
BUDGETS = "end_to_end/test_budget.py"


def a_resumed_run_is_not_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Run.steps

    def wrong(self: Run, step: dp.ledger.Step, total: int, **options: Any) -> Iterator[int]:
        seen = self._ledger.snapshot().charged().get(step, 0)
        return iter(range(total)) if seen else right(self, step, total, **options)

    monkeypatch.setattr(Run, "steps", wrong)


def a_run_commits_to_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    right = dp.Ledger.begin
    monkeypatch.setattr(
        dp.Ledger, "begin", lambda self, info, _planned=(), **more: right(self, info, **more)
    )


def a_whole_block_or_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(
        self: Run, step: dp.ledger.Step, total: int, block: int | None, *, then_end: bool
    ) -> Iterator[int]:
        taken = 0
        while taken < total:
            with self.reserve(step, count=min(total - taken, block or block_size(taken))) as lease:
                while lease.left:
                    lease.take()
                    yield taken
                    taken += 1

    monkeypatch.setattr(Run, "_take", wrong)


def any_stop_is_for_a_public_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    right = dp.Ledger.end
    monkeypatch.setattr(
        dp.Ledger,
        "end",
        lambda self, run, reason="", **options: right(self, run, reason or "unknown", **options),
    )


def what_was_lost_is_taken_again_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    right = session.Session._admitted

    def wrong(
        self: session.Session, steps: int, *, until_budget: bool, lost: str, resumed: bool
    ) -> tuple[int, int | None]:
        lost = lost or "unknown"
        return right(self, steps, until_budget=until_budget, lost=lost, resumed=resumed)

    monkeypatch.setattr(session.Session, "_admitted", wrong)


def every_run_has_the_same_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Source, "system", lambda: Source.unsafe_test_key(bytes(32)))


def a_resumed_run_takes_all_steps_again(monkeypatch: pytest.MonkeyPatch) -> None:
    right = session.Session.samples
    monkeypatch.setattr(
        session.Session,
        "samples",
        lambda self, _start, state, **more: right(self, 0, state, **more),
    )


def the_adaptive_state_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    right = checkpoint.Checkpoint.read

    def wrong(path: Any) -> checkpoint.Checkpoint:
        found = right(path)
        return checkpoint.Checkpoint(
            found.plan, found.step, dict.fromkeys(found.state, 1.0), found.head, found.objects
        )

    monkeypatch.setattr(checkpoint.Checkpoint, "read", wrong)


def the_ledger_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dp.Ledger, "verify", lambda self, _head=None: self)


def anything_is_unpickled(monkeypatch: pytest.MonkeyPatch) -> None:
    right = torch.load
    wrong = lambda path, **_: right(path, weights_only=False)  # noqa: E731  (a patch)
    monkeypatch.setattr(torch, "load", wrong)


def logs_see_sums_without_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        Release, "mean", lambda self, leaf: (self.sums[leaf] / self.divisors[leaf]).round(1)
    )


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
        "T04 only what was taken counts when a run stops early",
        replaced(Snapshot, "counted", lambda self: tuple(self.charged().items())),
        f"{STOPS}::test_however_a_loop_ends_the_whole_plan_counts_and_the_guarantee_says_so[break]",
    ),
    Mutation(
        "T04 a run commits to nothing before its first step",
        a_run_commits_to_nothing,
        f"{STOPS}::test_however_a_loop_ends_the_whole_plan_counts_and_the_guarantee_says_so[Ctrl-C]",
    ),
    Mutation(
        "T04 any stop is taken for one with a public reason",
        any_stop_is_for_a_public_reason,
        f"{STOPS}::test_however_a_loop_ends_the_whole_plan_counts_and_the_guarantee_says_so[exception]",
    ),
    Mutation(
        "T04 a public reason is not named",
        replaced(sources, "_declared", lambda _: iter(())),
        f"{STOPS}::test_for_a_public_reason_the_steps_that_were_taken_count_and_the_reason_is_named[break]",
    ),
    Mutation(
        "T04 steps that a crash lost are taken again without a reason",
        what_was_lost_is_taken_again_without_a_word,
        f"{STOPS}::test_a_resumed_run_that_no_longer_fits_its_list_is_refused_and_nothing_is_charged",
    ),
    Mutation(
        "P38 the budget is asked too late",
        replaced(decisions, "_admit", lambda _: None),
        f"{SESSIONS}::test_p38_a_plan_that_does_not_fit_is_refused_before_anything_is_charged",
    ),
    Mutation(
        "P38 a whole block or nothing",
        a_whole_block_or_nothing,
        f"{BUDGETS}::test_p38_a_run_that_planned_nothing_takes_all_that_fits_in_blocks_that_do_not",
    ),
]


@by_name(MUTATIONS)
def test_the_bug_is_caught(mutation: Mutation, tmp_path: Path) -> None:
    assert_caught(mutation, tmp_path)
