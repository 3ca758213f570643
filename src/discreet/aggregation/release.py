"""What leaves the engine: noised sums, and the public numbers that belong to them."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.mechanisms import Group
from discreet.sampling import Sample

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

    @classmethod
    def of(
        cls,
        sample: Sample,
        groups: Iterable[tuple[Group, Mapping[str, NDArray[np.float64]]]],
        expected_batch_size: float,
    ) -> Release:
        """Bring the noised sums of groups into the units of their leaves, in place.

        Args:
            sample: which step and batch they are of.
            groups: each with its noised sums by leaf, in the unit in which it is clipped.
            expected_batch_size: of the plan; public.
        """
        sums: dict[str, NDArray[np.float64]] = {}
        noise_std, divisors = {}, {}

        for group, noised in groups:
            divisor = group.divisor(expected_batch_size)
            for leaf, scale in zip(group.leaves, group.scales, strict=True):
                # A table is released where its rows are read.
                if leaf not in noised:
                    continue

                sums[leaf] = noised[leaf]

                # In place, as the sums of a large model fill its memory; most leaves have scale 1.
                if scale != 1.0:
                    sums[leaf] *= scale

                # The group's noise is in the unit in which it clips, hence scaled back as well.
                noise_std[leaf] = group.noise_std * scale
                divisors[leaf] = divisor

        return cls(sample.step, sample.batch, sums, noise_std, divisors)

    def without(self, leaves: Container[str]) -> Release:
        """Leave out leaves whose sums went elsewhere, such as into gradients."""
        return replace(
            self,
            sums=_without(self.sums, leaves),
            noise_std=_without(self.noise_std, leaves),
            divisors=_without(self.divisors, leaves),
        )

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


def _without(values: Mapping[str, Any], leaves: Container[str]) -> dict[str, Any]:
    return {leaf: value for leaf, value in values.items() if leaf not in leaves}
