"""One sample: the records of one batch, to be used once."""

from __future__ import annotations

import threading

import numpy as np
from numpy.typing import NDArray

from discreet._process import Misuse, SingleUse
from discreet.errors import SampleMisuse
from discreet.ledger.events import Sampling

__all__ = ["Sample"]


_COPIED = Misuse(
    SampleMisuse,
    expected="a sample that stays where it was drawn",
    do="A copy could be used a second time: hand on the array of positions.",
)
_FORKED = Misuse(
    SampleMisuse,
    expected="the process that drew the sample",
    got="a fork of it, which could use it a second time",
    do="Hand the array of positions to workers, not the sample.",
)


class Sample(SingleUse, copied=_COPIED, forked=_FORKED):
    """The records that one batch of one step sees. Sensitive: who is in it, and how many are.

    Made by `Sampler.draw`, and by nothing else. It serves one release: `spend()` works once. It
    cannot be copied, pickled or carried into a fork, where it could serve a second one.

    Attributes:
        step: number of the ledger's step, public.
        batch: number of the batch within the step, public; 0 unless the policy draws an epoch at
            once.
        event: the sampling policy that it was drawn by, public.
    """

    __slots__ = (
        "_issuer",
        "_offsets",
        "_rows",
        "_token",
        "_units",
        "batch",
        "event",
        "step",
    )

    def __init__(
        self,
        *,
        issuer: object,
        event: Sampling,
        place: tuple[int, int],
        units: NDArray[np.int64],
        grouped: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None,
    ) -> None:
        super().__init__()
        self.event = event
        self.step, self.batch = place
        self._issuer = issuer

        # Taken once, also when two threads try at the same time, and never given back.
        self._token = threading.Lock()

        # Nobody can write to them: what was drawn is what is released.
        self._units = _read_only(units)
        self._rows = None if grouped is None else _read_only(grouped[0])
        self._offsets = None if grouped is None else _read_only(grouped[1])

    @property
    def indices(self) -> NDArray[np.int64]:
        """Positions of the records in the data set, sorted, where every record is one row.
        Sensitive, read-only.

        Raises:
            SampleMisuse: units own several rows here; a position could be taken for a unit or for a
                row.
        """
        if self._rows is not None:
            raise SampleMisuse(
                expected="a sample whose records are rows",
                got="a sample of units that own rows",
                do="Use `units`, or `rows` with `offsets`, and clip the sum over each unit's rows.",
            )

        return self.units

    @property
    def units(self) -> NDArray[np.int64]:
        """Numbers of the units drawn, sorted. Sensitive, read-only."""
        self._refuse_fork()
        return self._units

    @property
    def rows(self) -> NDArray[np.int64]:
        """Positions of the rows drawn, unit after unit; without owners the same as `units`.
        Sensitive, read-only.
        """
        self._refuse_fork()
        return self._units if self._rows is None else self._rows

    @property
    def offsets(self) -> NDArray[np.int64]:
        """Where each unit's rows begin: unit i of the sample has rows[offsets[i]:offsets[i+1]].
        Sensitive, read-only.
        """
        self._refuse_fork()
        if self._offsets is not None:
            return self._offsets

        # Every unit is one row.
        return _read_only(np.arange(len(self) + 1, dtype=np.int64))

    def __len__(self) -> int:
        """Number of records (units) drawn. Sensitive."""
        return int(self._units.size)

    def __bool__(self) -> bool:
        """Refused: an empty sample is a sample, and a loop that skips it runs another mechanism
        (P28).
        """
        raise SampleMisuse(
            expected="every sample to be used, also an empty one",
            got="a test whether it is empty",
            do="Take the step: an empty sample releases noise alone.",
        )

    def issued_by(self, draw: object) -> bool:
        """Whether this sample came from that draw, not from another sampler, run or data set."""
        self._refuse_fork()
        return self._issuer is draw

    def spend(self) -> None:
        """Use the sample up. Call it before its release.

        Raises:
            SampleMisuse: it was used before, or this is a fork.
        """
        self._refuse_fork()

        # Without waiting: whoever comes second is told so, also from another thread.
        if not self._token.acquire(blocking=False):
            raise SampleMisuse(
                expected="a sample that was not used before",
                got=f"the sample of step {self.step}, batch {self.batch} a second time",
                do="Take the next sample from the draw: each is charged for one release.",
            )

    def __repr__(self) -> str:
        return (
            f"Sample(step={self.step}, batch={self.batch}, event={self.event!r}, records not shown)"
        )


def _read_only(array: NDArray[np.int64]) -> NDArray[np.int64]:
    array.setflags(write=False)
    return array
