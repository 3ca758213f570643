"""One table during a run: what its rows hold, computed where it is read.

    open         the parameter holds the table, as users know it: before the first step, and when
                 it was settled
    concealed    the parameter holds NaN; rows follow from the table at the beginning of the
                 series, sums since then, and the walk of the noise

What a row holds after t steps of a series is a function of the ideal outputs up to t and of t
(docs/proofs/sparse.md): neither earlier reads nor the rows that were touched are in it.

Legend: R rows, E numbers of a row, S rows that were looked up or summed in this series, each of
    which has a slot.
"""

from __future__ import annotations

from typing import NamedTuple, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from discreet.errors import SampleMisuse
from discreet.randomness.walk import Path, Walk

__all__ = ["HeldTable", "Series"]

# Rows that are settled at a time.
_PIECE = 2**14


class Series(NamedTuple):
    """The law of one series of steps.

    Args:
        walk: of the noise [secret].
        unit: what one of its integers takes from a number of the table [public].
    """

    walk: Walk
    unit: float


@final
class HeldTable:
    """The rows of one table.

    Args:
        parameter: (R, E), contiguous, on the CPU; what it holds is public.
    """

    def __init__(self, parameter: Tensor) -> None:
        self._parameter = parameter
        self._series: Series | None = None
        self._whole = True

    @property
    def is_open(self) -> bool:
        """Whether the parameter holds the table."""
        return self._series is None

    def conceal(self, series: Series) -> None:
        """Begin a series: rows are no longer what the parameter holds.

        Its memory is never written to again, whoever else has a view of it.
        """
        self._series, self._step = series, 0
        self._base = self._parameter.data
        self._first = self._base.numpy()
        size, width = self._first.shape

        # -1 for a row without a slot. What has one: sums (S, E) modulo 2^64, present values, and
        # the step to which these belong.
        self._slots = torch.full((size,), -1, dtype=torch.int64)
        self._count = 0
        self._sums = np.zeros((0, width), np.int64)
        self._present = np.zeros((0, width), self._first.dtype)
        self._moments = np.zeros(0, np.int64)

        # One number in the place of all: who reads rows outside of the run reads NaN.
        self._parameter.data = self._base.new_full((), torch.nan).expand(size, width)

    def look_up(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Bring rows up to date.

        Args:
            ids: of rows, any shape [sensitive].

        Returns:
            Rows by slot, and the slot of every row of the table: what a row holds now is in row
            slots[row] of the first. Both are meant for these ids only.

        Raises:
            IndexError: as torch has it, for ids that the table does not have.
        """
        rows = np.unique(ids.detach().numpy()).astype(np.int64)
        if rows.size and not 0 <= rows[0] <= rows[-1] < len(self._slots):
            raise IndexError("index out of range in self")

        self._bring_up_to_date(rows)
        return torch.from_numpy(self._present), self._slots

    def _bring_up_to_date(self, rows: NDArray[np.int64]) -> None:
        series = self._checked()
        slots = self._slots_of(rows)
        is_late = self._moments[slots] != self._step
        late, rows = slots[is_late], rows[is_late]

        integers = series.walk.rounded(rows, self._sums[late], self._path(series))
        self._present[late] = self._values(rows, integers, series.unit)
        self._moments[late] = self._step

    def _path(self, series: Series) -> Path:
        return series.walk.clock.path(self._step)

    def add(self, rows: NDArray[np.int64], integers: NDArray[np.int64]) -> None:
        """Add the sums of one step, which is over for this table then.

        Args:
            rows: different ones (U,) [sensitive].
            integers: their sums on the grid of the group, (U, E) [sensitive].
        """
        series = self._checked()
        self._whole = False
        weight = series.walk.clock.weights[self._step]

        # First the slots: for new ones, sums move to other memory.
        slots = self._slots_of(rows)
        self._sums[slots] += weight * integers
        self._step += 1
        self._whole = True

    def settle(self) -> None:
        """End the series: every row gets all of its noise, and the parameter holds the table."""
        if self.is_open:
            return

        series = self._checked()
        settled = np.empty_like(self._first)
        slots = self._slots.numpy()
        self._bring_up_to_date(np.flatnonzero(slots >= 0))

        # Of rows that nobody has read one normal each is enough (sparse.md, section 2).
        shortcut = series.walk.clock.shortcut(self._step)
        for start in range(0, len(settled), _PIECE):
            here = slots[start : start + _PIECE]
            unread = start + np.flatnonzero(here < 0)
            sums = np.zeros((len(unread), settled.shape[1]), np.int64)
            integers = series.walk.rounded(unread, sums, shortcut)
            settled[unread] = self._values(unread, integers, series.unit)
            read = start + np.flatnonzero(here >= 0)
            settled[read] = self._present[slots[read]]

        self._parameter.data = torch.from_numpy(settled)
        self._series = None
        del self._base, self._first, self._slots, self._sums, self._present, self._moments

    def _values(
        self, rows: NDArray[np.int64], integers: NDArray[np.int64], unit: float
    ) -> NDArray[np.floating]:
        """What rows hold: a function of what they began with and of these integers.

        Each operation by itself, so that every number is rounded alike wherever it stands.
        """
        taken = integers.astype(np.float64)
        taken *= unit
        np.subtract(self._first[rows], taken, out=taken)
        with np.errstate(over="ignore", under="ignore"):
            return taken.astype(self._first.dtype)

    def _slots_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """The slots of different rows; those that have none get one."""
        slots = self._slots.numpy()
        new = rows[slots[rows] < 0]
        if new.size:
            self._make_room(self._count + new.size)
            slots[new] = self._count + np.arange(new.size)
            self._count += new.size

        chosen: NDArray[np.int64] = slots[rows]
        return chosen

    def _make_room(self, count: int) -> None:
        size = len(self._moments)
        if count <= size:
            return

        # Twice as many: what is copied is little in the long run. Step -1 is no row's present.
        more = min(max(2 * size, count), len(self._slots)) - size
        width = self._sums.shape[1]
        self._sums = np.concatenate([self._sums, np.zeros((more, width), np.int64)])
        empty = np.zeros((more, width), self._present.dtype)
        self._present = np.concatenate([self._present, empty])
        self._moments = np.concatenate([self._moments, np.full(more, -1)])

    def _checked(self) -> Series:
        """The series, if the sums are whole."""
        if self._series is None or not self._whole:
            raise SampleMisuse(
                expected="a table to which every step was added once",
                got="one that an interruption left half changed, or that is not in use",
                do="Go on from the last checkpoint.",
            )

        return self._series
