"""Which records of a data set are canaries, and which of these are in it: a fair coin for each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet import _validate as check
from discreet._process import Misuse, SingleUse
from discreet.canaries.scores import array_of
from discreet.errors import ParameterError, RandomnessMisuse
from discreet.randomness import Purpose, Source
from discreet.randomness.draws import bernoulli

__all__ = ["Canaries", "source_or_fresh"]


_COPIED = Misuse(
    RandomnessMisuse,
    expected="coins that stay where they were drawn",
    got="an attempt to copy or pickle them",
    do="Save the scores when the attack is done: they hold the coins.",
)


class Canaries(SingleUse, copied=_COPIED):
    """Records of a plan that are in the data by a fair coin each, so that attacks can be tested.

    A canary is a record like any other: it is among the plan's `records`, is drawn as they are,
    clipped and charged as they are. One that is out is absent: an engine lets it contribute
    nothing, in whatever sample it is drawn. So the data sets with and without a canary are
    neighbours under add-or-remove and zero-out.

    Guarantee: the coins are independent and exactly fair, and independent of samples and noise
    (docs/proofs/auditing.md). They are for whoever audits: an attack must not see them before it
    has made its scores.

    Args:
        places: of the canaries in the data set, each once; public.
        source: of the coins; a fresh one from the operating system by default.

    >>> canaries = Canaries([7, 8, 9])
    >>> canaries.places.tolist(), canaries.inside.shape
    ([7, 8, 9], (3,))
    """

    __slots__ = ("_inside", "_places")

    def __init__(
        self, places: Sequence[int] | NDArray[np.int64], *, source: Source | None = None
    ) -> None:
        super().__init__()
        self._places = _checked_places(places)

        # Exactly fair, from a purpose of their own: samples and noise of the same source know
        # nothing of the coins.
        self._inside = np.zeros(self._places.size, bool)
        bits = source_or_fresh("Canaries", source).stream(Purpose.CANARY, step=0)
        self._inside[bernoulli(bits, 0.5, 0, self._places.size)] = True
        self._places.flags.writeable = self._inside.flags.writeable = False

    def __len__(self) -> int:
        return self._places.size

    @property
    def places(self) -> NDArray[np.int64]:
        """Where the canaries are in the data set, rising; public."""
        return self._places

    @property
    def inside(self) -> NDArray[np.bool_]:
        """Which canaries are in the data. Secret until the attack has made its scores."""
        return self._inside

    def numbers(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """For each record of a sample the number of the canary that it is, -1 if it is none.

        Sensitive, as the sample is.
        """
        # Places are sorted: a record is a canary if the place where it would stand holds it.
        nearest = np.searchsorted(self._places, indices).clip(max=len(self) - 1)
        return np.where(self._places[nearest] == indices, nearest, -1)

    def absent(self, indices: NDArray[np.int64]) -> NDArray[np.bool_]:
        """For records of a sample: whether each is a canary that is out. Sensitive."""
        # The number -1 looks up the last coin, and is thrown away by the comparison.
        numbers = self.numbers(indices)
        return np.asarray((numbers >= 0) & ~self._inside[numbers])

    def __repr__(self) -> str:
        return f"Canaries({len(self)}, in or out: not shown)"


def _checked_places(places: ArrayLike) -> NDArray[np.int64]:
    """Sort the places; an error if they are no whole numbers from 0, or one stands twice."""
    array = array_of(places)
    if array.ndim != 1 or not array.size or array.dtype.kind not in "iu":
        raise _wrong_places(array)

    # As Python's whole numbers: in NumPy an unsigned one could turn negative in the comparison.
    if not 0 <= int(array.min()) <= int(array.max()) < 2**63:
        raise _wrong_places(array)

    # A record that is listed twice would have two coins.
    different = np.unique(array.astype(np.int64))
    if different.size < array.size:
        raise ParameterError(
            owner="Canaries",
            name="places",
            expected="each place once",
            got=f"{array.size} places, {different.size} of them different",
        )

    return different


def _wrong_places(array: NDArray[Any]) -> ParameterError:
    return ParameterError(
        owner="Canaries",
        name="places",
        expected="places in the data set, at least one: whole numbers from 0",
        got=f"{array.dtype}, shape {array.shape}",
    )


def source_or_fresh(owner: str, source: Source | None) -> Source:
    """The source that was passed, else a fresh one from the operating system."""
    if source is None:
        return Source.system()

    return check.instance(owner, "source", source, Source)
