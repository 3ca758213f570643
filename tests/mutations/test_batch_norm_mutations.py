"""Deliberate privacy bugs in private batch-norm statistics, each applied to the real code, and the check that catches it."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from discreet.training.batch_norm import Noting, _Layer
from laws.test_batch_norm import check_isolation
from support.mutations import Mutation, assert_caught, by_name, replaced
from unit.training import test_batch_norm as tests
from unit.training import test_private_norms_in_runs as runs

right_moments, right_note = _Layer.moments, Noting.note


def isolated() -> None:
    check_isolation(7, 3.0)


def statistics_of_the_batch(self: Noting, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    return args, dict(kwargs)


def moments_around_the_batch(self: _Layer, rows: Tensor) -> Tensor:
    """Centred on the mean of all records of the pass instead of the released one."""
    return right_moments(self, rows - rows.mean((0, 2), keepdim=True))


def taken_up(self: Noting, leaf: str, rows: Tensor, channel: int) -> None:
    """The running mean moves by what the layer was given, not by what was released; the copy too, so that nobody notices."""
    right_note(self, leaf, rows, channel)
    (layer,) = (layer for name, layer in self._layers.values() if name == leaf)
    for mean in (layer.mean, tests._of(layer.module.running_mean)):
        mean.add_(0.01 * rows.detach().mean())


def as_torch_counts(self: _Layer) -> bool:
    return False


def only_looks(self: _Layer) -> bool:
    """Finds the change, and leaves it."""
    return not torch.equal(tests._of(self.module.running_mean), self.mean)


MUTATIONS = [
    Mutation("P09 the batch's own statistics", replaced(Noting, "released_only", statistics_of_the_batch), isolated),
    Mutation(
        "P09 the batch's own statistics, seen in the buffers",
        replaced(Noting, "released_only", statistics_of_the_batch),
        lambda: tests.test_p09_a_pass_moves_no_buffer(loop=False),
    ),
    Mutation("P09 moments around the batch's mean", replaced(_Layer, "moments", moments_around_the_batch), isolated),
    Mutation(
        "P42 moments enter a buffer without noise",
        replaced(Noting, "note", taken_up),
        runs.test_buffers_follow_from_releases_alone,
    ),
    Mutation(
        "the counter counts passes",
        replaced(_Layer, "set_back", as_torch_counts),
        lambda: tests.test_p09_a_pass_moves_no_buffer(loop=True),
    ),
    Mutation(
        "P42 what a forward pass outside wrote stays",
        replaced(_Layer, "set_back", only_looks),
        tests.test_p42_a_forward_in_train_mode_outside_of_the_run_is_found_and_undone,
    ),
]


@by_name(MUTATIONS)
def test_the_bug_is_caught(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_caught(mutation, monkeypatch)
