"""Deliberate bugs in passes that are recorded once and executed later."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

from torch import Tensor

from discreet.training.engine import Engine
from discreet.training.passes import passes
from discreet.training.replay import guards, program, recorder, replays
from discreet.training.replay.guards import Guards
from discreet.training.replay.program import Remains
from discreet.training.replay.recorder import Recorder
from support.mutations import Mutation, assert_caught, by_name, replaced

UNIT = "unit/training/replay"
PROGRAM, RECORDER = f"{UNIT}/test_program.py", f"{UNIT}/test_recorder.py"
GUARDS, REPLAYS = f"{UNIT}/test_guards.py", f"{UNIT}/test_replays.py"


def nothing(*_: object, **__: object) -> None:
    """In the place of a check."""


def yes(*_: object) -> bool:
    """In the place of a check that is always content."""
    return True


def as_it_is(batch: Any) -> Any:
    """In the place of made-up records."""
    return batch


def no_targets(*_: object) -> list[Tensor]:
    """Nothing is taken for written."""
    return []


MUTATIONS = [
    Mutation(
        "values that a rule has read are not read again",
        replaced(Recorder, "read", nothing),
        f"{PROGRAM}::test_an_index_that_a_rule_has_read_must_be_the_same",
    ),
    Mutation(
        "constants are not compared between places again",
        replaced(Recorder, "compared", nothing),
        f"{PROGRAM}::test_a_constant_that_was_the_same_for_all_records_must_stay_so",
    ),
    Mutation(
        "public numbers that Python has seen may be other ones",
        replaced(program, "same_bits", yes),
        f"{PROGRAM}::test_a_public_number_that_python_has_seen_must_be_the_same",
    ),
    Mutation(
        "indices are not compared with their range",
        replaced(program, "_check_bounds", nothing),
        f"{PROGRAM}::test_indices_are_compared_with_their_range_going_back",
    ),
    Mutation(
        "memory that nobody has written is read",
        replaced(program, "_zero", nothing),
        f"{PROGRAM}::test_memory_that_nobody_has_written_is_zero",
    ),
    Mutation(
        "an error shows records",
        replaced(Remains, "erase", nothing),
        f"{PROGRAM}::test_an_error_of_a_kernel_shows_no_record",
    ),
    Mutation(
        "what a program made outlives its step",
        replaced(Remains, "erase", nothing),
        f"{REPLAYS}::test_contributions_are_erased_when_their_step_has_ended",
    ),
    Mutation(
        "memory from before holds records by now",
        replaced(guards, "is_public", yes),
        f"{GUARDS}::test_what_has_moved_is_seen",
    ),
    Mutation(
        "memory from before has moved",
        replaced(Guards, "_is_memory_same", yes),
        f"{GUARDS}::test_what_has_moved_is_seen",
    ),
    Mutation(
        "a recording holds what was made where nobody looks",
        replaced(Recorder, "_is_from_before", yes),
        f"{RECORDER}::test_a_result_that_was_made_where_nobody_looks_is_a_reason",
    ),
    Mutation(
        "a recording writes into memory from before",
        replaced(recorder, "targets_of", no_targets),
        f"{RECORDER}::test_what_cannot_be_executed_again_is_a_reason",
    ),
    Mutation(
        "numbers of records are compared with those of the recording",
        replaced(Recorder, "_are_public", yes),
        f"{RECORDER}::test_a_check_of_numbers_of_records_is_a_reason",
    ),
    Mutation(
        "records are recorded",
        replaced(replays, "made_up", as_it_is),
        f"{REPLAYS}::test_only_made_up_records_are_recorded_and_compared",
    ),
    Mutation(
        "a step without records records nothing",
        replaced(Engine, "rest", nothing),
        f"{REPLAYS}::test_a_step_without_records_records_as_any_other",
    ),
    Mutation(
        "settings of precision are read where a pass was recorded, and never again",
        replaced(passes.Passes, "executing", lambda _: nullcontext()),
        f"{REPLAYS}::test_settings_of_precision_are_read_in_every_step",
    ),
]


@by_name(MUTATIONS)
def test_the_bug_is_caught(mutation: Mutation, tmp_path: Path) -> None:
    assert_caught(mutation, tmp_path)
