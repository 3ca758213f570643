"""A pair given by a list of outcomes: mass p_k under P at the loss l_k, and the mass of P at an
infinite loss.

The list *is* the pair (Q has e^(-l_k) p_k at l_k, and whatever is left elsewhere). Whoever makes
the list proves that it dominates: more mass, a larger loss, or a spread that keeps the mean of
e^(-L) all do (docs/proofs/balls_in_bins.md, lemma 2; docs/proofs/tight.md, section 1).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from discreet.accounting.tight.interface import Bounds, Cells, Quadrature
from discreet.accounting.tight.rounding import FloatArray, U

__all__ = ["Atoms", "spread_out", "with_infinite"]


@dataclass(frozen=True, slots=True, eq=False)
class Atoms:
    """A pair with finitely many outcomes.

    Args:
        loss: l_k, strictly increasing.
        mass: p_k, not negative.
        infinite: mass of P at an infinite loss.
        slack: by how much each l_k may be too small, through rounding.
    """

    loss: FloatArray
    mass: FloatArray
    infinite: float
    slack: float

    def quadrature(self) -> Quadrature:
        """The outcomes that have mass."""
        positive = self.mass > 1e-300
        return Quadrature(self.loss[positive], np.log(self.mass[positive]))

    def cells(self, edges: FloatArray) -> Cells:
        """Sums over the outcomes of each cell: over p (1 - e^(g - l)), under p (e^(g' - l) - 1)."""
        # Cell i is (edge i-1, edge i]: an outcome on an edge belongs to the cell under it.
        place = np.searchsorted(edges, self.loss, side="left").astype(np.int64)
        ends = np.concatenate([[-np.inf], edges, [np.inf]])
        upper_end = ends[place + 1]
        over = np.maximum(-np.expm1(ends[place] - self.loss), 0.0)
        gap = np.where(np.isfinite(upper_end), upper_end - self.loss, 0.0)
        under = np.maximum(np.expm1(gap), 0.0)

        # Two losses near 1 in size are subtracted: an absolute error of u times their size, and the
        # same in expm1's result.
        shift = 4.0 * U * (1.0 + float(np.max(np.abs(self.loss), initial=0.0)))
        sums = _CellSums(place, len(edges) + 1)
        mass = sums.bounds(self.mass)
        above = sums.bounds(self.mass * over, shift, self.mass)
        below = sums.bounds(self.mass * under, shift, self.mass * (1.0 + under))
        return Cells(
            with_infinite(mass, self.infinite),
            with_infinite(above, self.infinite),
            below,
            self.slack,
        )


@dataclass(frozen=True, slots=True)
class _CellSums:
    """Sums of numbers over the outcomes of each cell; outcome k lies in the cell `place[k]`."""

    place: NDArray[np.int64]
    count: int

    def bounds(
        self, value: FloatArray, absolute: float = 0.0, scale: FloatArray | None = None
    ) -> Bounds:
        """Bounds on the sums of non-negative values, each wrong by a few units in the last place
        and by `absolute` times its scale.
        """
        fullest = float(np.max(np.bincount(self.place, minlength=self.count)))
        total = np.bincount(self.place, weights=value, minlength=self.count).astype(np.float64)
        error = 4.0 * U * (8.0 + fullest) * total
        if scale is not None:
            error = error + absolute * np.bincount(self.place, weights=scale, minlength=self.count)

        return Bounds(np.maximum(total - error, 0.0), total + error)


def with_infinite(bounds: Bounds, infinite: float) -> Bounds:
    """The bounds with mass at an infinite loss, which lies in the last cell, rounded outward."""
    bounds.lower[-1] += infinite * (1.0 - 4.0 * U)
    bounds.upper[-1] = (bounds.upper[-1] + infinite) * (1.0 + 4.0 * U)
    return bounds


def spread_out(loss: FloatArray, mass: FloatArray, spacing: float) -> Atoms:
    """Move outcomes to an equally spaced lattice: each is split between its two neighbours, the
    mean of e^(-L) kept.

    A spread of e^(-L) that keeps its mean is an upper bound (Jensen), to second order in the
    spacing.
    """
    first = np.floor(float(loss[0]) / spacing) - 1.0
    low = np.floor(loss / spacing - first).astype(np.int64)
    nodes = spacing * (first + np.arange(int(low[-1]) + 2))
    count = len(nodes)
    share = np.clip(-np.expm1(nodes[low] - loss) / -np.expm1(-spacing), 0.0, 1.0)
    onto: FloatArray = np.bincount(low, weights=mass * (1.0 - share), minlength=count).astype(
        np.float64
    )
    onto += np.bincount(low + 1, weights=mass * share, minlength=count)

    # The share is wrong by rounding / spacing at most: both ends get that much more.
    rounding = 8.0 * U * (1.0 + float(np.max(np.abs(loss))))
    onto[:-1] += np.bincount(low, weights=mass, minlength=count)[:-1] * rounding / spacing
    onto[1:] += np.bincount(low + 1, weights=mass, minlength=count)[1:] * rounding / spacing
    fullest = float(np.max(np.bincount(low)))
    return Atoms(nodes, onto * (1.0 + 4.0 * U * (8.0 + fullest)), 0.0, rounding)
