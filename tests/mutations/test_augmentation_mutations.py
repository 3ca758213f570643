"""Deliberate bugs in augmentations, each applied to the real code, and the test that catches it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch import Tensor

from discreet.training import factors
from discreet.training.augmentation import Augmented
from discreet.training.contributions import Contributions
from discreet.training.engine import Engine
from discreet.training.factors import Dense
from support.mutations import Mutation, assert_caught, by_name, replaced

TESTS = "unit/training/test_augmentation.py"

right_passes = Engine.passes


def copies_as_records(self: Engine, loss: Any, batch: Any, records: int, present: int | Tensor) -> Iterator[Any]:
    """Every copy is clipped to the clip norm, and all copies are added up: K times the sensitivity."""
    if not isinstance(loss, Augmented):
        return right_passes(self, loss, batch, records, present)
    here = Contributions({}, records, present).mask.repeat_interleave(loss.copies)
    return right_passes(self, loss.loss, loss.rows(batch, records), records * loss.copies, here)


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
            lambda values, copies: values.reshape(copies, -1, *values.shape[1:]).movedim(0, 1).flatten(1, 2),
        ),
        f"{TESTS}::test_any_number_of_copies[2]",
    ),
    Mutation(
        "P11 augmentations are not tried out",
        replaced(Augmented, "keeps_apart", lambda self, batch, records, attempt: True),
        f"{TESTS}::test_p11_an_augmentation_that_mixes_records_is_refused[mixed_up]",
    ),
    Mutation(
        "P11 an augmentation counts as tried out on records that are alike",
        replaced(Engine, "_refuse_mixing", lambda self, loss, batch, records: None if self._count > 1 else _tried(loss, batch)),
        f"{TESTS}::test_p11_mixing_is_found_once_records_differ",
    ),
]


def _tried(loss: Any, batch: Any) -> None:
    loss.keeps_apart(batch, len(batch[0]), 1)


@by_name(MUTATIONS)
def test_the_bug_is_caught(mutation: Mutation, tmp_path: Path) -> None:
    assert_caught(mutation, tmp_path)
