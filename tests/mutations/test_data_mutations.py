"""Deliberate bugs before the batch, each applied to the real code, and the test that catches it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from discreet.training.data import collating, datasets, entries, order, seeding, trees
from discreet.training.data.order import OwnState
from discreet.training.data.seeding import SeedUse
from discreet.training.data.signature import Signature
from support.mutations import Mutation, assert_caught, by_name, replaced

ROOM = "unit/training/data"
LAWS = "laws/test_pitfalls_data.py"


@contextmanager
def not_seeded(_: int) -> Iterator[Any]:
    """Transforms draw from whatever the user has seeded."""

    def begin(use: SeedUse) -> None:
        """Does nothing."""

    yield begin


def whole_sequences(leaf: Any, rows: Tensor) -> Any:
    """What is no tensor goes whole to every record that is computed alone."""
    return leaf.index_select(0, rows) if isinstance(leaf, Tensor) and leaf.ndim else leaf


def once(method: Callable[[Any], None]) -> Callable[[Any], None]:
    """The method, called for the first time only."""
    called = set()

    def first(marking: Any) -> None:
        if id(marking) not in called:
            called.add(id(marking))
            method(marking)

    return first


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
        replaced(datasets.Marking, "renew", lambda _: None),
        f"{ROOM}/test_loading.py::test_the_memory_of_the_data_set_is_marked",
    ),
    Mutation(
        "T11 one entry decides the type of all rows",
        replaced(collating, "are_alike", lambda _: True),
        f"{LAWS}::test_t11_the_type_and_the_keys_of_one_entry_decide_nothing_for_others[float-0]",
    ),
    Mutation(
        "T11 the keys of the first entry are those of all",
        replaced(collating, "are_alike", lambda _: True),
        f"{ROOM}/test_collating.py::test_t11_what_one_entry_has_decides_no_row_of_another[True-keys]",
    ),
    Mutation(
        "T11 entries stay in the memory of the data set",
        replaced(collating, "plain_copy", lambda entry: entry),
        f"{LAWS}::test_t11_a_buffer_that_is_filled_again_gives_every_record_its_own_row[None]",
    ),
    Mutation(
        "T11 the constructor of a user's tuple is called with all records",
        replaced(entries, "_is_named_tuple", lambda kind: hasattr(kind, "_fields")),
        f"{ROOM}/test_collating.py::test_t11_a_constructor_of_the_user_sees_one_entry_alone",
    ),
    Mutation(
        "T11 the memory of the data set is marked once",
        replaced(datasets.Marking, "renew", once(datasets.Marking.renew)),
        f"{LAWS}::"
        "test_t11_tensors_that_a_data_set_loads_when_asked_enter_no_pass_past_the_sample[False-False]",
    ),
    Mutation(
        "T11 rows that change are taken for known",
        replaced(datasets, "_exchangeable", lambda _: []),
        f"{ROOM}/test_datasets.py::test_t11_what_a_data_set_loads_later_is_marked[5]",
    ),
    Mutation(
        "T11 entries are not fetched in another order",
        replaced(collating, "refuse_other_order", lambda *_: None),
        f"{ROOM}/test_order.py::test_t11_entries_that_depend_on_who_came_before_are_refused",
    ),
    Mutation(
        "T11 entries of a structured array are taken for numbers",
        replaced(entries, "_is_number_of_numpy", lambda kind: issubclass(kind, np.generic)),
        f"{LAWS}::test_t11_a_structured_buffer_gives_every_record_its_own_row",
    ),
    Mutation(
        "T11 both orders are made in one process",
        replaced(order, "in_copies", lambda tasks, _: [task() for task in tasks]),
        f"{ROOM}/test_order.py::test_t11_a_state_that_nobody_can_put_back_is_seen",
    ),
    Mutation(
        "T11 a state is not put back before the other order",
        replaced(OwnState, "put_back", lambda _: None),
        f"{ROOM}/test_order.py::test_t11_a_vocabulary_of_two_words_is_seen_too",
    ),
    Mutation(
        "P30 a record occurs twice",
        replaced(datasets, "_has_repetitions", lambda _: False),
        f"{ROOM}/test_datasets.py::test_p30_a_record_that_occurs_twice_is_refused",
    ),
    Mutation(
        "P18 a normal number of the secret seed stays in store",
        replaced(seeding, "_take_spare", lambda _: None),
        f"{ROOM}/test_seeding.py::test_normal_numbers_in_store_are_put_back_too[1-0]",
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
