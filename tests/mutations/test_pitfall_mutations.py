"""Deliberate bugs of whole runs, each applied to the real code, and the test of its pitfall that catches it."""

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
from torch import nn

import discreet as dp
from discreet.randomness import Source
from discreet.training import PrivateRun, checkpoint, loading
from discreet.training.logs import Logged
from laws import test_pitfalls_run as laws
from support.mutations import Check, Mutation, assert_caught, by_name, replaced
from unit.training.test_run import KEY


def in_a_folder(check: Callable[[Path], None]) -> Check:
    def run() -> None:
        with TemporaryDirectory() as folder:
            check(Path(folder))

    return run


def same_key_for_all() -> Source:
    return Source.unsafe_test_key(KEY)


right_backward = PrivateRun.backward
right_state = nn.Module.state_dict


def hook_left_behind(self: PrivateRun, loss: Any, batch: Any) -> Any:
    self._model.register_forward_hook(lambda *_: None)
    return right_backward(self, loss, batch)


def key_beside_the_weights(self: nn.Module, *given: Any, **named: Any) -> Any:
    return {**right_state(self, *given, **named), "key": torch.tensor(list(KEY), dtype=torch.uint8)}


def rounded_for_the_screen(release: Any, *, leaves: Any, clip_norms: Any, epsilon: Any) -> Logged:
    """A log that is given other numbers than those released."""
    means = {leaf: release.mean(leaf).round(1) for leaf in leaves}
    return Logged(release.step + 1, release.batch, means, {}, clip_norms, epsilon)


MUTATIONS = [
    Mutation(
        "P18 the key is saved with the weights",
        replaced(nn.Module, "state_dict", key_beside_the_weights),
        in_a_folder(laws.test_p18_no_key_is_in_a_checkpoint),
    ),
    Mutation(
        "P20 every run has the same key",
        replaced(Source, "system", same_key_for_all),
        in_a_folder(laws.test_p20_two_runs_from_one_checkpoint_share_no_noise_and_both_are_charged),
    ),
    Mutation(
        "P30 a loader's own sampler is ignored",
        replaced(loading, "_refuse_its_own_sampling", lambda *_: None),
        laws.test_p30_a_loader_with_a_sampler_of_its_own_is_refused,
    ),
    Mutation(
        "P41 the plan is charged and not the run",
        replaced(dp.Lease, "settle", lambda self: None),
        lambda: laws.test_p41_what_ran_is_charged_and_not_what_was_planned(3),
    ),
    Mutation(
        "P42 a log gets other numbers than those released",
        replaced(Logged, "of", rounded_for_the_screen),
        in_a_folder(laws.test_p42_logs_see_what_was_released_and_nothing_else),
    ),
    Mutation(
        "P46 a checkpoint is unpickled",
        replaced(checkpoint, "_loaded", lambda place: torch.load(place, weights_only=False)),
        in_a_folder(laws.test_p46_a_checkpoint_that_would_run_code_is_refused),
    ),
    Mutation(
        "P47 a hook is left behind",
        replaced(PrivateRun, "backward", hook_left_behind),
        laws.test_p47_optimizers_and_models_stay_what_they_were,
    ),
]


@by_name(MUTATIONS)
def test_the_bug_is_caught(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_caught(mutation, monkeypatch)
