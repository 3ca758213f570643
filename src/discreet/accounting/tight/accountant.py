"""The tight accountant on canonical (cost, count) pairs: closed forms where they exist, brackets
elsewhere.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from discreet.accounting import rdp
from discreet.accounting.costs import Cost, Gaussian
from discreet.accounting.gaussian import fold, gaussian_delta, gaussian_epsilon, invert
from discreet.accounting.tight.analyses.registry import directions
from discreet.accounting.tight.lattice.bracket import (
    Bracket,
    Starts,
    delta_bracket,
    epsilon_bracket,
)
from discreet.accounting.tight.lattice.coarse import MOST, coarse
from discreet.accounting.tight.lattice.estimate import contour
from discreet.accounting.tight.lattice.pair import Problem
from discreet.accounting.tight.lattice.tilt import tilt_for_epsilon
from discreet.accounting.tight.lattice.window import period
from discreet.accounting.tight.rounding import OutOfRangeError
from discreet.errors import AccountingError

if TYPE_CHECKING:
    from collections.abc import Callable

    from discreet.accounting.normalise import Counted
    from discreet.accounting.tight.interface import Direction

__all__ = ["NOTHING", "Interval", "tight_delta", "tight_epsilon", "tight_upper"]


@dataclass(frozen=True, slots=True)
class Interval:
    """lower <= truth <= upper, certified; the estimate lies between and is not a claim."""

    lower: float
    estimate: float
    upper: float

    def __post_init__(self) -> None:
        if not self.lower <= self.estimate <= self.upper:  # also where something is not a number
            got = f"{self.lower!r}, {self.estimate!r}, {self.upper!r}"
            raise AccountingError(
                expected="lower <= estimate <= upper", got=got, do="Use the 'rdp' accountant."
            )


NOTHING = Interval(0.0, 0.0, 0.0)
_COARSE = 1e-3


@lru_cache(maxsize=1024)
def tight_epsilon(costs: Counted, delta: float, tolerance: float = 1e-3) -> Interval:
    """Epsilon at delta in (0, 1), to a relative tolerance wherever that can be reached in
    reasonable time.

    Guarantee: `lower <= epsilon <= upper` whatever the tolerance, under assumption R of
        `_rounding`; docs/proofs/tight.md.
    """
    return _answer(
        _Question(gaussian_epsilon, _worse_epsilon, _renyi_epsilon),
        _folded(costs),
        delta,
        tolerance,
    )


@lru_cache(maxsize=1024)
def tight_delta(costs: Counted, epsilon: float, tolerance: float = 1e-3) -> Interval:
    """Delta at epsilon >= 0, to a relative tolerance; as `tight_epsilon`."""
    return _answer(
        _Question(gaussian_delta, _worse_delta, _renyi_delta), _folded(costs), epsilon, tolerance
    )


@dataclass(frozen=True, slots=True)
class _Question:
    """Epsilon or delta: how a Gaussian, a composition and the Rényi accountant answer it."""

    closed: Callable[[float, float], tuple[float, float]]
    tight: Callable[[Counted, float, float], tuple[Interval, float]]
    renyi: Callable[[Counted, float], float]


def _answer(question: _Question, costs: Counted, level: float, tolerance: float) -> Interval:
    if not costs:
        return NOTHING
    single = _single_gaussian(costs)
    if single is not None:
        lower, upper = question.closed(single, level)
        return Interval(lower, 0.5 * (lower + upper), upper)
    if len(costs) > MOST:
        return _in_company(question, costs, level, tolerance)
    found = _capped(question, costs, level, tolerance)
    attained = tuple((cost, count) for cost, count in costs if cost.attained)
    if attained == costs:
        return found
    lower = min(_answer(question, attained, level, tolerance).lower, found.upper)
    return Interval(lower, max(lower, found.estimate), found.upper)


def _in_company(question: _Question, costs: Counted, level: float, tolerance: float) -> Interval:
    """Many different costs, by way of fewer: one composition for each end."""
    more, less = coarse(costs, upper=True), coarse(costs, upper=False)
    if len(more) > MOST:
        raise AccountingError(
            expected=(
                f"at most {MOST} different steps, apart from Poisson samples with a Gaussian sum"
            ),
            got=f"{len(more)}",
            do="Use the 'rdp' accountant.",
        )
    upper = _answer(question, more, level, tolerance).upper
    lower = min(_answer(question, less, level, tolerance).lower, upper)
    return Interval(lower, 0.5 * (lower + upper), upper)


def _capped(question: _Question, costs: Counted, level: float, tolerance: float) -> Interval:
    """Never above the Rényi bound. Where a tolerance is finer than can be reached, the result of a
    coarser one counts too.
    """
    found = _capped_once(question, costs, level, tolerance)
    if tolerance >= _COARSE or found.upper - found.lower <= 10.0 * tolerance * found.upper:
        return found
    other = _capped(question, costs, level, min(10.0 * tolerance, _COARSE))
    lower, upper = max(found.lower, other.lower), min(found.upper, other.upper)
    return Interval(lower, min(max(other.estimate, lower), upper), upper)


def _capped_once(question: _Question, costs: Counted, level: float, tolerance: float) -> Interval:
    """The Rényi bound alone where a single loss is outside the range of float64.

    The tight answer also says about what any exponent gives at best for its pairs. If these are
    attained, then no Rényi bound is better than that, and none is computed; for a cost whose pair
    only dominates, the Rényi analysis may be the better one.
    """
    try:
        found, exponents = question.tight(costs, level, tolerance)
    except OutOfRangeError:
        bound = question.renyi(costs, level)
        if not math.isfinite(bound):
            raise
        return Interval(0.0, bound, bound)
    if found.upper < 0.98 * exponents and all(cost.attained for cost, _ in costs):
        return found
    upper = min(
        found.upper, question.renyi(costs, level)
    )  # perhaps below the pair's lower end, if the pair only dominates
    return Interval(min(found.lower, upper), min(found.estimate, upper), upper)


def _renyi_epsilon(costs: Counted, delta: float) -> float:
    try:
        return rdp.epsilon(costs, delta=delta).value
    except AccountingError:
        return math.inf  # no Rényi analysis of one of the costs


def _renyi_delta(costs: Counted, epsilon: float) -> float:
    try:
        return rdp.delta(costs, epsilon=epsilon).value
    except AccountingError:
        return math.inf


def _folded(costs: Counted) -> Counted:
    """Gaussians without sampling become one, attained or not, each on its own."""
    rest: list[tuple[Cost, int]] = [
        (cost, count) for cost, count in costs if not isinstance(cost, Gaussian)
    ]
    for attained in (True, False):
        group = [
            (cost.noise_multiplier, count)
            for cost, count in costs
            if isinstance(cost, Gaussian) and cost.attained == attained
        ]
        if group:
            rest.append((Gaussian(fold(group), attained), 1))
    return tuple(rest)


def _single_gaussian(costs: Counted) -> float | None:
    """Its noise multiplier, if attained Gaussians are all there is; costs that only dominate need
    the lower bound apart.
    """
    if len(costs) == 1 and isinstance(costs[0][0], Gaussian) and costs[0][0].attained:
        return costs[0][0].noise_multiplier
    return None


def _problems(costs: Counted) -> tuple[Problem, ...]:
    """The composition in its two directions, once if they are the same."""
    pairs = [(directions(cost), count) for cost, count in costs]
    first = Problem(tuple((pair[0], count) for pair, count in pairs))
    second = Problem(tuple((pair[1], count) for pair, count in pairs))
    return (first,) if first == second else (first, second)


def tight_upper(
    costs: Counted, delta: float, tolerance: float = 1e-3, starts: Starts | None = None
) -> float:
    """The upper end of `tight_epsilon` alone, without the estimate: for live use.

    `starts` is a dictionary that the caller keeps from one call to the next, as the run grows; it
    saves time only.
    """
    costs = _folded(costs)
    single = _single_gaussian(costs)
    if not costs or single is not None or len(costs) > MOST:
        return tight_epsilon(costs, delta, tolerance).upper
    try:
        return _brackets(costs, delta, tolerance, starts)[0].upper
    except OutOfRangeError:
        return tight_epsilon(costs, delta, tolerance).upper


def _worse_epsilon(costs: Counted, delta: float, tolerance: float) -> tuple[Interval, float]:
    """The direction that is worse for privacy, with an estimate, and about what exponents alone
    give.
    """
    best, found = _brackets(costs, delta, tolerance)
    points = [_point(problem, bracket, best, delta) for problem, bracket in found]
    interval = Interval(best.lower, min(max(*points, best.lower, 0.0), best.upper), best.upper)
    return interval, max(bracket.chernoff for _, bracket in found)


def _brackets(
    costs: Counted, delta: float, tolerance: float, starts: Starts | None = None
) -> tuple[Bracket, list[tuple[Problem, Bracket]]]:
    """The bracket of each direction, and of the worse; a direction that is certified to be no worse
    is not refined.
    """
    best = Bracket(0.0, 0.0)
    found: list[tuple[Problem, Bracket]] = []
    for problem in _problems(costs):
        one = _one_step(problem)
        if one is not None and found and _one_delta(one, best.upper).upper <= delta:
            bracket = Bracket(0.0, best.upper)
        elif one is not None:
            bracket = _inverted(one, delta)
        else:
            bracket = epsilon_bracket(
                problem, delta, tolerance, found[0][1] if found else None, starts
            )
        found.append((problem, bracket))
        best = Bracket(max(best.lower, bracket.lower), max(best.upper, bracket.upper))
    return best, found


def _worse_delta(costs: Counted, epsilon: float, tolerance: float) -> tuple[Interval, float]:
    best = Bracket(0.0, 0.0)
    points, exponents = [], 0.0
    for problem in _problems(costs):
        one = _one_step(problem)
        bracket = (
            _one_delta(one, epsilon)
            if one is not None
            else delta_bracket(problem, epsilon, tolerance)
        )
        points.append(_delta_point(problem, bracket, epsilon))
        best = Bracket(max(best.lower, bracket.lower), max(best.upper, bracket.upper))
        exponents = max(exponents, bracket.chernoff)
    return Interval(best.lower, min(max(*points, best.lower), best.upper), best.upper), exponents


def _one_step(problem: Problem) -> Direction | None:
    """The direction, if there is but one step: then the curve itself is known in closed form."""
    (direction, count), *rest = problem.parts
    return direction if count == 1 and not rest else None


def _one_delta(direction: Direction, epsilon: float) -> Bracket:
    """D(eps) = P(L > eps) - e^eps Q(L > eps): what the last cell holds over its edge."""
    found = direction.cells(np.array([epsilon]))
    earlier = direction.cells(
        np.array([epsilon - found.slack])
    )  # an atom at the edge must be on the right side of it
    mass = float(earlier.mass.upper[-1])
    upper = float(earlier.over.upper[-1]) * (1.0 + 1e-12) + 4.0 * found.slack * mass + 1e-290
    return Bracket(float(found.over.lower[-1]) * (1.0 - 1e-12), min(upper, 1.0))


def _inverted(direction: Direction, delta: float) -> Bracket:
    def bounds(epsilon: float) -> tuple[float, float]:
        found = _one_delta(direction, epsilon)
        return found.lower, found.upper

    return Bracket(*invert(bounds, delta, float(direction.quadrature().loss[-1]) * 1e-3))


def _point(problem: Problem, bracket: Bracket, best: Bracket, delta: float) -> float:
    """The estimate of one direction, in the bracket of the worse; 0 if it is below that."""
    if bracket.upper <= best.lower or not math.isfinite(bracket.upper):
        return 0.0
    middle = 0.5 * (best.lower + best.upper)
    default = middle if bracket.upper == best.upper else 0.0
    if _one_step(problem) is not None or middle == 0.0:
        return default
    law = problem.law(1e-8 * delta)
    tilt = tilt_for_epsilon(law, middle)
    line = contour(law, tilt.theta, period(law, tilt, delta))
    found = line.epsilon(delta, best.lower, best.upper) if line is not None else None
    return default if found is None else found


def _delta_point(problem: Problem, bracket: Bracket, epsilon: float) -> float:
    middle = 0.5 * (bracket.lower + bracket.upper)
    if _one_step(problem) is not None or bracket.lower <= 0.0:
        return middle
    law = problem.law(1e-8 * bracket.upper)
    tilt = tilt_for_epsilon(law, epsilon)
    line = contour(law, tilt.theta, period(law, tilt, bracket.upper))
    found = line.delta(epsilon) if line is not None else middle
    return found if bracket.lower <= found <= bracket.upper else middle
