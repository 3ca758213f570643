"""Clipped sums of records, exact on the grid: what workers compute and merge before noise is added, once.

    records -> squared norms -> weights -> integers of the grid -> PartialSums, merged in any order

Everything here is sensitive until `Aggregator.release` has added noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from discreet.errors import ParameterError, SampleMisuse
from discreet.mechanisms import Bound, Group, State
from discreet.numerics import ExactSum, Grid, squared_norms
from discreet.sampling import Sample

__all__ = ["PartialSums", "Records", "grid_of"]

Records: TypeAlias = Mapping[str, NDArray[Any]] | Sequence[Mapping[str, NDArray[Any]]]
"""Leaf name to an array with one row per record; or a sequence of records, each leaf name to an array. Sensitive."""

_Rows: TypeAlias = dict[str, NDArray[np.floating]]
_Slots: TypeAlias = Callable[[int, int, int], NDArray[np.int64]]


class PartialSums:
    """The clipped sums of some records of one sample. Sensitive; workers may send it to one another.

    Guarantee: one record moves the integers of each group by at most the group's clip norm, exactly, whatever the record holds
    (with slots: twice that). The sums do not depend on the order of records or on how they were split and merged.

    Args:
        bound: the plan's mechanism, bound to its leaves.
        state: of this step.
        place: of the sample (step, batch): sums of different samples do not merge.
        piece: number of these sums among those of the sample; a copy has the same, and does not merge a second time.
        slots: for groups of microbatches: (group number, records, slots) to the slot of each record. None elsewhere.
    """

    __slots__ = ("_bound", "_pieces", "_place", "_plain", "_slots", "_state", "_sums", "records", "shapes")

    def __init__(
        self, bound: Bound, state: State, *, place: tuple[int, int], piece: int = 0, slots: _Slots | None = None
    ) -> None:
        self._bound = bound
        self._state = state
        self._place = place
        self._pieces = frozenset({piece})
        self._slots = slots
        self._sums = {group.name: _empty(group, bound.dimensions) for group in bound.groups(state) if group.private}
        self._plain = {leaf: np.zeros(bound.dimensions[leaf]) for leaf in _unprotected(bound)}
        self.records = 0
        self.shapes: dict[str, tuple[int, ...]] = {}

    def add(self, records: Records) -> None:
        """Add records; each is clipped by itself. Nothing is added if anything about them is wrong."""
        rows, shapes = _rows(records, self._bound, self.shapes)
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
            vectors[group.name] = own if group.slots is None or not own else self._averages(number, group, own)
        norms = {name: _norms(own) for name, own in vectors.items() if own}
        bits = self._bound.observations(self._state, norms)
        for group in groups:
            own = vectors[group.name] or {leaf: bits[leaf][:, np.newaxis] for leaf in group.leaves}
            if group.private:
                self._sums[group.name].add(own, group.weights(norms.get(group.name, _norms(own))))
            else:
                for leaf, values in own.items():
                    self._plain[leaf] += values.sum(axis=0, dtype=np.float64)
        self.records += count
        self.shapes = shapes

    def merge(self, other: PartialSums) -> None:
        """Add the sums of other records of the same sample, and leave those empty."""
        mine = (self._bound, dict(self._state), self._place)
        again = bool(self._pieces & other._pieces)
        if again or mine != (other._bound, dict(other._state), other._place):
            raise SampleMisuse(
                expected="other sums of the same sample",
                got="sums that are in these already, or a copy of them" if again else "sums of another sample, state or plan",
                do="Merge each worker's sums of this sample once; each worker starts from sums of its own.",
            )
        if any(group.slots for group in self._bound.start):
            raise SampleMisuse(
                expected="all records of the sample in one place, since slots average over them",
                got="sums from several places",
                do="Gather the records, then add them in one call.",
            )
        for name, total in self._sums.items():
            total.merge(other._sums[name])
        for leaf in self._plain:
            self._plain[leaf] += other._plain[leaf]
            other._plain[leaf] = np.zeros_like(other._plain[leaf])
        self._pieces |= other._pieces
        self.records += other.records
        self.shapes = self.shapes or other.shapes
        other.records = 0

    def check_complete(self, bound: Bound, state: State, sample: Sample) -> None:
        """Refuse sums that are not those of all records of this sample, at this state."""
        alike = (self._bound, dict(self._state), self._place) == (bound, dict(state), (sample.step, sample.batch))
        if not alike or self.records != len(sample):
            raise SampleMisuse(
                expected="one row for each record of the sample, each added once",
                got="another number of rows" if alike else "sums of another sample or state",
                do="Compute records for exactly sample.indices (or sample.units), also for an empty sample.",
            )

    def integers(self, group: Group) -> NDArray[np.float64]:
        """The sum of one group in grid units, leaf after leaf."""
        return np.concatenate(list(self._sums[group.name].integers().values()))

    def unprotected(self, leaf: str) -> NDArray[np.float64]:
        """The plain sum of a leaf that is not private."""
        return self._plain[leaf]

    def _averages(self, number: int, group: Group, rows: _Rows) -> _Rows:
        """The average of each slot's records; zeros where a slot is empty. A record that is not finite is in no slot."""
        if self._slots is None or group.slots is None:
            raise SampleMisuse(
                expected="a source for the slots of records", got="none", do="Use Aggregator.partial(sample) to make the sums."
            )
        count = len(next(iter(rows.values())))
        finite = np.all([np.isfinite(values).all(axis=1) for values in rows.values()], axis=0)
        slot = self._slots(number, count, group.slots)[finite]
        sizes = np.maximum(np.bincount(slot, minlength=group.slots), 1)[:, np.newaxis]
        averages: _Rows = {}
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows is dropped by the check on the integers
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
    return np.stack([squared_norms(values) for values in rows.values()], axis=1)


def _rows(records: Records, bound: Bound, known: Mapping[str, tuple[int, ...]]) -> tuple[_Rows, dict[str, tuple[int, ...]]]:
    """Each leaf as (records, dimension), and its own shape."""
    expected = [leaf for leaf in bound.dimensions if leaf not in bound.observed]
    if not isinstance(records, Mapping) and not len(records):  # an empty sample, which has no shapes to tell
        return {leaf: np.empty((0, bound.dimensions[leaf])) for leaf in expected}, dict(known)
    columns = records if isinstance(records, Mapping) else _stacked(records, expected)
    if sorted(columns) != sorted(expected):
        raise ParameterError(
            owner="records", name="leaves", expected=f"exactly {sorted(expected)}", got=str(sorted(map(str, columns)))
        )
    rows, shapes = {}, {}
    for leaf in expected:
        values = np.asarray(columns[leaf])
        if values.dtype.kind in "iub":
            values = values.astype(np.float64)
        shape = values.shape[1:]
        if values.dtype.kind != "f" or not values.ndim or math.prod(shape) != bound.dimensions[leaf]:
            wanted = f"numbers, one row of {bound.dimensions[leaf]} per record"
            got = f"{values.dtype} of shape {values.shape}"
            raise ParameterError(owner="records", name=leaf, expected=wanted, got=got)
        if known.get(leaf, shape) != shape:
            raise ParameterError(owner="records", name=leaf, expected=f"rows of shape {known[leaf]}", got=str(shape))
        rows[leaf] = values.reshape(len(values), bound.dimensions[leaf])
        shapes[leaf] = shape
    if len({len(values) for values in rows.values()}) > 1:
        raise ParameterError(owner="records", name="leaves", expected="equally many rows", got="different numbers of rows")
    return rows, shapes


def _stacked(records: Iterable[Mapping[str, NDArray[Any]]], leaves: list[str]) -> dict[str, NDArray[Any]]:
    """A sequence of records as one array per leaf."""
    listed = list(records)
    for record in listed:
        if sorted(record) != sorted(leaves):
            raise ParameterError(owner="records", name="leaves", expected=f"exactly {sorted(leaves)}", got=str(sorted(record)))
    return {leaf: np.stack([np.asarray(record[leaf]) for record in listed]) for leaf in leaves}
