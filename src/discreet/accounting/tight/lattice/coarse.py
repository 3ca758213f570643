"""Many different steps: neighbours are put together, on the safe side for each end of the bracket.

A Poisson sample with a larger probability, or a sum with less noise, never costs less
(docs/proofs/calibration.md, 1 and 2: data processing, step by step, hence under composition). So
costs that are alike may all be replaced by the one with their largest probability and least noise
for an upper bound, and by the opposite for a lower one.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from discreet.accounting.costs import Cost, PoissonGaussian

if TYPE_CHECKING:
    from discreet.accounting.normalise import Counted

__all__ = ["MOST", "coarse"]

MOST = 48
"""Different costs beyond which neighbours are put together; each takes a transform of its
own.
"""

_RATIOS = (1.0003, 1.001, 1.003, 1.01, 1.03, 1.1, 1.3, 2.0, 10.0, 1e3, 1e30, 1e300)


def coarse(costs: Counted, *, upper: bool) -> Counted:
    """At most about `MOST` costs whose composition comes to at least (`upper`) or at most what these
    cost.
    """
    alike = [(cost, count) for cost, count in costs if isinstance(cost, PoissonGaussian)]
    others: list[tuple[Cost, int]] = [
        (cost, count) for cost, count in costs if not isinstance(cost, PoissonGaussian)
    ]
    for ratio in _RATIOS:
        cells: dict[tuple[int, int, bool], list[tuple[PoissonGaussian, int]]] = {}
        for cost, count in alike:
            cells.setdefault(_cell(cost, math.log(ratio)), []).append((cost, count))
        if len(cells) <= MOST:
            break
    return tuple(
        others
        + [
            (_one_for_all([cost for cost, _ in cell], upper=upper), _total(cell))
            for cell in cells.values()
        ]
    )


def _cell(cost: PoissonGaussian, width: float) -> tuple[int, int, bool]:
    return (
        math.floor(math.log(cost.probability) / width),
        math.floor(math.log(cost.noise_multiplier) / width),
        cost.replace,
    )


def _one_for_all(costs: list[PoissonGaussian], *, upper: bool) -> PoissonGaussian:
    most, least = (max, min) if upper else (min, max)
    return replace(
        costs[0],
        probability=most(cost.probability for cost in costs),
        noise_multiplier=least(cost.noise_multiplier for cost in costs),
    )


def _total(cell: list[tuple[PoissonGaussian, int]]) -> int:
    return sum(count for _, count in cell)
