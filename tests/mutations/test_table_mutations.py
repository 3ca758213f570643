"""Deliberate bugs in tables, each applied to the real code, and the test that catches it."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from discreet.randomness import walk
from discreet.randomness.walk import Clock
from discreet.randomness.walk import Path as WalkPath
from discreet.training.passes.tape import Tape
from discreet.training.tables.held import HeldTable
from discreet.training.tables.tables import RunTables
from support.mutations import Mutation, assert_caught, by_name, replaced

LAW = "statistics/test_tables.py"
HELD = "unit/training/tables/test_held.py"
RUN = "unit/training/tables/test_tables.py"
WALK = "unit/randomness/test_walk.py"

right_conceal, right_path = HeldTable.conceal, Clock.path
_noise = np.random.default_rng(7)


def rounded_per_visit(self: Any, rows: NDArray[np.int64]) -> None:
    """The noise of the steps that a row missed is drawn and rounded by itself."""
    slots = self._slots_of(rows)
    if not hasattr(self, "held"):
        self.held, self.read_at = {}, {}
    for row, slot in zip(rows.tolist(), slots.tolist(), strict=True):
        missed = self._step - self.read_at.get(row, 0)
        noise = 0.3 * missed**0.5 * _noise.standard_normal(self._sums.shape[1])
        self.held[row] = self.held.get(row, 0.0) + np.rint(noise)
        self.read_at[row] = self._step
        self._present[slot] = self._first[row] - self.held[row] * self._series.unit


def noise_of_visits(self: Any, rows: NDArray[np.int64]) -> None:
    """A row gets the noise of as many steps as it was read in."""
    slots = self._slots_of(rows)
    if not hasattr(self, "reads"):
        self.reads = {}
    for row, slot in zip(rows.tolist(), slots.tolist(), strict=True):
        self.reads[row] = min(self.reads.get(row, 0) + 1, len(self._series.walk.clock.weights))
        path = self._series.walk.clock.path(self.reads[row])
        where = np.array([slot])
        integers = self._series.walk.rounded(np.array([row]), self._sums[where], path)
        self._present[where] = self._values(np.array([row]), integers, self._series.unit)


def still_readable(self: HeldTable, series: Any) -> None:
    data = self._parameter.data
    right_conceal(self, series)
    self._parameter.data = data


def in_place(self: HeldTable, series: Any) -> None:
    """What a row holds is written into the memory that users may have a view of."""
    right_conceal(self, series)
    base = self._base

    def look_up(ids: Tensor) -> tuple[Tensor, Tensor]:
        rows, slots = HeldTable.look_up(self, ids)
        base[ids] = rows[slots[ids]]
        return rows, slots

    self.look_up = look_up  # type: ignore[method-assign]


def without_bridges(self: Clock, step: int) -> WalkPath:
    """The noise at a step is a share of that at the end: too little, and all of one piece."""
    return right_path(self, step)[:1]


MUTATIONS = [
    Mutation(
        "P25 the noise of a table is rounded at each visit",
        replaced(HeldTable, "_bring_up_to_date", rounded_per_visit),
        f"{LAW}::test_p25_what_a_row_holds_at_the_end_does_not_tell_when_it_was_read[often]",
    ),
    Mutation(
        "P25 the noise of a table is rounded at each of two visits",
        replaced(HeldTable, "_bring_up_to_date", rounded_per_visit),
        f"{LAW}::test_p25_what_a_row_holds_at_the_end_does_not_tell_when_it_was_read[twice]",
    ),
    Mutation(
        "P25 a row gets the noise of the steps in which it was read",
        replaced(HeldTable, "_bring_up_to_date", noise_of_visits),
        f"{LAW}::test_p25_what_a_row_holds_at_the_end_does_not_tell_when_it_was_read[at the end]",
    ),
    Mutation(
        "P25 rows that nobody looked up have no noise",
        replaced(Clock, "shortcut", lambda *_: ()),
        f"{RUN}::test_p25_rows_have_the_noise_of_all_steps_whether_they_were_read_or_not[False]",
    ),
    Mutation(
        "P25 a table's noise before the end is a share of that at the end",
        replaced(Clock, "path", without_bridges),
        f"{LAW}::test_p25_every_read_has_the_noise_of_all_steps_so_far[3]",
    ),
    Mutation(
        "P25 rows can be seen as they were when they were read last",
        replaced(HeldTable, "conceal", still_readable),
        f"{HELD}::test_rows_are_hidden_between_steps",
    ),
    Mutation(
        "P25 rows are written to memory that users have a view of",
        replaced(HeldTable, "conceal", in_place),
        f"{HELD}::test_a_view_of_the_table_from_before_sees_nothing",
    ),
    Mutation(
        "P25 a state_dict has rows without their noise",
        replaced(RunTables, "_put_hooks", lambda *_: None),
        f"{RUN}::test_a_state_dict_has_all_noise_in[table]",
    ),
    Mutation(
        "P25 a table is read where no row is brought up to date",
        replaced(Tape, "_refuse_other_use", lambda *_: None),
        f"{RUN}::test_any_other_use_of_a_table_is_refused_by_name[data]",
    ),
    Mutation(
        "P25 what float64 cannot decide of a table is rounded all the same",
        replaced(walk, "_threshold", lambda _: 0.5),
        f"{WALK}::test_coarse_normals_round_alike",
    ),
]


@by_name(MUTATIONS)
def test_the_bug_is_caught(mutation: Mutation, tmp_path: Path) -> None:
    assert_caught(mutation, tmp_path)
