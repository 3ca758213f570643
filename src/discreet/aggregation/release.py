"""What leaves the engine: noised sums, and the public numbers that belong to them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Release"]


@dataclass(frozen=True, slots=True, eq=False)
class Release(Mapping[str, NDArray[np.float64]]):
    """Noised sums by leaf. Whatever is computed from them costs nothing more.

    Args:
        step, batch: of the sample in the run.
        sums: the noised sum of each leaf, in the leaf's own unit, as one axis of its dimension:
            were it the shape that records had, an empty sample, which has no records to tell it,
            would show.
        noise_std: standard deviation of the noise on every coordinate of the sum, by leaf.
        divisors: what turns a sum into an average: the expected batch size, or the number of slots.
            Never a realised size.
    """

    step: int
    batch: int
    sums: Mapping[str, NDArray[np.float64]]
    noise_std: Mapping[str, float]
    divisors: Mapping[str, float]

    # A mapping of leaf names to noised sums; everything in it is public.

    def __getitem__(self, leaf: str) -> NDArray[np.float64]:
        return self.sums[leaf]

    def __iter__(self) -> Iterator[str]:
        return iter(self.sums)

    def __len__(self) -> int:
        return len(self.sums)

    def mean(self, leaf: str) -> NDArray[np.float64]:
        """Divide the sum by the public divisor."""
        return self.sums[leaf] / self.divisors[leaf]
