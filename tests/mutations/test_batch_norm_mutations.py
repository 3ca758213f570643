"""Deliberate privacy bugs in private batch-norm statistics, each applied to the real code, and the
check that catches it.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from discreet.training.passes.batch_norm import Noting, _Layer
from support.mutations import Mutation, assert_caught, by_name, replaced
from unit.training.passes.test_batch_norm import _of

ISOLATED = "laws/test_batch_norm.py::test_p09_no_record_is_seen_through_anothers"
TESTS = "unit/training/passes/test_batch_norm.py"
RUNS = "unit/training/passes/test_batch_norm.py"

right_moments, right_note = _Layer.moments, Noting.note


def statistics_of_the_batch(
    self: Noting, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    return args, dict(kwargs)


def moments_around_the_batch(self: _Layer, rows: Tensor) -> Tensor:
    """Centred on the mean of all records of the pass instead of the released one."""
    return right_moments(self, rows - rows.mean((0, 2), keepdim=True))


def taken_up(self: Noting, leaf: str, rows: Tensor, channel: int) -> None:
    """The running mean moves by what the layer was given, not by what was released; the copy too,
    so that nobody notices.
    """
    right_note(self, leaf, rows, channel)
    (layer,) = (layer for name, layer in self._layers.values() if name == leaf)
    for mean in (layer.mean, _of(layer.module.running_mean)):
        mean.add_(0.01 * rows.detach().mean())


def as_torch_counts(self: _Layer) -> bool:
    return False


def only_looks(self: _Layer) -> bool:
    """Finds the change, and leaves it."""
    return not torch.equal(_of(self.module.running_mean), self.mean)


MUTATIONS = [
    Mutation(
        "P09 the batch's own statistics",
        replaced(Noting, "released_only", statistics_of_the_batch),
        ISOLATED,
    ),
    Mutation(
        "P09 the batch's own statistics, seen in the buffers",
        replaced(Noting, "released_only", statistics_of_the_batch),
        f"{TESTS}::test_p09_a_pass_moves_no_buffer[False]",
    ),
    Mutation(
        "P09 moments around the batch's mean",
        replaced(_Layer, "moments", moments_around_the_batch),
        ISOLATED,
    ),
    Mutation(
        "P42 moments enter a buffer without noise",
        replaced(Noting, "note", taken_up),
        f"{RUNS}::test_buffers_follow_from_releases_alone",
    ),
    Mutation(
        "P09 the counter counts passes",
        replaced(_Layer, "set_back", as_torch_counts),
        f"{TESTS}::test_p09_a_pass_moves_no_buffer[True]",
    ),
    Mutation(
        "P42 what a forward pass outside wrote stays",
        replaced(_Layer, "set_back", only_looks),
        f"{TESTS}::test_p42_a_forward_in_train_mode_outside_of_the_run_is_found_and_undone",
    ),
]


@by_name(MUTATIONS)
def test_the_bug_is_caught(mutation: Mutation, tmp_path: Path) -> None:
    assert_caught(mutation, tmp_path)
