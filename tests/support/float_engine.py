"""An engine in a few lines of NumPy that does what docs/proofs/sums.md, section 6, asks for;
additions in the worst order.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from discreet.mechanisms import Group
from discreet.numerics import Grid, ghost_squared_norms, l2_norms, outer_spread
from discreet.training.rounding import precision
from discreet.training.rounding.precision import LARGEST_INPUT, Chunk

Float32 = NDArray[np.float32]


@dataclass(frozen=True)
class Leaf:
    """The factors of one leaf's gradients, sum_t a_t b_t^T: (records, T, p) and (records, T, q)."""

    a: Float32
    b: Float32
    chunk: Chunk

    @property
    def dimension(self) -> int:
        return int(self.a.shape[2] * self.b.shape[2])


def weights_of(leaves: Sequence[Leaf], inner: Group, spread: float) -> NDArray[np.float64]:
    """Norms and spreads, certified, record by record; zero for a record with a number that is too
    large or none.
    """
    squares = np.stack(
        [
            ghost_squared_norms(leaf.a.astype(np.float64), leaf.b.astype(np.float64))
            for leaf in leaves
        ],
        axis=1,
    )
    spreads = np.stack([outer_spread(leaf.a, leaf.b) for leaf in leaves], axis=1)
    weights = inner.weights(precision.raised_squares(squares, spreads, limit=spread))
    for leaf in leaves:
        for vectors in (leaf.a, leaf.b):
            lengths = l2_norms(vectors.reshape(-1, vectors.shape[2])).reshape(vectors.shape[:2])
            weights[~np.all(lengths <= LARGEST_INPUT, axis=1)] = 0.0
    return np.asarray(weights)


def released(
    leaves: Sequence[Leaf],
    weights: NDArray[np.float64],
    order: Sequence[int],
    group: Group,
    grid: Grid,
) -> NDArray[np.float64]:
    """Sums on the grid, in grid units: places cut by the chunk, float32 inside, one product after
    the other, float64 across.
    """
    sums = []
    for leaf, scale in zip(leaves, group.scales, strict=True):
        factors = precision.sum_weights(weights, scale=scale).astype(np.float32)
        total = np.zeros((leaf.a.shape[2], leaf.b.shape[2]))
        for start in range(0, len(order), leaf.chunk.records):
            for first in range(0, leaf.a.shape[1], leaf.chunk.positions):
                part = np.zeros_like(total, dtype=np.float32)
                for i in order[start : start + leaf.chunk.records]:
                    if factors[i] == 0.0:
                        continue
                    for t in range(first, min(first + leaf.chunk.positions, leaf.a.shape[1])):
                        part = part + np.outer(leaf.a[i, t], leaf.b[i, t] * factors[i])
                total += part
        sums.append(total.ravel())
    return grid.integers(np.concatenate(sums))
