"""What a loop over a run is given: the records of one sample."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NoReturn, final

import numpy as np
from numpy.typing import NDArray

from discreet.errors import SampleMisuse
from discreet.sampling import Sample

__all__ = ["Batch"]


@final
class Batch:
    """The records of one sample, in random order. Sensitive: also how many there are.

    The first batch of a run is drawn, and charged, when something of it is asked for: so that `backward` can try the loss on
    made-up records before anything is charged.

    Args:
        sample: that was drawn; serves one `backward`.
        data: what the data set gave, collated; None for an empty sample, and for one of canaries that are out.
        rows: in a run with canaries: for each record of the random order its row in `data`, -1 if it has none.
    """

    __slots__ = ("_content", "_draw")

    def __init__(self, sample: Sample, data: Any, rows: NDArray[np.int64] | None = None) -> None:
        self._content: tuple[Sample, Any, NDArray[np.int64] | None] | None = (sample, data, rows)
        self._draw: Callable[[], Batch] | None = None

    @classmethod
    def later(cls, draw: Callable[[], Batch]) -> Batch:
        """A batch that is drawn when something of it is asked for."""
        batch = cls.__new__(cls)
        batch._content, batch._draw = None, draw  # noqa: SLF001  (its own constructor)
        return batch

    @classmethod
    def first_of(cls, batches: Iterator[Batch], kept_alive: list[object]) -> Batch:
        """The first batch of a run, drawn when it is used, so that the loss can be tried before anything is charged.

        Until then it keeps the loop alive that it comes from, also for who only takes `next(run.batches(...))`.
        """

        def draw() -> Batch:
            try:
                return next(batches)
            finally:
                kept_alive.clear()

        return cls.later(draw)

    @property
    def pending(self) -> bool:
        """Whether it was not drawn yet."""
        return self._content is None

    @property
    def sample(self) -> Sample:
        """The sample that was drawn."""
        return self._drawn()[0]

    @property
    def data(self) -> Any:
        """What the data set gave, collated; sensitive."""
        return self._drawn()[1]

    @property
    def rows(self) -> NDArray[np.int64] | None:
        """In a run with canaries, where each record is in `data`; sensitive."""
        return self._drawn()[2]

    @property
    def step(self) -> int:
        """Number of the step that this batch belongs to, from 0; public."""
        return self.sample.step

    def _drawn(self) -> tuple[Sample, Any, NDArray[np.int64] | None]:
        if self._content is None and self._draw is not None:
            self._content = self._draw()._drawn()  # noqa: SLF001  (another of its own)
            self._draw = None
        if self._content is None:
            raise SampleMisuse(expected="a batch that was drawn", got="one that was not", do="Take it from run.batches().")
        return self._content

    def __repr__(self) -> str:
        return "Batch(not drawn yet)" if self.pending else f"Batch(step={self.step})"  # never how many records there are

    def __iter__(self) -> NoReturn:
        """A batch is not unpacked: for who writes `for images, labels in run.batches(...)`."""
        raise SampleMisuse(
            expected="a batch that goes to run.backward(loss, batch) as it is",
            got="one that is unpacked or indexed",
            do="Unpack what the function loss(model, data) is given; in the loop itself the records are batch.data.",
        )

    def __getitem__(self, key: object) -> NoReturn:
        """As `__iter__`: for who writes `batch[0]`."""
        iter(self)
