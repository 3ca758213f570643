"""A mixture of pairs whose index is shown: with probability w_j the attacker faces the pair (P_j,
Q_j), and knows j.

    D(eps) = sum_j w_j D_j(eps),

so every cell's mass, over and under are the weighted sums of those of the parts. If each part
dominates what happens in its case, and the case has the same probability under both data sets, the
mixture dominates; so does one with larger weights, whose sum may exceed 1
(docs/proofs/truncated.md, lemmas 1 and 2).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from discreet.accounting.tight.interface import Bounds, Cells, Direction, Quadrature
from discreet.accounting.tight.rounding import FloatArray, U

__all__ = ["Mixture", "Part"]


@dataclass(frozen=True, slots=True)
class Part:
    """One pair of a mixture with its weight: a probability, rounded up where it is not known
    exactly.
    """

    weight: float
    direction: Direction


@dataclass(frozen=True, slots=True)
class Mixture:
    """The pairs of `parts`, one of them drawn and shown."""

    parts: tuple[Part, ...]

    def quadrature(self) -> Quadrature:
        """All nodes of all parts, by increasing loss."""
        nodes = [
            (part.direction.quadrature(), part.weight) for part in self.parts if part.weight > 0.0
        ]
        loss = np.concatenate([found.loss for found, _ in nodes])
        weight = np.concatenate([found.log_weight + np.log(share) for found, share in nodes])
        order = np.argsort(loss, kind="stable")
        return Quadrature(loss[order], weight[order])

    def cells(self, edges: FloatArray) -> Cells:
        """Weighted sums, rounded outward."""
        found = [(part, part.direction.cells(edges)) for part in self.parts if part.weight > 0.0]
        return Cells(
            _sum([(part, cells.mass) for part, cells in found]),
            _sum([(part, cells.over) for part, cells in found]),
            _sum([(part, cells.under) for part, cells in found]),
            max(cells.slack for _, cells in found),
        )


def _sum(terms: list[tuple[Part, Bounds]]) -> Bounds:
    error = 4.0 * (1.0 + len(terms)) * U
    lower = sum((part.weight * bounds.lower for part, bounds in terms), start=np.zeros(1))
    upper = sum((part.weight * bounds.upper for part, bounds in terms), start=np.zeros(1))
    return Bounds(lower * (1.0 - error), upper * (1.0 + error))
