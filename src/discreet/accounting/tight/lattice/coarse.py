"""Many different steps: neighbours are put together, on the safe side for each end of the bracket.

A Poisson sample with a larger probability, or a sum with less noise, never costs less
(docs/proofs/calibration.md, 1 and 2: data processing, step by step, hence under composition). So
costs that are alike may all be replaced by the one with their largest probability and least noise
for an upper bound, and by the opposite for a lower one.
"""

from __future__ import annotations

import math
from dataclasses import replace

from discreet.accounting.costs import Cost, PoissonGaussian
from discreet.accounting.normalise import Counted

__all__ = ["MOST", "coarse"]

# With more different costs, neighbours are put together: each takes a transform of its own.
MOST = 48

# Ratios of probabilities, and of noise multipliers, that count as alike: the first that leaves few
# enough costs is taken.
_RATIOS = (1.0003, 1.001, 1.003, 1.01, 1.03, 1.1, 1.3, 2.0, 10.0, 1e3, 1e30, 1e300)


def coarse(costs: Counted, *, upper: bool) -> Counted:
    """At most about `MOST` costs whose composition comes to at least (`upper`) or at most what
    these come to.
    """
    # Only of Poisson samples is it proven how they compare; all other costs stay as they are.
    unchanged: list[tuple[Cost, int]] = []
    poisson: list[tuple[PoissonGaussian, int]] = []

    for cost, count in costs:
        if isinstance(cost, PoissonGaussian):
            poisson.append((cost, count))
        else:
            unchanged.append((cost, count))

    # The last ratio puts all of one adjacency together, so the loop always ends with few cells.
    for ratio in _RATIOS:
        cells: dict[tuple[int, int, bool], list[tuple[PoissonGaussian, int]]] = {}
        for cost, count in poisson:
            cells.setdefault(_cell(cost, math.log(ratio)), []).append((cost, count))

        if len(cells) <= MOST:
            break

    return (*unchanged, *(_joined(cell, upper=upper) for cell in cells.values()))


def _cell(cost: PoissonGaussian, width: float) -> tuple[int, int, bool]:
    """The cell of a grid in ln probability and ln noise; adjacencies are never put together."""
    return (
        math.floor(math.log(cost.probability) / width),
        math.floor(math.log(cost.noise_multiplier) / width),
        cost.replace,
    )


def _joined(cell: list[tuple[PoissonGaussian, int]], *, upper: bool) -> tuple[PoissonGaussian, int]:
    """One cost for all of a cell, with their total count, on the safe side of every one of them."""
    # More probability and less noise lose more: the worst of both for an upper bound.
    of_probabilities, of_multipliers = (max, min) if upper else (min, max)
    joined = replace(
        cell[0][0],
        probability=of_probabilities(cost.probability for cost, _ in cell),
        noise_multiplier=of_multipliers(cost.noise_multiplier for cost, _ in cell),
    )
    return joined, sum(count for _, count in cell)
