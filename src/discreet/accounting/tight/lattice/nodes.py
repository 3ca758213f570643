"""Where the nodes of the lattice go: fine where the tilted loss lives, coarse in its tails.

All nodes are `offset + spacing * index` with whole indices, so that losses add by adding indices.
Around the centre every index is a node. Further out, where the tilted law has little mass, each
node stands for an interval three times as
long, then nine times, and so on: lengths ..., 3, 3, 1, 1, 1, 3, 3, ... with every node in the
middle of its interval, which only powers of three allow on whole indices. A unit of mass in an
interval of length d costs of the order d^2, so level j begins where the tilted mass beyond is below
27^-j / 8, and all tails together cost a small part of the centre.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from discreet.accounting.tight.rounding import FloatArray, OutOfRangeError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from discreet.accounting.tight.interface import Quadrature

__all__ = ["Lattice", "Scope", "lattice", "scope"]

_LEVELS = 14
_MOST_NODES = 400_000


@dataclass(frozen=True, slots=True)
class Scope:
    """What the lattice must cover: the tilted law's centre, its level boundaries, and its ends."""

    centre: float
    low: FloatArray
    high: FloatArray
    least: float
    most: float


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
        """The nodes."""
        return self.offset + self.spacing * self.index.astype(np.float64)

    @property
    def cut_loss(self) -> FloatArray:
        """The cuts."""
        return self.offset + self.spacing * self.cut


def scope(nodes: Quadrature, theta: float, width: float, beyond: float, below: float) -> Scope:
    """Quantiles of the loss, tilted by `theta`.

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
    left = np.cumsum(tilted)
    right = np.cumsum(tilted[::-1])[::-1]
    plain = np.cumsum(np.exp(np.minimum(nodes.log_weight, 0.0))[::-1])[::-1]
    last = len(tilted) - 1
    mass = 27.0 ** -np.arange(1, _LEVELS + 1) / 8.0
    high = nodes.loss[np.minimum(len(tilted) - np.searchsorted(right[::-1], mass), last)]
    low = nodes.loss[np.maximum(np.searchsorted(left, mass) - 1, 0)]
    most = nodes.loss[min(len(tilted) - int(np.searchsorted(plain[::-1], beyond)), last)]
    # All mass below the first node is moved up to it, and is then tilted there.
    moved = (
        np.log(np.cumsum(np.exp(np.minimum(nodes.log_weight, 0.0))) + 1e-300) + theta * nodes.loss
    )
    total = float(exponent.max()) + float(np.log(np.exp(exponent - exponent.max()).sum()))
    least = nodes.loss[max(int(np.searchsorted(moved, total + np.log(below))) - 1, 0)]
    centre = _fattest(nodes.loss, tilted, left, width)
    return Scope(
        centre,
        np.minimum(low, centre),
        np.maximum(high, centre),
        min(least, centre),
        max(most, centre),
    )


def _fattest(loss: FloatArray, mass: FloatArray, left: FloatArray, width: float) -> float:
    """Loss -ln(mean of e^-L) of the window of this width that holds most mass, so that a node lies
    in the middle of it.

    A sparse sample leaves most of the mass in a window far shorter than the spacing; it must not be
    split.
    """
    after = np.searchsorted(loss, loss + width, side="right") - 1
    begin = int(np.argmax(left[after] - left + mass))
    middle = float(
        np.average(loss[begin : int(after[begin]) + 1], weights=mass[begin : int(after[begin]) + 1])
    )
    for _ in range(4):
        window = slice(
            int(np.searchsorted(loss, middle - 0.5 * width)),
            int(np.searchsorted(loss, middle + 0.5 * width)),
        )
        if mass[window].sum() <= 0.0:
            break
        middle -= float(np.log(np.average(np.exp(middle - loss[window]), weights=mass[window])))
    return middle


def lattice(area: Scope, spacing: float, offset: float, longest: int) -> Lattice:
    """Nodes over the scope; no interval is longer than `longest` indices."""
    up, cut_up = _side(area.high - offset, area.most - offset, spacing, longest)
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
        number = max(
            1, math.ceil((until - edge) / length) + 1
        )  # one more, so that lengths never jump by more than 3
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
