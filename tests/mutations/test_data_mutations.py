"""Deliberate bugs before the batch, each applied to the real code, and the test that catches it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor

from discreet.training.data import collating, datasets, loading, trees
from discreet.training.data.seeding import SeedUse
from discreet.training.data.signature import Signature
from support.mutations import Mutation, assert_caught, by_name, replaced

ROOM = "unit/training/data"


@contextmanager
def not_seeded(_: int) -> Iterator[Any]:
    """Transforms draw from whatever the user has seeded."""

    def begin(use: SeedUse) -> None:
        """Does nothing."""

    yield begin


def whole_sequences(leaf: Any, rows: Tensor) -> Any:
    """What is no tensor goes whole to every record that is computed alone."""
    return leaf.index_select(0, rows) if isinstance(leaf, Tensor) and leaf.ndim else leaf


MUTATIONS = [
    Mutation(
        "P11 a collate function is given all entries of a batch",
        replaced(collating, "_collated_apart", lambda collate, entries, _: collate(entries)),
        f"{ROOM}/test_collating.py::test_p11_rows_are_made_one_by_one_whatever_wakes_later",
    ),
    Mutation(
        "P11 a data set is given all indices of a batch",
        replaced(collating, "_entries_apart", collating._entries),
        f"{ROOM}/test_collating.py::test_p11_entries_are_fetched_one_by_one_whatever_wakes_later",
    ),
    Mutation(
        "P11 a collate function keeps a state",
        replaced(collating, "_differ", lambda *_: False),
        f"{ROOM}/test_collating.py::test_state_between_batches_is_refused",
    ),
    Mutation(
        "P11 batches have other sizes",
        replaced(Signature, "check", lambda self, batch: None),
        f"{ROOM}/test_loading.py::test_p11_batches_of_other_sizes_are_refused[0]",
    ),
    Mutation(
        "P11 texts of all records go to each",
        replaced(trees, "_selected", whole_sequences),
        f"{ROOM}/test_trees.py::test_one_row_holds_nothing_of_another",
    ),
    Mutation(
        "P11 a loss reaches into the data set",
        replaced(loading, "mark_tensors_of", lambda *_: None),
        f"{ROOM}/test_loading.py::test_the_memory_of_the_data_set_is_marked",
    ),
    Mutation(
        "P30 a record occurs twice",
        replaced(datasets, "_has_repetitions", lambda _: False),
        f"{ROOM}/test_datasets.py::test_p30_a_record_that_occurs_twice_is_refused",
    ),
    Mutation(
        "P18 transforms draw numbers that others know",
        replaced(collating, "seeded", not_seeded),
        f"{ROOM}/test_loading.py::test_p18_transforms_draw_from_the_secret_source[0]",
    ),
]


@by_name(MUTATIONS)
def test_the_bug_is_caught(mutation: Mutation, tmp_path: Path) -> None:
    assert_caught(mutation, tmp_path)
