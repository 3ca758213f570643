"""Many different steps: neighbours are put together, on the safe side for each end of the bracket.

A Poisson sample with a larger probability, or a sum with less noise, never costs less
(docs/proofs/calibration.md, 1 and 2: data processing, step by step, hence under composition). So
leaves that are alike may all be replaced by the one with their largest probability and least noise
for an upper bound, and by the opposite for a lower one.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from discreet.accounting.costs import Leaf, PoissonGaussian

if TYPE_CHECKING:
    from discreet.accounting.normalise import Counted

__all__ = ["MOST", "coarse"]

MOST = 48
"""Different leaves beyond which neighbours are put together; each leaf costs a transform of its
own.
"""

_RATIOS = (1.0003, 1.001, 1.003, 1.01, 1.03, 1.1, 1.3, 2.0, 10.0, 1e3, 1e30, 1e300)


def coarse(leaves: Counted, *, upper: bool) -> Counted:
    """At most about `MOST` leaves whose composition costs at least (`upper`) or at most what these
    cost.
    """
    alike = [(leaf, count) for leaf, count in leaves if isinstance(leaf, PoissonGaussian)]
    others: list[tuple[Leaf, int]] = [
        (leaf, count) for leaf, count in leaves if not isinstance(leaf, PoissonGaussian)
    ]
    for ratio in _RATIOS:
        cells: dict[tuple[int, int, bool], list[tuple[PoissonGaussian, int]]] = {}
        for leaf, count in alike:
            cells.setdefault(_cell(leaf, math.log(ratio)), []).append((leaf, count))
        if len(cells) <= MOST:
            break
    return tuple(
        others
        + [
            (_one_for_all([leaf for leaf, _ in cell], upper=upper), _total(cell))
            for cell in cells.values()
        ]
    )


def _cell(leaf: PoissonGaussian, width: float) -> tuple[int, int, bool]:
    return (
        math.floor(math.log(leaf.probability) / width),
        math.floor(math.log(leaf.noise_multiplier) / width),
        leaf.replace,
    )


def _one_for_all(leaves: list[PoissonGaussian], *, upper: bool) -> PoissonGaussian:
    most, least = (max, min) if upper else (min, max)
    return replace(
        leaves[0],
        probability=most(leaf.probability for leaf in leaves),
        noise_multiplier=least(leaf.noise_multiplier for leaf in leaves),
    )


def _total(cell: list[tuple[PoissonGaussian, int]]) -> int:
    return sum(count for _, count in cell)
