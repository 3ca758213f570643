"""The upper and the lower measure of one direction of a composition, on one lattice.

That each is a bound wherever the lattice is placed is docs/proofs/tight.md, section 3; here it is
placed so that the two are close to each other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from discreet.accounting.tight.interface import Direction, Quadrature
from discreet.accounting.tight.lattice.compose import Tilted, tilted
from discreet.accounting.tight.lattice.lower import gather_cells
from discreet.accounting.tight.lattice.nodes import Lattice, Scope, lattice, scope
from discreet.accounting.tight.lattice.tilt import Law, log_peak
from discreet.accounting.tight.lattice.upper import Measure, spread

__all__ = ["SMALL", "Composition", "Pair", "chernoff", "measures", "upper_measure"]

# The part of delta that may be lost to each of: infinity, tails, wrapping around.
SMALL = 1e-7
# So many offsets of the lattice are tried.
_PLACES = 6

# The exponents of Chernoff's bound, as multiples of the tilt. The large ones are for a direction
# with light tails, on the lattice of its reverse.
_EXPONENTS = np.array([0.7, 0.85, 1.0, 1.2, 1.5, 2.5, 5.0, 12.0, 40.0])


# A query asks several times for the same few.
@lru_cache(maxsize=16)
def _quadrature(direction: Direction) -> Quadrature:
    """The quadrature of a direction."""
    return direction.quadrature()


@dataclass(frozen=True, slots=True)
class Composition:
    """One direction of a composition: the directions of its steps, with counts."""

    parts: tuple[tuple[Direction, int], ...]

    @property
    def directions(self) -> tuple[Direction, ...]:
        """The directions without their counts."""
        return tuple(direction for direction, _ in self.parts)

    @property
    def steps(self) -> int:
        """How many steps are composed."""
        return sum(count for _, count in self.parts)

    def law(self, delta: float) -> Law:
        """The composed loss, without what has a probability far below delta."""
        parts = tuple((_quadrature(direction), float(count)) for direction, count in self.parts)
        return Law(parts).capped(SMALL * delta / len(self.parts))


@dataclass(frozen=True, slots=True)
class Pair:
    """The upper and the lower measure of a composition on one lattice, tilted alike."""

    upper: Tilted
    lower: Tilted

    @property
    def difference(self) -> float:
        """The width in ln delta that the discretisation causes."""
        return self.upper.log_total - self.lower.log_total

    @property
    def nodes(self) -> int:
        """How many nodes the longest measure has."""
        return max(len(measure.mass) for measure, _ in self.upper.measures)

    def tilted(self, theta: float) -> Pair:
        """Tilt the same measures by another exponent."""
        if theta == self.upper.theta:
            return self

        return Pair(
            tilted(self.upper.measures, theta, outward=1),
            tilted(self.lower.measures, theta, outward=-1),
        )


@dataclass(frozen=True, slots=True)
class _Plan:
    """Where the nodes for one direction go; `coarse` spacings of the common lattice are one of its
    own lattice, if it has few steps.
    """

    direction: Direction
    count: int
    area: Scope
    spacing: float
    coarse: int
    longest: int

    @property
    def step(self) -> float:
        """The spacing of the direction's own lattice."""
        return self.spacing * self.coarse

    def common(self, measure: Measure) -> Measure:
        """Put a measure from the own lattice on the common one."""
        if self.coarse == 1:
            return measure

        return replace(measure, spacing=self.spacing, index=measure.index * self.coarse)


def measures(problem: Composition, law: Law, theta: float, spacing: float, delta: float) -> Pair:
    """Make both measures; the lattice is placed where it suits the lower one."""
    # On one lattice, so that the difference of the two is the error of the lattice alone.
    uppers: list[tuple[Measure, int]] = []
    lowers: list[tuple[Measure, int]] = []

    for plan in _plans(problem, law, theta, spacing, delta):
        grid, lower = _placed(plan, 0.003 * (1.0 + theta) * plan.step * plan.step)
        uppers.append((plan.common(spread(plan.direction, grid)), plan.count))
        lowers.append((plan.common(lower), plan.count))

    return Pair(tilted(tuple(uppers), theta, outward=1), tilted(tuple(lowers), theta, outward=-1))


def upper_measure(
    problem: Composition, law: Law, theta: float, spacing: float, delta: float
) -> Tilted:
    """Make the upper measure alone, in a third of the time."""
    plans = _plans(problem, law, theta, spacing, delta)
    grids = [lattice(plan.area, plan.step, plan.area.centre, plan.longest) for plan in plans]
    uppers = [
        (plan.common(spread(plan.direction, grid)), plan.count)
        for plan, grid in zip(plans, grids, strict=True)
    ]
    return tilted(tuple(uppers), theta, outward=1)


def _plans(
    problem: Composition, law: Law, theta: float, spacing: float, delta: float
) -> list[_Plan]:
    """Decide where the nodes of each direction go; rare steps get a coarser lattice."""
    most_steps = max(count for _, count in problem.parts)
    longest = max(1, int(0.5 / ((1.0 + theta) * spacing)))
    plans = []

    for (direction, count), (nodes, _) in zip(problem.parts, law.parts, strict=True):
        # The error of a direction is its count times its spacing squared: a direction with a
        # hundredth of the steps may have ten times the spacing.
        coarse = min(max(1, math.isqrt(most_steps // count)), longest)
        beyond = SMALL * delta / (count * len(problem.parts))
        area = scope(nodes, theta, spacing * coarse, beyond, 1e-10 / count)
        plans.append(_Plan(direction, count, area, spacing, coarse, max(1, longest // coarse)))

    return plans


def _placed(plan: _Plan, near: float) -> tuple[Lattice, Measure]:
    """A lattice placed so that its fullest node is balanced: worth left over between 0 and `near`,
    by regula falsi.
    """
    area, step = plan.area, plan.step
    offset = area.centre
    grid = lattice(area, step, offset, plan.longest)
    lower = gather_cells(plan.direction, grid)

    # The last offset with too little worth, and the best with too much; the one before the last.
    lack: tuple[float, float] | None = None
    excess: tuple[float, float, Lattice, Measure] | None = None
    before: tuple[float, float] | None = None

    for _ in range(_PLACES):
        if -1e-9 * step <= lower.lean <= near:
            return grid, lower

        if lower.lean < 0.0:
            lack = (offset, lower.lean)
        elif excess is None or lower.lean < excess[1]:
            excess = (offset, lower.lean, grid, lower)

        # Until there is one of each, follow the lean, which is about the distance, and then a
        # secant; with one of each, between the two.
        if lack is None or excess is None:
            per_lean = 1.0 if before is None else _slope(before, (offset, lower.lean))
            before = offset, lower.lean
            offset += lower.lean * per_lean * (1.02 if lower.lean < 0.0 else 1.0)
        else:
            offset = excess[0] + (lack[0] - excess[0]) * 0.98 * excess[1] / (excess[1] - lack[1])

        grid = lattice(area, step, offset, plan.longest)
        lower = gather_cells(plan.direction, grid)

    # Too much worth is wasted at the node; too little pushes mass a node down, which is worse.
    if excess is not None and not 0.0 <= lower.lean <= excess[1]:
        return excess[2], excess[3]

    return grid, lower


def _slope(before: tuple[float, float], last: tuple[float, float]) -> float:
    """How far the offset has to move for each unit of lean, by two (offset, lean) pairs: from 1, as
    without them, to 2.
    """
    change = before[1] - last[1]
    return min(max((last[0] - before[0]) / change, 1.0), 2.0) if change != 0.0 else 1.0


def chernoff(part: Tilted, delta: float) -> float:
    """A certified upper bound on epsilon from the upper measure alone: Chernoff at several
    exponents, no transform.
    """
    # What is left of delta for finite losses; an infinite one takes its probability in full.
    finite_delta = delta - part.infinite
    if finite_delta <= 0.0:
        return math.inf

    theta = part.theta * _EXPONENTS
    cumulant = part.cumulant(theta)

    # delta <= e^(K - theta eps) c(theta) for every theta, solved for epsilon (header of `tilt.py`).
    best = float(np.min((cumulant + log_peak(theta) - math.log(finite_delta)) / theta))
    return max(best * (1.0 + 1e-12) + part.slack, 0.0)
