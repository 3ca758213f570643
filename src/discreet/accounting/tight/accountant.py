"""The tight accountant on canonical (cost, count) pairs: closed forms where they exist, brackets
elsewhere.

    no cost                 nothing is lost
    one attained Gaussian   closed form (`gaussian.py`; docs/proofs/tight.md, section 6)
    over 48 costs           two compositions of fewer costs, one for each end (section 7)
    otherwise               a bracket for each direction, the worse counts (section 5), capped by
                            the Rényi bound (section 7)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from discreet.accounting import rdp
from discreet.accounting.costs import Cost, Gaussian
from discreet.accounting.gaussian import fold, gaussian_delta, gaussian_epsilon, invert
from discreet.accounting.normalise import Counted
from discreet.accounting.tight.analyses.registry import directions
from discreet.accounting.tight.interface import Direction
from discreet.accounting.tight.lattice.bracket import (
    Bracket,
    Starts,
    delta_bracket,
    epsilon_bracket,
)
from discreet.accounting.tight.lattice.coarse import MOST, coarse
from discreet.accounting.tight.lattice.estimate import Contour, contour
from discreet.accounting.tight.lattice.pair import Composition
from discreet.accounting.tight.lattice.tilt import sharpened, tilt_for_delta, tilt_for_epsilon
from discreet.accounting.tight.lattice.window import period
from discreet.accounting.tight.rounding import OutOfRangeError
from discreet.errors import AccountingError

__all__ = [
    "NOTHING",
    "Interval",
    "sketched_epsilon",
    "tight_delta",
    "tight_epsilon",
    "tight_upper",
]


@dataclass(frozen=True, slots=True)
class Interval:
    """lower <= truth <= upper, certified; the estimate lies between and is not a claim."""

    lower: float
    estimate: float
    upper: float

    def __post_init__(self) -> None:
        # Written so that a NaN is refused too: it must never be read as "no loss" (P37).
        if not self.lower <= self.estimate <= self.upper:
            got = f"{self.lower!r}, {self.estimate!r}, {self.upper!r}"
            raise AccountingError(
                expected="lower <= estimate <= upper", got=got, do="Use the 'rdp' accountant."
            )


NOTHING = Interval(0.0, 0.0, 0.0)

# A tolerance finer than this may be out of reach; then the answer to a coarser one counts too.
_COARSE = 1e-3

# An upper end this far below what the best exponent gives is below every Rényi bound.
_BELOW_RENYI = 0.98

# Two ends that are this near to each other leave nothing for a Rényi bound to improve.
_EXACT = 1e-9


@lru_cache(maxsize=1024)
def tight_epsilon(costs: Counted, delta: float, tolerance: float = 1e-3) -> Interval:
    """Epsilon at delta in (0, 1), to a relative tolerance wherever that can be reached in
    reasonable time.

    Guarantee: `lower <= epsilon <= upper` whatever the tolerance, under assumption R of
        `rounding`; docs/proofs/tight.md.

    | case                                            | result                                  |
    |-------------------------------------------------|-----------------------------------------|
    | no costs                                        | 0, 0, 0                                 |
    | delta so large that epsilon 0 is enough         | 0, 0, 0                                 |
    | noise without end, probability next to 0        | 0, 0, 0                                 |
    | one attained Gaussian, any noise                | its closed form, to about 1e-13         |
    | a multiplier at most 0.02 in any other case, or | lower 0, estimate and upper are the     |
    | a loss of one step from 300 on (Laplace, ...)   | Rényi bound                             |
    | costs whose pair only dominates                 | lower counts the attained ones alone    |
    | delta below what is put at an infinite loss     | upper is the Rényi bound                |
    | (balls in bins)                                 |                                         |

    Delta 0 and 1, counts of 0 and noise 0 do not occur here: `account` and `normalise` refuse them
    or leave them out.

    Args:
        costs: with counts of at least 1, as `normalise` gives them.
        delta: in (0, 1).
        tolerance: relative width to aim at, in (0, 1).
    """
    return _answer(
        _Question(
            gaussian_epsilon, _worse_epsilon, lambda costs, delta: rdp.epsilon(costs, delta=delta)
        ),
        _folded(costs),
        delta,
        tolerance,
    )


@lru_cache(maxsize=1024)
def tight_delta(costs: Counted, epsilon: float, tolerance: float = 1e-3) -> Interval:
    """Delta at epsilon >= 0, to a relative tolerance wherever that can be reached in reasonable
    time.

    Guarantee: `lower <= delta <= upper`, as for `tight_epsilon`.

    | case                                            | result                                  |
    |-------------------------------------------------|-----------------------------------------|
    | no costs                                        | 0, 0, 0                                 |
    | epsilon 0                                       | the total variation distance            |
    | one step with losses below epsilon (Laplace)    | 0, 0, 0                                 |
    | a delta below the range of float64              | lower 0, upper the least positive       |
    |                                                 | number, or 1e-300                       |
    | a multiplier at most 0.02 (but for one attained | lower 0, estimate and upper are the     |
    | Gaussian), or a loss of one step from 300 on    | Rényi bound, 1 where that says nothing  |

    An infinite or negative epsilon does not occur here: `account` refuses it.

    Args:
        costs: with counts of at least 1, as `normalise` gives them.
        epsilon: finite, at least 0.
        tolerance: relative width to aim at, in (0, 1).
    """
    return _answer(
        _Question(
            gaussian_delta, _worse_delta, lambda costs, epsilon: rdp.delta(costs, epsilon=epsilon)
        ),
        _folded(costs),
        epsilon,
        tolerance,
    )


def tight_upper(
    costs: Counted, delta: float, tolerance: float = 1e-3, starts: Starts | None = None
) -> float:
    """The upper end of `tight_epsilon` alone, without the estimate: for live use.

    The table of `tight_epsilon` holds, except that no Rényi bound is asked for where the bracket
    gives one.

    Args:
        costs: with counts of at least 1, as `normalise` gives them.
        delta: in (0, 1).
        tolerance: relative width to aim at, in (0, 1).
        starts: a dictionary that the caller keeps from one call to the next, as the run grows; it
            saves time only.
    """
    costs = _folded(costs)

    # Nothing is saved where the whole answer is a closed form, or where costs are put together.
    if not costs or _single_gaussian(costs) is not None or len(costs) > MOST:
        return tight_epsilon(costs, delta, tolerance).upper

    try:
        return _brackets(costs, delta, tolerance, starts)[0].upper
    except OutOfRangeError:
        return tight_epsilon(costs, delta, tolerance).upper


def sketched_epsilon(costs: Counted, delta: float) -> float:
    """About epsilon, several times as fast as `tight_epsilon` and without any claim: for choosing
    what to ask next. Not a number where nothing is known.

    Args:
        costs: with counts of at least 1, as `normalise` gives them.
        delta: in (0, 1).
    """
    costs = _folded(costs)
    if not costs or len(costs) > MOST:
        return math.nan

    try:
        problem = _problems(costs)[0]
    except AccountingError:
        return math.nan

    # The first direction alone, which is the worse one nearly always; one step in closed form, more
    # of them by the saddle point first.
    step = _only_step(problem)
    if step is not None:
        return _step_epsilon(step, delta).upper

    law = problem.law(delta)
    epsilon = sharpened(law, tilt_for_delta(law, math.log(delta))).epsilon
    line = _contour(problem, epsilon, delta) if epsilon > 0.0 else None
    point = line.epsilon(delta, 0.3 * epsilon, 3.0 * epsilon) if line is not None else None
    return epsilon if point is None else point


@dataclass(frozen=True, slots=True)
class _Question:
    """Epsilon or delta: how a Gaussian, a composition and the Rényi accountant answer it."""

    closed: Callable[[float, float], tuple[float, float]]
    tight: Callable[[Counted, float, float], tuple[Interval, float]]
    renyi: Callable[[Counted, float], rdp.RenyiBound]


def _answer(question: _Question, costs: Counted, level: float, tolerance: float) -> Interval:
    """Answer for folded costs, at this delta or epsilon; see the header for the cases."""
    if not costs:
        return NOTHING

    # Gaussians alone fold into one, whose curve is known in closed form.
    single = _single_gaussian(costs)
    if single is not None:
        lower, upper = question.closed(single, level)
        return Interval(lower, 0.5 * (lower + upper), upper)

    if len(costs) > MOST:
        return _by_fewer_costs(question, costs, level, tolerance)

    interval = _capped(question, costs, level, tolerance)
    attained = tuple((cost, count) for cost, count in costs if cost.attained)
    if attained == costs:
        return interval

    # A pair that only dominates gives no lower bound; what the attained steps lose is one.
    lower = min(_answer(question, attained, level, tolerance).lower, interval.upper)
    return Interval(lower, max(lower, interval.estimate), interval.upper)


def _by_fewer_costs(
    question: _Question, costs: Counted, level: float, tolerance: float
) -> Interval:
    """Answer for many different costs by way of fewer: one composition for each end."""
    worse, better = coarse(costs, upper=True), coarse(costs, upper=False)

    # Only Poisson samples can be put together; too many of another kind stay too many.
    if len(worse) > MOST:
        raise AccountingError(
            expected=(
                f"at most {MOST} different steps, apart from Poisson samples with a Gaussian sum"
            ),
            got=f"{len(worse)}",
            do="Use the 'rdp' accountant.",
        )

    upper = _answer(question, worse, level, tolerance).upper
    lower = min(_answer(question, better, level, tolerance).lower, upper)
    return Interval(lower, 0.5 * (lower + upper), upper)


def _capped(question: _Question, costs: Counted, level: float, tolerance: float) -> Interval:
    """Answer never above the Rényi bound. Where a tolerance is finer than can be reached, the
    result of a coarser one counts too.
    """
    # Both answers are certified, so their intersection is; the recursion ends at _COARSE.
    fine = _capped_once(question, costs, level, tolerance)
    if tolerance >= _COARSE or fine.upper - fine.lower <= 10.0 * tolerance * fine.upper:
        return fine

    coarser = _capped(question, costs, level, min(10.0 * tolerance, _COARSE))
    lower, upper = max(fine.lower, coarser.lower), min(fine.upper, coarser.upper)
    return Interval(lower, min(max(coarser.estimate, lower), upper), upper)


def _capped_once(question: _Question, costs: Counted, level: float, tolerance: float) -> Interval:
    """Answer by the Rényi bound alone where a single loss is outside the range of float64.

    The tight answer also says about what any exponent gives at best for its pairs. If these are
    attained, then no Rényi bound is better than that, and none is computed; for a cost whose pair
    only dominates, the Rényi analysis may be the better one.
    """
    try:
        interval, exponents = question.tight(costs, level, tolerance)
    except OutOfRangeError:
        # Without a Rényi analysis nothing can be said: then the refusal stands.
        bound = _renyi_bound(question, costs, level)
        if not math.isfinite(bound):
            raise

        return Interval(0.0, bound, bound)

    # No Rényi bound of an attained pair is below its lower end either; one comes near it only where
    # losses are bounded.
    attained = all(cost.attained for cost, _ in costs)
    is_exact = interval.upper <= interval.lower * (1.0 + _EXACT)
    is_out_of_reach = is_exact and math.isinf(rdp.composed(costs, math.inf))
    if attained and (is_out_of_reach or interval.upper < _BELOW_RENYI * exponents):
        return interval

    # The Rényi bound is perhaps below the pair's lower end, if the pair only dominates.
    upper = min(interval.upper, _renyi_bound(question, costs, level))
    return Interval(min(interval.lower, upper), min(interval.estimate, upper), upper)


def _renyi_bound(question: _Question, costs: Counted, level: float) -> float:
    """The Rényi accountant's answer; infinity if one of the costs has no Rényi analysis."""
    try:
        return question.renyi(costs, level).value
    except AccountingError:
        return math.inf


def _folded(costs: Counted) -> Counted:
    """Fold Gaussians without sampling into one, attained or not, each on its own."""
    # k of them with mu_1 ... mu_k are one with mu^2 = sum mu_i^2, exactly (`gaussian.py`); the fold
    # rounds the multiplier down, to more loss.
    folded: list[tuple[Cost, int]] = [
        (cost, count) for cost, count in costs if not isinstance(cost, Gaussian)
    ]

    for attained in (True, False):
        group = [
            (cost.noise_multiplier, count)
            for cost, count in costs
            if isinstance(cost, Gaussian) and cost.attained == attained
        ]
        if group:
            folded.append((Gaussian(fold(group), attained), 1))

    return tuple(folded)


def _single_gaussian(costs: Counted) -> float | None:
    """The noise multiplier, if an attained Gaussian is all there is; costs that only dominate need
    the lower bound apart.
    """
    # Folding leaves one cost of count 1 where there were several Gaussians.
    cost = costs[0][0] if len(costs) == 1 else None
    return cost.noise_multiplier if isinstance(cost, Gaussian) and cost.attained else None


def _problems(costs: Counted) -> tuple[Composition, ...]:
    """The composition in its two directions, once if they are the same."""
    # Each direction is composed by itself: an attacker faces one pair of data sets, in one order.
    pairs = [(directions(cost), count) for cost, count in costs]
    first = Composition(tuple((pair[0], count) for pair, count in pairs))
    second = Composition(tuple((pair[1], count) for pair, count in pairs))
    return (first,) if first == second else (first, second)


def _worse_epsilon(costs: Counted, delta: float, tolerance: float) -> tuple[Interval, float]:
    """Epsilon in the direction that is worse for privacy, with an estimate; and about what
    exponents alone give.
    """
    worse, brackets = _brackets(costs, delta, tolerance)
    points = [_epsilon_point(problem, bracket, worse, delta) for problem, bracket in brackets]
    estimate = min(max(*points, worse.lower, 0.0), worse.upper)
    exponents = max(bracket.chernoff for _, bracket in brackets)
    return Interval(worse.lower, estimate, worse.upper), exponents


def _brackets(
    costs: Counted, delta: float, tolerance: float, starts: Starts | None = None
) -> tuple[Bracket, list[tuple[Composition, Bracket]]]:
    """The bracket of the worse direction, and of each; a direction that is certified to be no worse
    is not refined.
    """
    worse = Bracket(0.0, 0.0)
    brackets: list[tuple[Composition, Bracket]] = []

    for problem in _problems(costs):
        step = _only_step(problem)
        if step is None:
            reverse = brackets[0][1] if brackets else None
            bracket = epsilon_bracket(problem, delta, tolerance, reverse, starts)
        # One step: its curve at the other direction's end tells whether this one is no worse.
        elif brackets and _step_delta(step, worse.upper).upper <= delta:
            bracket = Bracket(0.0, worse.upper)
        else:
            bracket = _step_epsilon(step, delta)

        brackets.append((problem, bracket))
        worse = Bracket(max(worse.lower, bracket.lower), max(worse.upper, bracket.upper))

    return worse, brackets


def _worse_delta(costs: Counted, epsilon: float, tolerance: float) -> tuple[Interval, float]:
    """Delta in the direction that is worse for privacy, with an estimate; and about what exponents
    alone give.
    """
    lower = upper = exponents = 0.0
    points = []

    for problem in _problems(costs):
        step = _only_step(problem)
        bracket = (
            _step_delta(step, epsilon)
            if step is not None
            else delta_bracket(problem, epsilon, tolerance)
        )
        points.append(_delta_point(problem, bracket, epsilon))
        lower, upper = max(lower, bracket.lower), max(upper, bracket.upper)
        exponents = max(exponents, bracket.chernoff)

    return Interval(lower, min(max(*points, lower), upper), upper), exponents


def _only_step(problem: Composition) -> Direction | None:
    """The direction, if there is but one step: then the curve itself is known in closed form."""
    direction, count = problem.parts[0]
    return direction if count == 1 and len(problem.parts) == 1 else None


def _step_delta(direction: Direction, epsilon: float) -> Bracket:
    """Bracket D(eps) = P(L > eps) - e^eps Q(L > eps): what the last cell holds over its edge."""
    cells = direction.cells(np.array([epsilon]))

    # An atom at the edge must be on the right side of it, so the upper end is taken a little
    # earlier, and what lies between is added (docs/proofs/tight.md, section 6).
    earlier = direction.cells(np.array([epsilon - cells.slack]))
    mass = float(earlier.mass.upper[-1])
    upper = float(earlier.over.upper[-1]) * (1.0 + 1e-12) + 4.0 * cells.slack * mass + 1e-290
    return Bracket(float(cells.over.lower[-1]) * (1.0 - 1e-12), min(upper, 1.0))


def _step_epsilon(direction: Direction, delta: float) -> Bracket:
    """Bracket epsilon of one step, each end proven by its own evaluation of the curve."""

    def bounds(epsilon: float) -> tuple[float, float]:
        bracket = _step_delta(direction, epsilon)
        return bracket.lower, bracket.upper

    # Whether the edge is in its place matters for a proof, not for the search.
    def rough(epsilon: float) -> float:
        over = direction.cells(np.array([epsilon])).over
        return 0.5 * float(over.lower[-1] + over.upper[-1])

    start = float(direction.quadrature().loss[-1]) * 1e-3
    return Bracket(*invert(bounds, delta, start, rough))


def _epsilon_point(problem: Composition, bracket: Bracket, worse: Bracket, delta: float) -> float:
    """The estimate of one direction, in the bracket of the worse; 0 if it is below that."""
    if bracket.upper <= worse.lower or not math.isfinite(bracket.upper):
        return 0.0

    middle = 0.5 * (worse.lower + worse.upper)
    default = middle if bracket.upper == worse.upper else 0.0
    if _only_step(problem) is not None or middle == 0.0:
        return default

    # The estimate is no claim: where it cannot be had, the middle of the bracket stands in.
    line = _contour(problem, middle, delta)
    point = line.epsilon(delta, worse.lower, worse.upper) if line is not None else None
    return default if point is None else point


def _delta_point(problem: Composition, bracket: Bracket, epsilon: float) -> float:
    """The estimate of one direction, in its own bracket."""
    middle = 0.5 * (bracket.lower + bracket.upper)
    if _only_step(problem) is not None or bracket.lower <= 0.0:
        return middle

    line = _contour(problem, epsilon, bracket.upper)
    point = line.delta(epsilon) if line is not None else middle
    return point if bracket.lower <= point <= bracket.upper else middle


def _contour(problem: Composition, epsilon: float, delta: float) -> Contour | None:
    """The transform of delta around this epsilon, if it falls off."""
    law = problem.law(1e-8 * delta)
    tilt = tilt_for_epsilon(law, epsilon)
    return contour(law, tilt.theta, period(law, tilt, delta))
