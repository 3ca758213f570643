"""Clipped sums of records, exact on the grid, which workers compute and merge.

    records -> squared norms -> weights -> integers of the grid -> PartialSums, merged in any order

Noise is added once, to the merged sums: everything here is sensitive until `Aggregator.release` has
done so. That one record moves the integers by at most the clip norm: docs/proofs/sums.md, section
2.

Shapes: B records (or slots), D numbers of a leaf, L leaves of a group.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from discreet import _validate as check
from discreet.errors import ParameterError, SampleMisuse
from discreet.mechanisms import Bound, Group, State
from discreet.numerics import ExactSum, Grid, squared_norms

__all__ = ["PartialSums", "Records", "SampleId", "bare", "grid_of"]

Records: TypeAlias = Mapping[str, NDArray[Any]] | Sequence[Mapping[str, NDArray[Any]]]
"""Leaf name to an array with one row per record; or a sequence of records, each leaf name to an
array. Sensitive.
"""

SampleId: TypeAlias = tuple[str, int, int]
"""What tells a sample from all samples of all runs: a name that no other run has, step, batch."""

# Leaf name to rows (B, D).
_Rows: TypeAlias = dict[str, NDArray[np.floating]]

# (Number of the group, records, slots) to the slot of each record.
_Slots: TypeAlias = Callable[[int, int, int], NDArray[np.int64]]


class PartialSums:
    """The clipped sums of records of one sample. Sensitive; workers may send it to one another.

    Guarantee: one record moves the integers of each group by at most the group's clip norm,
    exactly, whatever the record holds (with slots: twice that). Without slots, neither the order of
    records nor how they were split and merged matters.

    | records | what is added |
    |---|---|
    | NaN, an infinity or a masked number in a record | zeros, in each group that holds one |
    | no records, of any shape | nothing |
    | a leaf that is missing, unknown, or of another size | `ParameterError`; nothing is added |
    | a second call for a plan with slots | `SampleMisuse`; nothing is added |
    | anything, after an addition was interrupted | `SampleMisuse` |

    Args:
        bound: the plan's mechanism, bound to its leaves.
        state: of this step.
        sample_id: of the sample: sums of different samples do not merge, and are not released in
            each other's place.
        piece: number of these sums among those of the sample; a copy has the same, and does not
            merge a second time.
        slots: for groups of microbatches: (group number, records, slots) to the slot of each
            record. None elsewhere.
    """

    __slots__ = (
        "_bound",
        "_pieces",
        "_plain",
        "_sample_id",
        "_slots",
        "_state",
        "_sums",
        "_whole",
        "records",
    )

    def __init__(
        self,
        bound: Bound,
        state: State,
        *,
        sample_id: SampleId,
        piece: int = 0,
        slots: _Slots | None = None,
    ) -> None:
        self._bound = bound
        self._state = state
        self._sample_id = sample_id

        # The numbers of all sums that were merged into these, and their own.
        self._pieces = frozenset({piece})
        self._slots = slots
        self._sums = {
            group.name: _empty(group, bound.dimensions)
            for group in bound.groups(state)
            if group.private
        }

        # Sums without noise or clipping, of groups that are declared as not private.
        self._plain = {leaf: np.zeros(bound.dimensions[leaf]) for leaf in _unprotected(bound)}

        # False while a change is under way, and for ever if it is interrupted.
        self._whole = True
        self.records = 0

    def add(self, records: Records) -> None:
        """Add records; each is clipped by itself. Nothing is added if anything about them is wrong.

        Args:
            records: one row for each, or one mapping for each; sensitive.
        """
        rows = _rows(records, self._bound)
        groups = self._bound.groups(self._state)

        # Slots are drawn for all records of a sample together, once.
        if self.records and any(group.slots for group in groups):
            raise SampleMisuse(
                expected="all records of the sample at once, since slots average over them",
                got="records in several pieces",
                do="Pass all records in one call of add().",
            )

        # Weights of all groups before the first sum: whatever is wrong raises here.
        vectors, norms = self._measured(rows, groups)
        private = [group for group in groups if group.private]
        weights = {group.name: group.weights(norms[group.name]) for group in private}

        with self._changing():
            for group in private:
                self._sums[group.name].add(vectors[group.name], weights[group.name])

            for leaf in self._plain:
                self._plain[leaf] += rows[leaf].sum(axis=0, dtype=np.float64)

            self.records += len(next(iter(rows.values())))

    def _measured(
        self, rows: _Rows, groups: Sequence[Group]
    ) -> tuple[dict[str, _Rows], dict[str, NDArray[np.float64]]]:
        """Give what is clipped in each group, and bounds of its squared norms (B, L), by group."""
        vectors, norms = {}, {}

        # Groups whose leaves the caller gives; the leaves of a group are given all or none.
        for number, group in enumerate(groups):
            leaves = {leaf: rows[leaf] for leaf in group.leaves if leaf in rows}
            if leaves:
                vectors[group.name] = self._averages(number, group, leaves)
                norms[group.name] = _norms(vectors[group.name])

        # Bits that are observed of a record follow from the norms of its vectors, so they come
        # second; they are clipped and summed like everything else.
        bits = self._bound.observations(self._state, norms)

        for group in groups:
            if group.name not in vectors:
                vectors[group.name] = {leaf: bits[leaf][:, np.newaxis] for leaf in group.leaves}
                norms[group.name] = _norms(vectors[group.name])

        return vectors, norms

    def add_nothing(self, records: int) -> None:
        """Count records of the sample that contribute nothing, as if each were zeroed out.

        They have no vector, no bit and no slot.
        """
        count = check.whole("PartialSums.add_nothing", "records", records, least=0)

        # They must be counted all the same: `check_complete` compares with the sample's size.
        with self._changing():
            self.records += count

    def merge(self, partial: PartialSums) -> None:
        """Add the sums of other records of the same sample, and leave those empty."""
        # A copy of sums that were merged already would count their records twice.
        again = bool(self._pieces & partial._pieces)
        alike = self._is_of(partial._bound, partial._state, partial._sample_id)
        if again or not alike:
            raise SampleMisuse(
                expected="other sums of the same sample",
                got=(
                    "sums that are in these already, or a copy of them"
                    if again
                    else "sums of another sample, state or plan"
                ),
                do=(
                    "Merge each worker's sums of this sample once; each worker starts from sums "
                    "of its own."
                ),
            )

        if any(group.slots for group in self._bound.start):
            raise SampleMisuse(
                expected="all records of the sample in one place, since slots average over them",
                got="sums from several places",
                do="Gather the records, then add them in one call.",
            )

        # What is moved is emptied there, so that it cannot be released from two places.
        with self._changing(), partial._changing():
            for name, total in self._sums.items():
                total.merge(partial._sums[name])

            for leaf in self._plain:
                self._plain[leaf] += partial._plain[leaf]
                partial._plain[leaf] = np.zeros_like(partial._plain[leaf])

            self._pieces |= partial._pieces
            self.records += partial.records
            partial.records = 0

    def _is_of(self, bound: Bound, state: State, sample_id: SampleId) -> bool:
        # States are compared by value: a resumed run has another object with equal thresholds.
        return (self._bound, dict(self._state), self._sample_id) == (bound, dict(state), sample_id)

    def check_complete(self, bound: Bound, state: State, sample_id: SampleId, records: int) -> None:
        """Refuse sums that are not those of all records of this sample, at this state."""
        self._check_whole()
        alike = self._is_of(bound, state, sample_id)

        # No message says which number of rows came, as the sample's size is sensitive.
        if not alike or self.records != records:
            raise SampleMisuse(
                expected="one row for each record of the sample, each added once",
                got="another number of rows" if alike else "sums of another sample, state or run",
                do=(
                    "Compute records for exactly sample.indices (or sample.units), also for an "
                    "empty sample."
                ),
            )

    def integers(self, group: Group) -> NDArray[np.float64]:
        """Copy the sum of one group in grid units, leaf after leaf."""
        leaves = list(self._sums[group.name].integers().values())
        return leaves[0] if len(leaves) == 1 else np.concatenate(leaves)

    def unprotected(self, leaf: str) -> NDArray[np.float64]:
        """Return the plain sum of a leaf that is not private."""
        return self._plain[leaf]

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Make sums unusable while they change, and for ever if that is interrupted.

        Tried again, an addition could count a record twice.
        """
        self._check_whole()
        self._whole = False
        yield
        self._whole = True

    def _check_whole(self) -> None:
        if not self._whole:
            raise SampleMisuse(
                expected="sums to which every record was added once",
                got=(
                    "sums that an error or an interruption left half changed, or that another "
                    "thread is changing"
                ),
                do="Start again from new sums: Aggregator.partial(sample).",
            )

    def _averages(self, number: int, group: Group, rows: _Rows) -> _Rows:
        """Average the records of each slot; the records themselves where a group has no slots.

        A slot without records has zeros. A record that is not finite is in no slot.
        """
        if group.slots is None:
            return rows

        if self._slots is None:
            raise SampleMisuse(
                expected="a source for the slots of records",
                got="none",
                do="Use Aggregator.partial(sample) to make the sums.",
            )

        # Not finite in one leaf: left out of all of them.
        finite_B = np.all([np.isfinite(values).all(axis=1) for values in rows.values()], axis=0)

        # Slots are drawn for all records, so that their number does not show who is not finite.
        slots_B = self._slots(number, len(finite_B), group.slots)[finite_B]
        sizes = np.maximum(np.bincount(slots_B, minlength=group.slots), 1)[:, np.newaxis]
        averages: _Rows = {}

        # What overflows is dropped by the check on the integers.
        with np.errstate(over="ignore", invalid="ignore"):
            for leaf, values in rows.items():
                total = np.zeros((group.slots, values.shape[1]))
                np.add.at(total, slots_B, values[finite_B])
                averages[leaf] = total / sizes

        return averages


def grid_of(group: Group) -> Grid:
    """Choose the grid on which a group is summed and noised."""
    return Grid.for_noise(noise_std=group.noise_std, clip_norm=group.clip_norm)


def _empty(group: Group, dimensions: Mapping[str, int]) -> ExactSum:
    return ExactSum(
        {leaf: dimensions[leaf] for leaf in group.leaves},
        clip_norm=group.clip_norm,
        grid=grid_of(group),
        scales=dict(zip(group.leaves, group.scales, strict=True)),
    )


def _unprotected(bound: Bound) -> list[str]:
    return [leaf for group in bound.start if not group.private for leaf in group.leaves]


def _norms(rows: _Rows) -> NDArray[np.float64]:
    """Bound the squared norms of each record and leaf from above (B, L)."""
    squares_BL = np.empty((len(next(iter(rows.values()))), len(rows)))

    for column, values in enumerate(rows.values()):
        squares_BL[:, column] = squared_norms(values)

    return squares_BL


def _rows(records: Records, bound: Bound) -> _Rows:
    """Read each leaf as (B, D). Leaves that are observed come from norms, not from the caller."""
    expected = [leaf for leaf in bound.dimensions if leaf not in bound.observed]

    # Names first, then each leaf by itself, then that they have equally many rows.
    columns = records if isinstance(records, Mapping) else _stacked(records, expected)
    _check_names(columns, expected)
    rows = {leaf: _numbers(leaf, bare(columns[leaf]), bound.dimensions[leaf]) for leaf in expected}

    if len({len(values) for values in rows.values()}) > 1:
        raise ParameterError(
            owner="records",
            name="leaves",
            expected="equally many rows",
            got="different numbers of rows",
        )

    return rows


def bare(values: Any) -> NDArray[Any]:
    """Make a plain array. What is masked is missing, and so not a number."""
    if isinstance(values, np.ma.MaskedArray):
        # No record may raise, whatever it holds.
        with np.errstate(all="ignore"):
            values = np.ma.filled(values.astype(np.float64), np.nan)

    return np.asarray(values)


def _numbers(leaf: str, values: NDArray[Any], dimension: int) -> NDArray[np.floating]:
    """Copy rows of floating-point numbers. No message says how many there are: it is sensitive."""
    # An empty sample may have lost the shape and kind of its rows.
    if values.ndim and not len(values):
        return np.empty((0, dimension))

    numeric = values.dtype.kind in "iubf"
    if not numeric or not values.ndim or math.prod(values.shape[1:]) != dimension:
        shape = f", rows of shape {values.shape[1:]}" if values.ndim else " without rows"
        raise ParameterError(
            owner="records",
            name=leaf,
            expected=f"numbers, one row of {dimension} per record",
            got=f"{values.dtype}{shape}",
        )

    # Narrow kinds stay as they are: their values are exact, and float64 would double the memory.
    kind = values.dtype if values.dtype in (np.float16, np.float32, np.float64) else np.float64

    # What has no float64 is infinite, and contributes nothing. A copy: whoever fills the caller's
    # array anew cannot come between the check of a record and its sum.
    with np.errstate(all="ignore"):
        return values.astype(kind, order="C").reshape(len(values), dimension)


def _stacked(
    records: Sequence[Mapping[str, NDArray[Any]]], leaves: list[str]
) -> dict[str, NDArray[Any]]:
    """Stack a sequence of records: one array per leaf, rows flat."""
    listed = list(records)

    for record in listed:
        _check_names(record, leaves)

    flat = {leaf: [bare(record[leaf]).reshape(-1) for record in listed] for leaf in leaves}

    for leaf, rows in flat.items():
        if len({len(row) for row in rows}) > 1:
            raise ParameterError(
                owner="records",
                name=leaf,
                expected="rows of one size",
                got="rows of different sizes",
            )

    # A sample without records has rows of no known size.
    return {leaf: np.stack(rows) if rows else np.empty(0) for leaf, rows in flat.items()}


def _check_names(columns: Mapping[str, Any], leaves: list[str]) -> None:
    # An unknown leaf is refused too: its records would be left out, unseen.
    if sorted(map(str, columns)) != sorted(leaves):
        raise ParameterError(
            owner="records",
            name="leaves",
            expected=f"exactly {sorted(leaves)}",
            got=str(sorted(map(str, columns))),
        )
