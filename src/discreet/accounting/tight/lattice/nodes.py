"""Where the nodes of the lattice go: fine where the tilted loss lives, coarse in its tails.

All nodes are `offset + spacing * index` with whole indices, so that losses add by adding indices.
Around the centre every index is a node. Further out, where the tilted law has little mass, each
node stands for an interval three times as long, then nine times, and so on: lengths ..., 3, 3, 1,
1, 1, 3, 3, ... with every node in the middle of its interval, which only powers of three allow on
whole indices. A unit of mass in an interval of length d loses of the order d^2 of tightness
(docs/proofs/tight.md, section 3), so level j begins where the tilted mass beyond is below
27^-j / 8, and all tails together lose a small part of what the centre does. Which nodes are chosen
has no effect on soundness.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from discreet.accounting.tight.interface import Quadrature
from discreet.accounting.tight.rounding import FloatArray, OutOfRangeError

__all__ = ["Lattice", "Scope", "lattice", "scope"]

# Levels of coarseness on either side of the centre.
_LEVELS = 14

# The most nodes on either side of the centre.
_MOST_NODES = 400_000


@dataclass(frozen=True, slots=True)
class Scope:
    """What the lattice must cover, as losses.

    Attributes:
        centre: where the tilted law has most of its mass.
        low: level boundaries below the centre, descending.
        high: level boundaries above the centre, ascending.
        least: loss below which hardly any tilted mass comes from.
        greatest: loss above which hardly any untilted mass lies.
    """

    centre: float
    low: FloatArray
    high: FloatArray
    least: float
    greatest: float


@dataclass(frozen=True, slots=True)
class Lattice:
    """Nodes `offset + spacing * index`, and the cut between each node and the next, in the same
    unit of index.
    """

    offset: float
    spacing: float
    index: NDArray[np.int64]
    cut: FloatArray

    @property
    def loss(self) -> FloatArray:
        """The losses at the nodes."""
        return self.offset + self.spacing * self.index.astype(np.float64)

    @property
    def cut_loss(self) -> FloatArray:
        """The losses at the cuts."""
        return self.offset + self.spacing * self.cut


def scope(nodes: Quadrature, theta: float, width: float, beyond: float, below: float) -> Scope:
    """Find what the lattice must cover, from quantiles of the loss tilted by `theta`.

    Args:
        nodes: the law of the loss.
        theta: exponent of the tilt.
        width: of the window whose fullest place is the centre.
        beyond: untilted mass that may be left above the last node.
        below: tilted mass that may come from below the first node.
    """
    exponent = nodes.log_weight + theta * nodes.loss
    tilted = np.exp(exponent - exponent.max())
    tilted /= tilted.sum()
    count = len(tilted)

    # Level boundaries: quantiles of the tilted law, from either side.
    from_left = np.cumsum(tilted)
    from_right = np.cumsum(tilted[::-1])  # by decreasing loss
    mass = 27.0 ** -np.arange(1, _LEVELS + 1) / 8.0
    high = nodes.loss[np.minimum(count - np.searchsorted(from_right, mass), count - 1)]
    low = nodes.loss[np.maximum(np.searchsorted(from_left, mass) - 1, 0)]

    # The last node: what lies above goes to infinity as it is, without the tilt.
    plain = np.exp(np.minimum(nodes.log_weight, 0.0))
    above = np.searchsorted(np.cumsum(plain[::-1]), beyond)
    greatest = nodes.loss[min(count - int(above), count - 1)]

    # The first node: all mass below is moved up to it, and is then tilted there.
    moved = np.log(np.cumsum(plain) + 1e-300) + theta * nodes.loss
    total = float(exponent.max()) + float(np.log(np.exp(exponent - exponent.max()).sum()))
    least = nodes.loss[max(int(np.searchsorted(moved, total + np.log(below))) - 1, 0)]

    centre = _fullest_place(nodes.loss, tilted, from_left, width)
    return Scope(
        centre,
        np.minimum(low, centre),
        np.maximum(high, centre),
        min(least, centre),
        max(greatest, centre),
    )


def _fullest_place(
    loss: FloatArray, mass: FloatArray, mass_below: FloatArray, width: float
) -> float:
    """Loss -ln(mean of e^-L) of the window of this width that holds most mass, so that a node lies
    in the middle of it.

    A sparse sample leaves most of the mass in a window far shorter than the spacing; it must not be
    split.
    """
    after = np.searchsorted(loss, loss + width, side="right") - 1
    begin = int(np.argmax(mass_below[after] - mass_below + mass))
    fullest = slice(begin, int(after[begin]) + 1)
    middle = float(np.sum(loss[fullest] * mass[fullest]) / np.sum(mass[fullest]))

    # The window moves with its middle; a few rounds settle it.
    for _ in range(4):
        window = slice(
            int(np.searchsorted(loss, middle - 0.5 * width)),
            int(np.searchsorted(loss, middle + 0.5 * width)),
        )
        total = float(mass[window].sum())
        if total <= 0.0:
            break

        middle -= math.log(float(np.sum(np.exp(middle - loss[window]) * mass[window])) / total)

    return middle


def lattice(area: Scope, spacing: float, offset: float, longest: int) -> Lattice:
    """Lay nodes over the scope; no interval is longer than `longest` indices."""
    up, cut_up = _side(area.high - offset, area.greatest - offset, spacing, longest)
    down, cut_down = _side(offset - area.low, offset - area.least, spacing, longest)
    index = np.concatenate([-down[::-1], [0], up])
    cut = np.concatenate([-cut_down[::-1], cut_up])
    return Lattice(offset, spacing, index.astype(np.int64), cut)


def _side(
    bounds: FloatArray, end: float, spacing: float, longest: int
) -> tuple[FloatArray, FloatArray]:
    """Nodes and cuts on one side of the centre, as distances: level j begins at bounds[j-1]; the
    last node is past the end.
    """
    lengths: list[int] = []
    numbers: list[int] = []
    edge, length, total = 0.5, 1, 0

    for begin in [*bounds[: _LEVELS - 1].tolist(), np.inf]:
        until = min(begin, end) / spacing

        # One more than needed, so that lengths never jump by more than 3.
        number = max(1, math.ceil((until - edge) / length) + 1)
        total += number
        if total > _MOST_NODES:
            raise OutOfRangeError(
                expected=f"a lattice of at most {_MOST_NODES} nodes",
                got=f"a loss up to {end:.4g} at spacing {spacing:.3g}",
                do="Ask for a larger tolerance.",
            )

        lengths.append(length)
        numbers.append(number)
        edge += length * number
        if begin >= end:
            break

        length = length * 3 if length * 3 <= longest else length

    each = np.repeat(np.array(lengths, dtype=np.float64), numbers)
    ends = 0.5 + np.cumsum(each)  # halves of whole numbers: exact
    return ends - 0.5 * each, ends - each
