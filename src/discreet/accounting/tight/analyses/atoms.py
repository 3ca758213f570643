"""A pair given by a list of outcomes: mass p_k under P at the loss l_k, and the mass of P at an
infinite loss.

The list *is* the pair (Q has e^(-l_k) p_k at l_k, and whatever is left elsewhere). Whoever makes
the list proves that it
dominates: more mass, a larger loss, or a spread that keeps the mean of e^(-L) all do
    (docs/proofs/balls_in_bins.md, lemma 2).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from discreet.accounting.tight.interface import Bounds, Cells, Quadrature
from discreet.accounting.tight.rounding import FloatArray, U

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Atoms", "spread_out"]


@dataclass(frozen=True, slots=True, eq=False)
class Atoms:
    """See the header.

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
        kept = self.mass > 1e-300
        return Quadrature(self.loss[kept], np.log(self.mass[kept]))

    def cells(self, edges: FloatArray) -> Cells:
        """Sums over the outcomes of each cell: over p (1 - e^(g - l)), under p (e^(g' - l) - 1)."""
        place = np.searchsorted(edges, self.loss, side="left").astype(
            np.int64
        )  # cell i is (edge i-1, edge i]
        count = len(edges) + 1
        ends = np.concatenate([[-np.inf], edges, [np.inf]])
        over = -np.expm1(ends[place] - self.loss)
        under = np.expm1(np.where(np.isfinite(ends[place + 1]), ends[place + 1] - self.loss, 0.0))
        # Two losses near 1 in size are subtracted: an absolute error of u times their size, and the
        # same in expm1's result.
        shift = 4.0 * U * (1.0 + float(np.max(np.abs(self.loss), initial=0.0)))
        error = 4.0 * U * (8.0 + float(np.max(np.bincount(place, minlength=count))))
        mass = _bounds(place, self.mass, count, error, 0.0)
        above = _bounds(place, self.mass * np.maximum(over, 0.0), count, error, shift, self.mass)
        below = _bounds(
            place,
            self.mass * np.maximum(under, 0.0),
            count,
            error,
            shift,
            self.mass * (1.0 + np.maximum(under, 0.0)),
        )
        for bounds in (mass, above):
            bounds.lower[-1] += self.infinite * (1.0 - 4.0 * U)
            bounds.upper[-1] = (bounds.upper[-1] + self.infinite) * (1.0 + 4.0 * U)
        return Cells(mass, above, below, self.slack)


def _bounds(
    place: NDArray[np.int64],
    value: FloatArray,
    count: int,
    relative: float,
    absolute: float,
    scale: FloatArray | None = None,
) -> Bounds:
    total = np.bincount(place, weights=value, minlength=count).astype(np.float64)
    error = relative * total
    if scale is not None:
        error = error + absolute * np.bincount(place, weights=scale, minlength=count)
    return Bounds(np.maximum(total - error, 0.0), total + error)


def spread_out(loss: FloatArray, mass: FloatArray, spacing: float) -> Atoms:
    """The same outcomes on an equally spaced lattice: each is split between its two neighbours, the
    mean of e^(-L) kept.

    A spread of e^(-L) that keeps its mean is an upper bound (Jensen), to second order in the
    spacing.
    """
    first = np.floor(float(loss[0]) / spacing) - 1.0
    position = loss / spacing - first
    low = np.floor(position).astype(np.int64)
    nodes = spacing * (first + np.arange(int(low[-1]) + 2))
    share = np.clip(-np.expm1(nodes[low] - loss) / -np.expm1(-spacing), 0.0, 1.0)
    onto: FloatArray = np.bincount(low, weights=mass * (1.0 - share), minlength=len(nodes)).astype(
        np.float64
    )
    onto += np.bincount(low + 1, weights=mass * share, minlength=len(nodes))
    most = float(np.max(np.bincount(low)))
    rounding = 8.0 * U * (1.0 + float(np.max(np.abs(loss))))
    # The share is wrong by rounding / spacing at most: both ends get that much more.
    onto[:-1] += np.bincount(low, weights=mass, minlength=len(nodes))[:-1] * rounding / spacing
    onto[1:] += np.bincount(low + 1, weights=mass, minlength=len(nodes))[1:] * rounding / spacing
    return Atoms(nodes, onto * (1.0 + 4.0 * U * (8.0 + most)), 0.0, rounding)
