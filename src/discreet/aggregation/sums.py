"""Clipped sums of records, exact on the grid: what workers compute and merge before noise is added,
once.

    records -> squared norms -> weights -> integers of the grid -> PartialSums, merged in any order

Everything here is sensitive until `Aggregator.release` has added noise.
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

__all__ = ["PartialSums", "Place", "Records", "bare", "grid_of"]

Records: TypeAlias = Mapping[str, NDArray[Any]] | Sequence[Mapping[str, NDArray[Any]]]
"""Leaf name to an array with one row per record; or a sequence of records, each leaf name to an
array. Sensitive.
"""

Place: TypeAlias = tuple[str, int, int]
"""Of a sample: a name that no other run has, step and batch."""

_Rows: TypeAlias = dict[str, NDArray[np.floating]]
_Slots: TypeAlias = Callable[[int, int, int], NDArray[np.int64]]


class PartialSums:
    """The clipped sums of some records of one sample. Sensitive; workers may send it to one
    another.

    Guarantee: one record moves the integers of each group by at most the group's clip norm,
    exactly, whatever the record holds (with slots: twice that). Without slots, neither the order of
    records nor how they were split and merged matters.

    Args:
        bound: the plan's mechanism, bound to its leaves.
        state: of this step.
        place: of the sample: sums of different samples do not merge, and are not released in each
            other's place.
        piece: number of these sums among those of the sample; a copy has the same, and does not
            merge a second time.
        slots: for groups of microbatches: (group number, records, slots) to the slot of each
            record. None elsewhere.
    """

    __slots__ = (
        "_bound",
        "_pieces",
        "_place",
        "_plain",
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
        place: Place,
        piece: int = 0,
        slots: _Slots | None = None,
    ) -> None:
        self._bound = bound
        self._state = state
        self._place = place
        self._pieces = frozenset({piece})
        self._slots = slots
        self._sums = {
            group.name: _empty(group, bound.dimensions)
            for group in bound.groups(state)
            if group.private
        }
        self._plain = {leaf: np.zeros(bound.dimensions[leaf]) for leaf in _unprotected(bound)}
        self._whole = True
        self.records = 0

    def add(self, records: Records) -> None:
        """Add records; each is clipped by itself. Nothing is added if anything about them is wrong."""
        rows = _rows(records, self._bound)
        groups = self._bound.groups(self._state)
        count = len(next(iter(rows.values())))
        if self.records and any(group.slots for group in groups):
            raise SampleMisuse(
                expected="all records of the sample at once, since slots average over them",
                got="records in several pieces",
                do="Pass all records in one call of add().",
            )
        vectors = {}  # of each group: what is clipped, records or averages of slots
        for number, group in enumerate(groups):
            own = {leaf: rows[leaf] for leaf in group.leaves if leaf in rows}
            vectors[group.name] = (
                own if group.slots is None or not own else self._averages(number, group, own)
            )
        norms = {name: _norms(own) for name, own in vectors.items() if own}
        bits = self._bound.observations(self._state, norms)
        for group in groups:
            vectors[group.name] = vectors[group.name] or {
                leaf: bits[leaf][:, np.newaxis] for leaf in group.leaves
            }
        norms |= {name: _norms(own) for name, own in vectors.items() if name not in norms}
        weights = {
            group.name: group.weights(norms[group.name]) for group in groups if group.private
        }
        with self._changing():
            for group in groups:
                if group.private:
                    self._sums[group.name].add(vectors[group.name], weights[group.name])
                else:
                    for leaf, values in vectors[group.name].items():
                        self._plain[leaf] += values.sum(axis=0, dtype=np.float64)
            self.records += count

    def add_nothing(self, records: int) -> None:
        """Count records of the sample that contribute nothing, as if each were zeroed out: no
        vector, no bit, no slot.
        """
        count = check.whole("PartialSums.add_nothing", "records", records, least=0)
        with self._changing():
            self.records += count

    def merge(self, other: PartialSums) -> None:
        """Add the sums of other records of the same sample, and leave those empty."""
        mine = (self._bound, dict(self._state), self._place)
        again = bool(self._pieces & other._pieces)
        if again or mine != (other._bound, dict(other._state), other._place):
            raise SampleMisuse(
                expected="other sums of the same sample",
                got="sums that are in these already, or a copy of them"
                if again
                else "sums of another sample, state or plan",
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
        with self._changing(), other._changing():
            for name, total in self._sums.items():
                total.merge(other._sums[name])
            for leaf in self._plain:
                self._plain[leaf] += other._plain[leaf]
                other._plain[leaf] = np.zeros_like(other._plain[leaf])
            self._pieces |= other._pieces
            self.records += other.records
            other.records = 0

    def check_complete(self, bound: Bound, state: State, place: Place, records: int) -> None:
        """Refuse sums that are not those of all records of this sample, at this state."""
        self._check_whole()
        alike = (self._bound, dict(self._state), self._place) == (bound, dict(state), place)
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
        """The sum of one group in grid units, leaf after leaf."""
        leaves = list(self._sums[group.name].integers().values())
        return leaves[0] if len(leaves) == 1 else np.concatenate(leaves)

    def unprotected(self, leaf: str) -> NDArray[np.float64]:
        """The plain sum of a leaf that is not private."""
        return self._plain[leaf]

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Whatever interrupts a change leaves the sums unusable: tried again, it could add a record
        twice.
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
        """The average of each slot's records; zeros where a slot is empty. A record that is not
        finite is in no slot.
        """
        if self._slots is None or group.slots is None:
            raise SampleMisuse(
                expected="a source for the slots of records",
                got="none",
                do="Use Aggregator.partial(sample) to make the sums.",
            )
        count = len(next(iter(rows.values())))
        finite = np.all([np.isfinite(values).all(axis=1) for values in rows.values()], axis=0)
        slot = self._slots(number, count, group.slots)[finite]
        sizes = np.maximum(np.bincount(slot, minlength=group.slots), 1)[:, np.newaxis]
        averages: _Rows = {}
        with np.errstate(
            over="ignore", invalid="ignore"
        ):  # what overflows is dropped by the check on the integers
            for leaf, values in rows.items():
                total = np.zeros((group.slots, values.shape[1]))
                np.add.at(total, slot, values[finite])
                averages[leaf] = total / sizes
        return averages


def grid_of(group: Group) -> Grid:
    """The grid on which a group is summed and noised."""
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
    """Upper bounds of squared norms, records x leaves."""
    squares = np.empty((len(next(iter(rows.values()))), len(rows)))
    for column, values in enumerate(rows.values()):
        squares[:, column] = squared_norms(values)
    return squares


def _rows(records: Records, bound: Bound) -> _Rows:
    """Each leaf as (records, dimension)."""
    expected = [leaf for leaf in bound.dimensions if leaf not in bound.observed]
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
    """A plain array. What is masked is missing, and so not a number."""
    if isinstance(values, np.ma.MaskedArray):
        with np.errstate(all="ignore"):  # no record may raise
            values = np.ma.filled(values.astype(np.float64), np.nan)
    return np.asarray(values)


def _numbers(leaf: str, values: NDArray[Any], dimension: int) -> NDArray[np.floating]:
    """Rows of floating-point numbers. No message says how many rows there are: it is sensitive."""
    if values.ndim and not len(
        values
    ):  # an empty sample may have lost the shape and kind of its rows
        return np.empty((0, dimension))
    if (
        values.dtype.kind not in "iubf"
        or not values.ndim
        or math.prod(values.shape[1:]) != dimension
    ):
        got = (
            f"{values.dtype}, rows of shape {values.shape[1:]}"
            if values.ndim
            else f"{values.dtype} without rows"
        )
        raise ParameterError(
            owner="records",
            name=leaf,
            expected=f"numbers, one row of {dimension} per record",
            got=got,
        )
    kind = values.dtype if values.dtype in (np.float16, np.float32, np.float64) else np.float64
    with np.errstate(all="ignore"):  # what has no float64 is infinite, and contributes nothing
        # A copy: whoever fills the caller's array anew cannot come between the check of a record
        # and its sum.
        return values.astype(kind, order="C").reshape(len(values), dimension)


def _stacked(
    records: Sequence[Mapping[str, NDArray[Any]]], leaves: list[str]
) -> dict[str, NDArray[Any]]:
    """A sequence of records as one array per leaf, rows flat."""
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
    return {leaf: np.stack(rows) if rows else np.empty(0) for leaf, rows in flat.items()}


def _check_names(columns: Mapping[str, Any], leaves: list[str]) -> None:
    if sorted(map(str, columns)) != sorted(leaves):
        got = str(sorted(map(str, columns)))
        raise ParameterError(
            owner="records", name="leaves", expected=f"exactly {sorted(leaves)}", got=got
        )
