"""What a loop over a run is given: the records of one sample."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NoReturn, TypeAlias, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from discreet.errors import SampleMisuse
from discreet.sampling import Sample
from discreet.training.data.trees import Portion, mapped
from discreet.training.separation.marks import mark_dataset

__all__ = ["Batch"]

_UNPACK = (
    "Unpack what the function loss(model, data) is given; in the loop itself the records are "
    "batch.data."
)
_MOVE = (
    "Move what the function loss(model, data) is given, such as images.to(device), and the model."
)

_Content: TypeAlias = tuple[Sample, Portion | None, NDArray[np.int64] | None]
"""Sample, portion, rows."""


@final
class Batch:
    """The records of one sample, in random order. Sensitive: also how many there are.

    The first batch of a run is drawn, and charged, when something of it is asked for: so that
    `backward` can try the loss on made-up records before anything is charged.

    Args:
        sample: that was drawn; serves one `backward`.
        portion: what the data set gave, collated; or rows of the data set itself, which each pass
            fetches into its places. None for an empty sample, and for one of canaries that are out.
        rows: in a run with canaries: for each record of the random order its row in the portion, -1
            if it has none.
    """

    __slots__ = ("_content", "_draw")

    def __init__(
        self, sample: Sample, portion: Portion | None, rows: NDArray[np.int64] | None = None
    ) -> None:
        # A plain copy of what was collated: from here on no code of a user's class runs.
        if portion is not None and portion.places is None:
            portion = Portion(mapped(portion.batch, lambda leaf: leaf))

        self._content: _Content | None = (sample, portion, rows)
        self._draw: Callable[[], Batch] | None = None

    @classmethod
    def later(cls, draw: Callable[[], Batch]) -> Batch:
        """A batch that is drawn when something of it is asked for."""
        batch = cls.__new__(cls)
        batch._content, batch._draw = None, draw  # noqa: SLF001  (its own constructor)
        return batch

    @classmethod
    def first_of(cls, batches: Iterator[Batch], kept_alive: list[object]) -> Batch:
        """The first batch of a run, drawn when it is used, so that the loss can be tried before
        anything is charged.

        Until then it keeps the loop alive that it comes from, also for who only takes
        `next(run.batches(...))`.
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
        """A copy of what the data set gave, collated; sensitive. In a pass it is nobody's own: a
        loss must not use it.
        """
        portion = self.portion
        if portion is None:
            return None

        # Rows of the data set are fetched here: that is a copy.
        if portion.places is not None:
            return mapped(portion.take(torch.arange(len(portion.places))), _marked)

        return mapped(portion.batch, _marked_copy)

    @property
    def portion(self) -> Portion | None:
        """What the data set gave, as the run itself uses it; sensitive."""
        return self._drawn()[1]

    @property
    def rows(self) -> NDArray[np.int64] | None:
        """In a run with canaries, where each record is in the portion; sensitive."""
        return self._drawn()[2]

    @property
    def step(self) -> int:
        """Number of the step that this batch belongs to, from 0; public."""
        return self.sample.step

    def _drawn(self) -> _Content:
        if self._content is None and self._draw is not None:
            self._content = self._draw()._drawn()  # noqa: SLF001  (another of its own)
            self._draw = None

        if self._content is None:
            raise SampleMisuse(
                expected="a batch that was drawn",
                got="one that was not",
                do="Take it from run.batches().",
            )

        return self._content

    def __repr__(self) -> str:
        # Never how many records there are: that is sensitive.
        return "Batch(not drawn yet)" if self.pending else f"Batch(step={self.step})"

    # --- what a batch of torch can do, and this one cannot ---

    def __iter__(self) -> NoReturn:
        """Unpacking raises: for who writes `for images, labels in run.batches(...)`."""
        raise _misuse("one that is unpacked or indexed", _UNPACK)

    def __getitem__(self, key: object) -> NoReturn:
        """Indexing raises: for who writes `batch[0]`."""
        raise _misuse("one that is unpacked or indexed", _UNPACK)

    def keys(self) -> NoReturn:
        """Asking for keys raises: for who writes `model(**batch)`."""
        raise _misuse("one that is taken for a dictionary", _UNPACK)

    def items(self) -> NoReturn:
        """Asking for items raises: for who moves them one by one."""
        raise _misuse("one that is taken for a dictionary", _UNPACK)

    def to(self, *_: object) -> NoReturn:
        """Moving raises: for who writes `batch.to(device)`."""
        raise _misuse("one that is moved to a device", _MOVE)

    def cuda(self, *_: object) -> NoReturn:
        """Moving raises, as with `to`."""
        raise _misuse("one that is moved to a device", _MOVE)

    def cpu(self) -> NoReturn:
        """Moving raises, as with `to`."""
        raise _misuse("one that is moved to a device", _MOVE)

    @classmethod
    def checked(cls, batch: object) -> Batch:
        """The batch, if it is one of a run.

        Raises:
            SampleMisuse: it is something else, such as what a loop over a DataLoader gives.
        """
        if isinstance(batch, cls):
            return batch

        raise SampleMisuse(
            expected="a batch of this run, which was charged before it was drawn",
            got=f"an object of the class {type(batch).__name__}",
            do="Loop over the run: `for batch in run.batches(loader): run.backward(loss, batch)`.",
        )


def _marked_copy(leaf: Any) -> Any:
    return _marked(leaf.clone()) if isinstance(leaf, Tensor) else leaf


def _marked(leaf: Any) -> Any:
    # As the data set's own memory, which no pass may use past what a loss is given.
    if isinstance(leaf, Tensor):
        mark_dataset(leaf)

    return leaf


def _misuse(got: str, do: str) -> SampleMisuse:
    return SampleMisuse(
        expected="a batch that goes to run.backward(loss, batch) as it is", got=got, do=do
    )
