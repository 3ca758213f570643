"""What a loop over a run is given: the records of one sample."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from discreet.errors import SampleMisuse
from discreet.sampling import Sample

__all__ = ["Batch"]


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """The records of one sample, in random order. Sensitive: also how many there are.

    Args:
        sample: that was drawn; serves one `backward`.
        data: what the data set gave, collated; None for an empty sample.
        rows: in a run with canaries: for each record of the random order its row in `data`, -1 if it has none.
    """

    sample: Sample
    data: Any = field(repr=False)
    rows: NDArray[np.int64] | None = field(default=None, repr=False)

    @property
    def step(self) -> int:
        """Number of the step that this batch belongs to, from 0; public."""
        return self.sample.step

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
