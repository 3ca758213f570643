"""Deliberate bugs in augmentations, each applied to the real code, and the test that catches it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch import Tensor

from discreet.training.data.copies import Augmented
from discreet.training.engine import Engine
from discreet.training.factors import factors
from discreet.training.factors.factors import Dense
from discreet.training.passes.contributions import Contributions
from discreet.training.passes.passes import Passes
from support.mutations import Mutation, assert_caught, by_name, replaced

TESTS = "unit/training/data/test_copies.py"

right_passes = Engine.passes


def copies_as_records(
    self: Engine, loss: Any, batch: Any, records: int, present: int | Tensor
) -> Iterator[Any]:
    """Every copy is clipped to the clip norm, and all copies are added up:
    K times the sensitivity.
    """
    if not isinstance(loss, Augmented):
        return right_passes(self, loss, batch, records, present)
    here = Contributions({}, records, present).mask.repeat_interleave(loss.copies)
    return right_passes(self, loss.loss, loss.rows(batch, records), records * loss.copies, here)


def all_together(self: Passes, augment: Any, batch: Any, records: int, copies: int) -> Any:
    del self
    return Augmented(augment, augment, copies).rows(batch, records)


MUTATIONS = [
    Mutation(
        "P10 copies of a record are clipped one by one",
        replaced(Engine, "passes", copies_as_records),
        f"{TESTS}::test_p10_copies_are_clipped_as_one_record_not_one_by_one",
    ),
    Mutation(
        "P08 only the first copy of a record counts",
        replaced(Dense, "joined", lambda self, copies: Dense(self.values[::copies])),
        f"{TESTS}::test_convolutions_give_what_a_loop_over_records_gives[direct]",
    ),
    Mutation(
        "P10 copies of other records are joined",
        replaced(
            factors,
            "_rows_joined",
            lambda values, copies: (
                values.reshape(copies, -1, *values.shape[1:]).movedim(0, 1).flatten(1, 2)
            ),
        ),
        f"{TESTS}::test_any_number_of_copies[2]",
    ),
    Mutation(
        "P11 augmentations are given all records and not proved",
        replaced(Passes, "augmented", all_together),
        "laws/test_pitfalls_separation.py::test_t06_p11_an_augmentation_that_mixes_records_is_given_one_at_a_time",
    ),
]


@by_name(MUTATIONS)
def test_the_bug_is_caught(mutation: Mutation, tmp_path: Path) -> None:
    assert_caught(mutation, tmp_path)
