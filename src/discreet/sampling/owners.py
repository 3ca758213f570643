"""Which rows belong to which unit, where a unit of privacy owns several rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet import _validate as check
from discreet.errors import ParameterError
from discreet.randomness.draws import smallest_keys
from discreet.randomness.source import Stream
from discreet.units import Unit

__all__ = ["Owners"]

# More rows than anybody owns: no limit, as a number.
_ALL_ROWS = 2**62


class Owners:
    """The rows of each unit. Sensitive, except for `unit` and, where it is declared, the number of
    units.

    >>> owners = Owners.from_ids(["ann", "bob", "ann", "eve"])
    >>> owners.units, owners.unit.name
    (3, 'user')
    """

    __slots__ = ("_begins", "_rows", "unit")

    def __init__(self, begins: NDArray[np.int64], rows: NDArray[np.int64], unit: Unit) -> None:
        self._begins = begins  # unit u owns rows[begins[u] : begins[u+1]]
        self._rows = rows
        self.unit = check.instance("Owners", "unit", unit, Unit)

    @classmethod
    def from_ids(
        cls, ids: Sequence[int] | Sequence[str] | NDArray[np.generic], unit: Unit = Unit.USER
    ) -> Owners:
        """From the owner of each row; units are numbered in the order of their ids.

        Args:
            ids: one whole number or text per row, sensitive. Numbers with a fraction and missing
                values are refused: rows without an owner would be nobody's, and their owner's rows
                not bounded together.
            unit: what an owner is, public.
        """
        array = _whole_or_text(ids)
        if array is None:
            raise ParameterError(
                owner="Owners.from_ids",
                name="ids",
                expected="one whole number or text per row, all of one kind",
                got=f"something else in a {type(ids).__name__}",
                do="Give every row an owner; a row without one can be its own.",
            )

        # Rows sorted by their owner, in their order within it: unit u owns one piece of the list.
        _, number, counts = np.unique(array, return_inverse=True, return_counts=True)
        begins = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        return cls(begins, np.argsort(number, kind="stable").astype(np.int64, copy=False), unit)

    @property
    def units(self) -> int:
        """How many units there are."""
        return self._begins.size - 1

    def grouped(
        self, units: NDArray[np.int64], most_rows: int | None, stream: Stream
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The rows of some units, unit after unit, and where each unit's rows begin.

        A unit that owns more than `most_rows` rows gives a uniformly random subset of that many.
        Its choice does not depend on which other units are asked for.

        Args:
            units: numbers of the units, sensitive.
            most_rows: of one unit, public; None takes all.
            stream: used for nothing else.
        """
        # The rows with the smallest random keys: a uniform subset, by bits that belong to the row.
        starts, stops = self._begins[units], self._begins[units + 1]
        limit = _ALL_ROWS if most_rows is None else most_rows
        places = smallest_keys(stream, starts, stops, limit)
        counts = np.minimum(stops - starts, limit)
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        return self._rows[places], offsets

    def __repr__(self) -> str:
        return f"Owners(unit={self.unit.name!r}, rows not shown)"


def _whole_or_text(ids: object) -> NDArray[np.generic] | None:
    """The ids as an array, if none is missing; NumPy alone would turn a missing one into the text
    "nan".

    It also drops null characters at the end of a text: two owners would become one, and each of
    them could move its record by twice the clip norm.
    """
    # An array of numbers or texts is taken as it is. In all else, masked arrays included, a value
    # may be missing, so that each is looked at.
    array = (
        ids
        if isinstance(ids, np.ndarray)
        and not isinstance(ids, np.ma.MaskedArray)
        and ids.dtype.kind != "O"
        else _listed(ids)
    )

    # Numbers with a fraction are refused: 1.0 and 1.0000000000000001 would be one owner.
    if array is None or array.ndim != 1 or not array.size or array.dtype.kind not in "iuUS":
        return None

    return array


def _listed(ids: object) -> NDArray[np.generic] | None:
    """Ids that are Python objects, as an array, if all are whole numbers or all are texts."""
    listed: list[Any] = list(ids) if isinstance(ids, Iterable) else [None]

    # By the kinds that occur, which are few, and not by the owners, who are many.
    kinds = set(map(type, listed))
    if all(issubclass(kind, str) for kind in kinds):
        has_hidden_end = any(owner.endswith("\0") for owner in listed)
        return None if has_hidden_end else np.asarray(listed)

    # True would be the owner 1.
    has_numbers = bool not in kinds and all(issubclass(kind, int | np.integer) for kind in kinds)
    return np.asarray(listed) if has_numbers else None
