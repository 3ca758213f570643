"""The lower bound: mass from both sides of a node, put together in balance.

Legend: node j has the cell A_j to its left (from the cut below) and B_j to its right (up to the cut
above). Their *worth* at a node g is P - e^g Q, summed over what is put there; if it is not
negative, the likelihood ratio of what was put together is at least e^g, and rounding it down to g
is a lower bound. A node's own A has negative worth there (-under), its own B positive (over). A
part of A_j may go down to node j-1 or j-2, where it has positive worth; a part of B_j may go up to
node j+1 or j+2, where it has negative worth. Parts are random and independent of the data, so this
is post-processing.

How much goes where decides tightness only. Solved here so that every node is balanced, to all
orders in the spacing: from both ends inward by moves between neighbours; these conserve the
alternating sum of the worths, so what is left at the centre (a node with much mass on both sides)
is removed by one move across two nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from discreet.accounting.tight.lattice.upper import Measure
from discreet.accounting.tight.rounding import FloatArray, U

if TYPE_CHECKING:
    from discreet.accounting.tight.interface import Direction
    from discreet.accounting.tight.lattice.nodes import Lattice

__all__ = ["gather"]

_IN = 1.0 - 16.0 * U
_OUT = 1.0 + 16.0 * U


@dataclass(frozen=True, slots=True)
class _Worth:
    """Certified worth of each cell: `under`, `up`, `up2` from above (they count negative), `over`,
    `down`, `down2` from below.

    `down[j]` is that of A_j at node j-1, `down2[j]` at node j-2; `up[j]` that of B_j at node j+1,
    `up2[j]` at node j+2.
    """

    left: FloatArray
    right: FloatArray
    under: FloatArray
    over: FloatArray
    down: FloatArray
    down2: FloatArray
    up: FloatArray
    up2: FloatArray


@dataclass(frozen=True, slots=True)
class _Parts:
    """Which part of A_j goes to nodes j, j-1, j-2, and of B_j to nodes j, j+1, j+2; each three sum
    to 1 at most.
    """

    a0: FloatArray
    a1: FloatArray
    a2: FloatArray
    b0: FloatArray
    b1: FloatArray
    b2: FloatArray


def gather(direction: Direction, grid: Lattice) -> Measure:
    """A measure on the nodes whose privacy curve is below the true one; see the header."""
    worth, slack = _worth(direction, grid)
    parts = _parts(worth)
    positive = parts.b0 * worth.over
    positive[:-1] += (parts.a1 * worth.down)[1:]
    positive[:-2] += (parts.a2 * worth.down2)[2:]
    near = parts.a0 * worth.left
    near[1:] += (parts.b1 * worth.right)[:-1]
    far = np.zeros_like(near)
    far[2:] = (parts.b2 * worth.right)[:-2]
    negative = _negative(worth, parts)
    # Whatever is not balanced after all goes, by rounding down, to a node below every loss in it.
    kept = np.minimum(
        1.0,
        np.divide(positive, negative, where=negative > 0.0, out=np.full_like(negative, 2.0)) * _IN,
    )
    mass = kept * (near + far) + parts.b0 * worth.right
    mass[:-1] += (parts.a1 * worth.left)[1:] + ((1.0 - kept) * near)[1:]
    mass[:-2] += (parts.a2 * worth.left)[2:] + ((1.0 - kept) * far)[2:]
    slack += 16.0 * U * (float(np.max(np.abs(grid.loss))) + abs(grid.offset))
    centre = _centre(worth)
    lean = float((positive - negative)[centre]) / max(
        float(worth.left[centre] + worth.right[centre]), 1e-300
    )
    return Measure(grid.offset, grid.spacing, grid.index, mass * _IN, 0.0, slack, lean)


def _negative(worth: _Worth, parts: _Parts) -> FloatArray:
    negative = parts.a0 * worth.under
    negative[1:] += (parts.b1 * worth.up)[:-1]
    negative[2:] += (parts.b2 * worth.up2)[:-2]
    return negative


def _worth(direction: Direction, grid: Lattice) -> tuple[_Worth, float]:
    """With w the distance to the other node: down = P (1 - e^-w) - e^-w under, up = P (e^w - 1) -
    e^w over.
    """
    edges = np.empty(2 * len(grid.index) - 1)
    edges[0::2], edges[1::2] = grid.loss, grid.cut_loss
    cells = direction.cells(edges)
    left, right = cells.mass.lower[0::2].copy(), cells.mass.lower[1::2]
    most = cells.mass.upper[1::2]
    under, over = cells.under.upper[0::2].copy(), cells.over.lower[1::2]
    left[0] = under[0] = (
        0.0  # what lies below the first node is dropped: it may be all of the mass that the tilt leaves behind
    )
    index = grid.index.astype(np.float64)
    one = grid.spacing * np.diff(index)
    two = grid.spacing * (index[2:] - index[:-2])

    def down(w: FloatArray, k: int) -> FloatArray:
        value = left[k:] * -np.expm1(-w) * _IN - np.exp(-w) * under[k:] * _OUT
        return np.concatenate([np.zeros(k), np.maximum(value, 0.0)])

    def up(w: FloatArray, k: int) -> FloatArray:
        value = most[:-k] * np.expm1(w) * _OUT - np.exp(w) * over[:-k] * _IN
        return np.concatenate([np.maximum(value, 0.0), np.zeros(k)])

    return _Worth(
        left, right, under, over, down(one, 1), down(two, 2), up(one, 1), up(two, 2)
    ), 1.1 * cells.slack


def _parts(worth: _Worth) -> _Parts:
    centre = _centre(worth)
    share = _balance(worth, centre)
    lower, raised = np.maximum(share, 0.0), np.maximum(-share, 0.0)
    count = len(worth.under)
    parts = _Parts(
        1.0 - lower[:-1],
        lower[:-1].copy(),
        np.zeros(count),
        1.0 - raised[1:],
        raised[1:].copy(),
        np.zeros(count),
    )
    _finish(worth, parts, centre)
    return parts


def _centre(worth: _Worth) -> int:
    """The node to balance last: one that holds most of the mass alone, or else one with much mass
    on both sides.
    """
    both = worth.left + worth.right
    fattest = int(np.argmax(both[1:-1])) + 1
    if both[fattest] > 0.5 * float(both.sum()):
        return fattest
    return 1 + int(np.argmax(np.minimum(np.minimum(both[:-2], both[1:-1]), both[2:])))


def _balance(worth: _Worth, centre: int) -> FloatArray:
    """Moves between neighbours that balance every node but the centre, solved from both ends
    inward, where the density grows.

    share[j] belongs to the cut below node j: positive, the part of A_j that goes down; negative,
    that of B_(j-1) that goes up.
    """
    count = len(worth.under)
    share = [0.0] * (count + 1)
    lacks, has, gain, cost = (
        worth.under.tolist(),
        worth.over.tolist(),
        worth.down.tolist(),
        worth.up.tolist(),
    )
    for j in range(count - 1, centre, -1):
        above = share[j + 1]
        balance = has[j] - lacks[j] + above * (gain[j + 1] if above > 0.0 else has[j])
        if balance < 0.0:
            share[j] = -balance / lacks[j] if -balance < lacks[j] else 1.0
        elif cost[j - 1] > 0.0:
            share[j] = -balance / cost[j - 1] if balance < cost[j - 1] else -1.0
    for j in range(centre):
        below = share[j]
        balance = has[j] - lacks[j] + below * (cost[j - 1] if below < 0.0 else lacks[j])
        if balance < 0.0 and gain[j + 1] > 0.0:
            share[j + 1] = -balance / gain[j + 1] if -balance < gain[j + 1] else 1.0
        elif balance > 0.0 and has[j] > 0.0:
            share[j + 1] = -balance / has[j] if balance < has[j] else -1.0
    return np.array(share)


def _finish(worth: _Worth, parts: _Parts, c: int) -> None:
    """Balance the centre c too, by one move across it and two between neighbours; nothing if the
    parts do not suffice.

    Excess at c: A_(c+1) goes down to c-1 (worth at both rises), then B_(c-1) up to c and B_c up to
        c+1 (both fall, c twice).
    Lack at c: B_(c-1) goes up to c+1 (worth at both falls), then A_c down to c-1 and A_(c+1) down
        to c (both rise).
    """
    rest = float(
        parts.b0[c] * worth.over[c]
        + parts.a1[c + 1] * worth.down[c + 1]
        - _negative(worth, parts)[c]
    )
    if rest > 0.0:
        across = _solve(
            rest,
            (worth.down2[c + 1], worth.over[c - 1], worth.up[c - 1]),
            (worth.under[c + 1], worth.up[c], worth.over[c]),
        )
        if across is None:
            return
        move, first, second = across
        if move <= parts.a0[c + 1] and first <= parts.b0[c - 1] and second <= parts.b0[c]:
            parts.a0[c + 1] -= move
            parts.a2[c + 1] += move
            parts.b0[c - 1] -= first
            parts.b1[c - 1] += first
            parts.b0[c] -= second
            parts.b1[c] += second
    elif rest < 0.0:
        across = _solve(
            -rest,
            (worth.over[c - 1], worth.down[c], worth.under[c]),
            (worth.up2[c - 1], worth.under[c + 1], worth.down[c + 1]),
        )
        if across is None:
            return
        move, first, second = across
        if move <= parts.b0[c - 1] and first <= parts.a0[c] and second <= parts.a0[c + 1]:
            parts.b0[c - 1] -= move
            parts.b2[c - 1] += move
            parts.a0[c] -= first
            parts.a1[c] += first
            parts.a0[c + 1] -= second
            parts.a1[c + 1] += second


def _solve(
    rest: float, low: tuple[float, float, float], high: tuple[float, float, float]
) -> tuple[float, float, float] | None:
    """Parts (move, first, second) so that the worths of c-1, c, c+1 change by 0, rest, 0 in the
    wanted sense.

    low = (effect of the move on c-1, effect of `first` on c-1, effect of `first` on c); high =
    (effect of the move on c+1, effect of `second` on c+1, effect of `second` on c), all as positive
    numbers.
    """
    if min(low[1], high[1]) <= 0.0:
        return None
    per_move = low[0] / low[1] * low[2] + high[0] / high[1] * high[2]
    if per_move <= 0.0:
        return None
    move = rest / per_move
    return move, move * low[0] / low[1], move * high[0] / high[1]
