"""The lower bound: mass from both sides of a node, put together in balance.

Legend: node j has the cell A_j to its left (from the cut below) and B_j to its right (up to the cut
above). Their *worth* at a node g is P - e^g Q, summed over what is put there; if it is not
negative, the likelihood ratio of what was put together is at least e^g, and rounding it down to g
is a lower bound. A node's own A has negative worth there (-under), its own B positive (over). A
part of A_j may go down to node j-1 or j-2, where it has positive worth; a part of B_j may go up to
node j+1 or j+2, where it has negative worth. Parts are random and independent of the data, so this
is post-processing (docs/proofs/tight.md, section 3, "Gather").

How much goes where decides tightness only. Solved here so that every node is balanced, to all
orders in the spacing: from both ends inward by moves between neighbours; these conserve the
alternating sum of the worths, so what is left at the centre (a node with much mass on both sides)
is removed by one move across two nodes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from discreet.accounting.tight.interface import Direction
from discreet.accounting.tight.lattice.nodes import Lattice
from discreet.accounting.tight.lattice.upper import Measure
from discreet.accounting.tight.rounding import FloatArray, U

__all__ = ["gather_cells"]

_IN = 1.0 - 16.0 * U
_OUT = 1.0 + 16.0 * U


@dataclass(frozen=True, slots=True)
class _Worth:
    """Certified masses of the cells A_j and B_j, and their worth at the nodes around; entry j of
    each array belongs to node j.

    Attributes:
        mass_a, mass_b: of A_j and B_j, from below.
        under: what A_j lacks at node j, from above (it counts negative).
        over: what B_j has at node j, from below.
        down, down2: what A_j has at node j-1 and at node j-2, from below.
        up, up2: what B_j lacks at node j+1 and at node j+2, from above (it counts negative).
    """

    mass_a: FloatArray
    mass_b: FloatArray
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


def gather_cells(direction: Direction, grid: Lattice) -> Measure:
    """A measure on the nodes whose privacy curve is below the true one; see the header."""
    worth, slack = _worth(direction, grid)
    centre = _centre(worth)
    parts = _parts(worth, centre)

    # The terms of P - e^g Q at every node: the positive ones from below, the others from above.
    positive = parts.b0 * worth.over
    positive[:-1] += (parts.a1 * worth.down)[1:]
    positive[:-2] += (parts.a2 * worth.down2)[2:]
    negative = _negative(worth, parts)

    # The mass behind the negative terms: of the cells next to the node, and of one further down.
    near = parts.a0 * worth.mass_a
    near[1:] += (parts.b1 * worth.mass_b)[:-1]
    far = np.zeros_like(near)
    far[2:] = (parts.b2 * worth.mass_b)[:-2]

    # Of it, only as much stays as the positive terms can carry. The rest goes, by rounding down, to
    # a node below every loss in it: so the result is a lower bound whatever the parts are.
    carried = np.minimum(
        1.0,
        np.divide(positive, negative, where=negative > 0.0, out=np.full_like(negative, 2.0)) * _IN,
    )
    mass = carried * (near + far) + parts.b0 * worth.mass_b
    mass[:-1] += (parts.a1 * worth.mass_a)[1:] + ((1.0 - carried) * near)[1:]
    mass[:-2] += (parts.a2 * worth.mass_a)[2:] + ((1.0 - carried) * far)[2:]

    slack += 16.0 * U * (float(np.max(np.abs(grid.loss))) + abs(grid.offset))
    centre_mass = max(float(worth.mass_a[centre] + worth.mass_b[centre]), 1e-300)
    lean = float((positive - negative)[centre]) / centre_mass
    return Measure(grid.offset, grid.spacing, grid.index, mass * _IN, 0.0, slack, lean)


def _negative(worth: _Worth, parts: _Parts) -> FloatArray:
    """The negative terms of P - e^g Q at every node, as a positive number, from above."""
    negative = parts.a0 * worth.under
    negative[1:] += (parts.b1 * worth.up)[:-1]
    negative[2:] += (parts.b2 * worth.up2)[:-2]
    return negative


def _worth(direction: Direction, grid: Lattice) -> tuple[_Worth, float]:
    """The worth of every cell, and by how much losses must be moved down for inexact edges.

    With w the distance to the other node: down = P (1 - e^-w) - e^-w under, up = P (e^w - 1) -
    e^w over.
    """
    # Nodes and cuts alternate, so cells 0, 2, ... are the A_j and cells 1, 3, ... the B_j.
    edges = np.empty(2 * len(grid.index) - 1)
    edges[0::2], edges[1::2] = grid.loss, grid.cut_loss
    cells = direction.cells(edges)
    mass_a, mass_b = cells.mass.lower[0::2].copy(), cells.mass.lower[1::2]
    greatest_b = cells.mass.upper[1::2]
    under, over = cells.under.upper[0::2].copy(), cells.over.lower[1::2]

    # What lies below the first node is dropped: it may be all of the mass that the tilt leaves
    # behind.
    mass_a[0] = under[0] = 0.0

    index = grid.index.astype(np.float64)
    width = grid.spacing * np.diff(index)
    width2 = grid.spacing * (index[2:] - index[:-2])

    def down(w: FloatArray, k: int) -> FloatArray:
        value = mass_a[k:] * -np.expm1(-w) * _IN - np.exp(-w) * under[k:] * _OUT
        return np.concatenate([np.zeros(k), np.maximum(value, 0.0)])

    def up(w: FloatArray, k: int) -> FloatArray:
        value = greatest_b[:-k] * np.expm1(w) * _OUT - np.exp(w) * over[:-k] * _IN
        return np.concatenate([np.maximum(value, 0.0), np.zeros(k)])

    worth = _Worth(
        mass_a, mass_b, under, over, down(width, 1), down(width2, 2), up(width, 1), up(width2, 2)
    )
    return worth, 1.1 * cells.slack


def _parts(worth: _Worth, centre: int) -> _Parts:
    """Parts that balance every node, as far as moves between neighbours and one across the centre
    can.
    """
    # A share above 0 moves A_j down, one below 0 moves B_(j-1) up; what is not moved stays.
    share = _balance(worth, centre)
    lowered, raised = np.maximum(share, 0.0), np.maximum(-share, 0.0)
    count = len(worth.under)
    parts = _Parts(
        1.0 - lowered[:-1],
        lowered[:-1].copy(),
        np.zeros(count),
        1.0 - raised[1:],
        raised[1:].copy(),
        np.zeros(count),
    )
    _balance_centre(worth, parts, centre)
    return parts


def _centre(worth: _Worth) -> int:
    """The node to balance last: one that holds most of the mass alone, or else one with much mass
    on both sides.
    """
    mass = worth.mass_a + worth.mass_b
    fullest = int(np.argmax(mass[1:-1])) + 1
    if mass[fullest] > 0.5 * float(mass.sum()):
        return fullest

    return 1 + int(np.argmax(np.minimum(np.minimum(mass[:-2], mass[1:-1]), mass[2:])))


def _balance(worth: _Worth, centre: int) -> FloatArray:
    """Moves between neighbours that balance every node but the centre, solved from both ends
    inward, where the density grows.

    share[j] belongs to the cut below node j: positive, the part of A_j that goes down; negative,
    that of B_(j-1) that goes up.
    """
    count = len(worth.under)
    share = [0.0] * (count + 1)

    # Lists, because a loop over single entries of an array is far slower; no calls inside of it for
    # the same reason. A part is all at most, and none of what is not there.
    under, over = worth.under.tolist(), worth.over.tolist()
    down, up = worth.down.tolist(), worth.up.tolist()
    moved = 0.0

    # From the top: the cut above node j is decided, the one below it makes up the balance.
    for j in range(count - 1, centre, -1):
        balance = over[j] - under[j] + moved * (down[j + 1] if moved > 0.0 else over[j])
        available = under[j] if balance < 0.0 else up[j - 1]
        moved = -balance / available if abs(balance) < available else math.copysign(1.0, -balance)
        share[j] = moved = moved if available > 0.0 else 0.0

    moved = 0.0

    # From the bottom: the cut below node j is decided, the one above it makes up the balance.
    for j in range(centre):
        balance = over[j] - under[j] + moved * (up[j - 1] if moved < 0.0 else under[j])
        available = down[j + 1] if balance < 0.0 else over[j]
        moved = -balance / available if abs(balance) < available else math.copysign(1.0, -balance)
        share[j + 1] = moved = moved if available > 0.0 else 0.0

    return np.array(share)


def _balance_centre(worth: _Worth, parts: _Parts, c: int) -> None:
    """Balance the centre c too, by one move across it and two between neighbours; nothing if the
    parts do not suffice.

    Excess at c: A_(c+1) goes down to c-1 (worth at both rises), then B_(c-1) up to c and B_c up to
        c+1 (both fall, c twice).
    Lack at c: B_(c-1) goes up to c+1 (worth at both falls), then A_c down to c-1 and A_(c+1) down
        to c (both rise).
    """
    excess = float(
        parts.b0[c] * worth.over[c]
        + parts.a1[c + 1] * worth.down[c + 1]
        - _negative(worth, parts)[c]
    )
    if excess > 0.0:
        moves = _solve(
            excess,
            (worth.down2[c + 1], worth.over[c - 1], worth.up[c - 1]),
            (worth.under[c + 1], worth.up[c], worth.over[c]),
        )
        _move(
            moves,
            (parts.a0, parts.a2, c + 1),
            (parts.b0, parts.b1, c - 1),
            (parts.b0, parts.b1, c),
        )
    elif excess < 0.0:
        moves = _solve(
            -excess,
            (worth.over[c - 1], worth.down[c], worth.under[c]),
            (worth.up2[c - 1], worth.under[c + 1], worth.down[c + 1]),
        )
        _move(
            moves,
            (parts.b0, parts.b2, c - 1),
            (parts.a0, parts.a1, c),
            (parts.a0, parts.a1, c + 1),
        )


def _move(
    amounts: tuple[float, float, float] | None, *moves: tuple[FloatArray, FloatArray, int]
) -> None:
    """Take each amount from the first array and add it to the second, at the place; all or none."""
    if amounts is None:
        return

    pairs = list(zip(amounts, moves, strict=True))
    if all(amount <= source[place] for amount, (source, _, place) in pairs):
        for amount, (source, target, place) in pairs:
            source[place] -= amount
            target[place] += amount


def _solve(
    excess: float, low: tuple[float, float, float], high: tuple[float, float, float]
) -> tuple[float, float, float] | None:
    """Parts (across, first, second) that change the worths of c-1, c, c+1 by 0, excess, 0 in the
    wanted sense.

    Args:
        excess: what is to be removed at c, above 0.
        low: effects of `across` on c-1, of `first` on c-1 and of `first` on c, as positive numbers.
        high: effects of `across` on c+1, of `second` on c+1 and of `second` on c, likewise.
    """
    if min(low[1], high[1]) <= 0.0:
        return None

    per_move = low[0] / low[1] * low[2] + high[0] / high[1] * high[2]
    if per_move <= 0.0:
        return None

    across = excess / per_move
    return across, across * low[0] / low[1], across * high[0] / high[1]
