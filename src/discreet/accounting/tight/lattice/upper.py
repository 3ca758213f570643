"""Measures on the lattice that bound the law of the loss in the order of privacy curves; here, the
one from above.

A measure w on losses stands for the curve D(eps) = sum_i w_i (1 - e^(eps - l_i))_+ plus the mass at
infinity. With Z = e^(-L), the integrand is convex and decreasing in Z, and so is that of a
composition in each of its factors. Hence (docs/proofs/tight.md, section 3):

* **spread** (upper bound): within a cell, move the mass to the two ends so that the mean of Z
  stays: Jensen. This is "connecting the dots" [DoroshenkoEtAl2022]. What lies below the first node
  is moved up to it; what lies beyond the last is spread between it and infinity.
* **gather** (lower bound, `lower.py`): put mass from both sides of a node together so that its
  likelihood ratio P/Q is at least e^node. This is a (randomised) post-processing followed by
  rounding down: data processing and monotonicity.

Both are exact to second order in the spacing, with opposite signs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from discreet.accounting.tight.interface import Direction
from discreet.accounting.tight.lattice.nodes import Lattice
from discreet.accounting.tight.rounding import FloatArray, U

__all__ = ["Measure", "spread"]


@dataclass(frozen=True, slots=True)
class Measure:
    """Mass on nodes `offset + spacing * index`.

    Attributes:
        infinite: mass at infinity, only in an upper bound.
        slack: every loss must be moved outward by this (rounding of the edges).
        lean: worth that a gathered measure's fullest node has left over, per mass: the lattice had
            better be moved by it.
    """

    offset: float
    spacing: float
    index: NDArray[np.int64]
    mass: FloatArray
    infinite: float
    slack: float
    lean: float = 0.0

    @property
    def loss(self) -> FloatArray:
        """The losses at the nodes."""
        return self.offset + self.spacing * self.index.astype(np.float64)


def spread(direction: Direction, grid: Lattice) -> Measure:
    """The upper bound: every cell's mass at its two ends, the mean of e^(-L) kept.

    A cell (g, g'] gives over/(1 - e^(g-g')) to g' and under/(e^(g'-g) - 1) to g.
    """
    loss = grid.loss
    cells = direction.cells(loss)
    width = grid.spacing * np.diff(grid.index)
    outward = 1.0 + 16.0 * U

    # A true cell may stick out of its nominal ends by the slack: it is spread between ends that far
    # out (section 3, inexact edges).
    slack = np.full(len(loss), cells.slack) if cells.slack_of is None else cells.slack_of
    stray = 1.1 * np.maximum(slack[:-1], slack[1:]) * cells.mass.upper[1:-1]
    mass = np.zeros(len(loss))
    mass[1:] += (cells.over.upper[1:-1] + stray) / -np.expm1(-width) * outward
    mass[:-1] += (cells.under.upper[1:-1] + stray * np.exp(width)) / np.expm1(width) * outward

    # What lies below the first node is moved up to it; what lies beyond the last node is split
    # between it and infinity.
    mass[0] += cells.mass.upper[0]
    mass[-1] += cells.mass.upper[-1]
    beyond = float(cells.over.upper[-1] + 1.1 * slack[-1] * cells.mass.upper[-1])
    position = 16.0 * U * (float(np.max(np.abs(loss))) + abs(grid.offset))
    return Measure(
        grid.offset,
        grid.spacing,
        grid.index,
        mass * outward,
        beyond,
        float(np.max(slack)) + position,
    )
