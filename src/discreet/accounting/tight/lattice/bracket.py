"""Certified epsilon at a delta, or delta at an epsilon, for one direction of a composition.

The order of things: choose tilt and window from quadratures; choose the spacing so that the upper
and the lower measure differ by little enough in their cumulant at the tilt (their difference in ln
delta, known before any transform); compose both; read both curves. If the bracket is still wider
than asked for, refine the spacing and repeat.

That the ends are bounds whatever is chosen is docs/proofs/tight.md, section 5; only `_upper`,
`_lower` and the reading-off are part of that argument, the rest of this file chooses.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import scipy

from discreet.accounting.tight.interface import Direction
from discreet.accounting.tight.lattice.compose import Tilted, compose, tilted
from discreet.accounting.tight.lattice.curve import PrivacyCurve, Unknown, composed_curve
from discreet.accounting.tight.lattice.pair import (
    Composition,
    Pair,
    chernoff,
    measures,
    upper_measure,
)
from discreet.accounting.tight.lattice.tilt import (
    Law,
    Tilt,
    sharpened,
    tilt_for_delta,
    tilt_for_epsilon,
)
from discreet.accounting.tight.lattice.window import Window, planned
from discreet.accounting.tight.rounding import WIDE, OutOfRangeError, U

__all__ = ["Bracket", "Start", "Starts", "delta_bracket", "epsilon_bracket"]

# A transform has so many points at most.
_LONGEST = 3 << 19

# So many spacings are tried.
_ROUNDS = 10

# Above so many nodes, a lattice for a smaller tilt, which has fewer, is better.
_CROWD = 20_000

# After so many points transformed, a bracket is left as wide as it is.
_WORK = 2_200_000


@dataclass(frozen=True, slots=True)
class Bracket:
    """Two ends between which the truth lies, certified: lower <= truth <= upper.

    Attributes:
        spacing: of the lattice that it was found with; a good guess for the other direction.
        theta: tilt of that lattice, likewise.
        chernoff: about what the best exponent alone gives, a Rényi bound say; 0 if not known.
    """

    lower: float
    upper: float
    spacing: float = math.inf
    theta: float = 1.0
    chernoff: float = 0.0


@dataclass(frozen=True, slots=True)
class Start:
    """Where a computation ended: a good place to begin the next, for a few steps more."""

    epsilon: float
    spacing: float
    steps: int


Starts: TypeAlias = dict[tuple[Direction, ...], Start]


def epsilon_bracket(
    problem: Composition,
    delta: float,
    tolerance: float,
    reverse: Bracket | None = None,
    starts: Starts | None = None,
) -> Bracket:
    """Bracket epsilon at a delta, for one direction of a composition.

    Args:
        problem: the directions with their counts.
        delta: in (0, 1).
        tolerance: relative width to aim at.
        reverse: bracket of the reverse direction, if known. If this direction is certified not to
            be worse, then that is all that matters: an upper bound is returned, with a lower bound
            of 0.
        starts: remembers where a computation for the same directions with nearly the same counts
            ended; saves time only.
    """
    law = problem.law(delta)

    # The worse direction counts: one that is certified to be no worse needs no lower end.
    if reverse is not None:
        upper = _upper_alone(problem, law, reverse, (delta, tolerance))
        if math.isfinite(upper):
            return Bracket(0.0, upper)

    starts = {} if starts is None else starts
    start = starts.get(problem.directions)
    spacing, pair, rough = 0.0, None, 0.0

    # A run that grew by a few steps: tilt and spacing of the last time are nearly right.
    if start is not None and 0.8 < start.steps / problem.steps <= 1.0:
        tilt = replace(tilt_for_epsilon(law, start.epsilon), log_delta=math.log(delta))
        spacing = start.spacing
    else:
        tilt, rough = _first_tilt(law, delta)
        if tilt.epsilon <= 0.0 and _is_zero(problem, law, tilt, delta):
            return Bracket(0.0, 0.0)

    if not spacing:
        budget = min(0.8 * tolerance * max(tilt.epsilon, 1e-9) * tilt.theta, 0.5)
        spacing, pair = _spaced(problem, law, tilt, budget, delta)

    bracket = _refine(problem, law, (tilt, spacing, pair), (delta, tolerance))
    if bracket.lower > 0.0 and math.isfinite(bracket.spacing):
        starts[problem.directions] = Start(bracket.upper, bracket.spacing, problem.steps)

    return replace(bracket, chernoff=rough)


def _first_tilt(law: Law, delta: float) -> tuple[Tilt, float]:
    """The tilt to begin with, and the epsilon that Chernoff's bound gives there, at least 0."""
    tilt = tilt_for_delta(law, math.log(delta))
    if tilt.epsilon <= 0.0:
        return replace(tilt_for_epsilon(law, 0.0), log_delta=math.log(delta)), 0.0

    return sharpened(law, tilt), tilt.epsilon


def _is_zero(problem: Composition, law: Law, tilt: Tilt, delta: float) -> bool:
    """Whether epsilon 0 is certified at this delta, by Chernoff on a coarse upper measure."""
    _, pair = _spaced(problem, law, tilt, 0.05, delta)
    return chernoff(pair.upper, delta) <= 0.0


def _upper_alone(
    problem: Composition, law: Law, reverse: Bracket, goal: tuple[float, float]
) -> float:
    """An upper bound that is low enough for this direction to be no worse than its reverse, on a
    lattice like that one's; infinity if none is found.
    """
    delta, tolerance = goal
    enough = max(reverse.upper, reverse.lower / (1.0 - tolerance))
    if not math.isfinite(reverse.spacing):
        return math.inf

    try:
        part = upper_measure(problem, law, reverse.theta, reverse.spacing, delta)
    except OutOfRangeError:
        return math.inf

    # Chernoff's bound needs neither a tilt of its own nor a transform.
    bound = chernoff(part, delta)
    if bound <= reverse.upper:
        return bound

    tilt, _ = _first_tilt(law, delta)
    window = planned(law, tilt, part.spacing)
    if window.points(part.spacing) <= _LONGEST:
        part = tilted(part.measures, window.theta, outward=1)
        curve = _upper(part, window, _length(window, part.spacing))
        bound = min(bound, _epsilon_above(curve, part, delta, tilt.epsilon))

    return bound if bound <= enough else math.inf


def _refine(
    problem: Composition,
    law: Law,
    begin: tuple[Tilt, float, Pair | None],
    goal: tuple[float, float],
) -> Bracket:
    """Brackets with ever finer spacing, from `begin` = (tilt, spacing, measures if known) to `goal`
    = (delta, tolerance).
    """
    (tilt, spacing, pair), (delta, tolerance) = begin, goal
    best = Bracket(0.0, math.inf)
    work, extended, crowded = 0.0, False, False

    for attempt in range(_ROUNDS):
        window = planned(law, tilt, spacing, extended=extended)
        # A spacing that is too fine for the longest transform is made as fine as it may be.
        if window.points(spacing) > _LONGEST:
            spacing, pair = window.width / (0.9 * _LONGEST), None

        theta = window.theta if crowded else tilt.theta
        try:
            pair = pair or measures(problem, law, theta, spacing, delta)
        except OutOfRangeError:
            # After a first bracket this is no error: it stays as wide as it is.
            if attempt:
                break

            raise

        # Several brackets of the same number are intersected.
        pair = pair.tilted(window.theta)
        curves = _curves(pair, window)
        low, high = _epsilon_ends(pair, curves, (delta, tolerance), tilt.epsilon)
        best = Bracket(max(best.lower, low), min(best.upper, high), spacing, theta)
        work += window.points(spacing)
        if best.upper - best.lower <= tolerance * best.upper < math.inf or work > _WORK:
            break

        # What makes the bracket wide: rounding (then long double), or the spacing.
        nodes = pair.nodes * spacing
        if WIDE and not window.extended and curves.is_rounding(best.upper):
            extended = True
        else:
            spacing *= _refinement(best, tilt, tolerance, is_blind=low <= 0.0)

        tilt, pair = replace(tilt_for_epsilon(law, best.upper), log_delta=tilt.log_delta), None
        crowded |= nodes > _CROWD * spacing

    return best


def _refinement(bracket: Bracket, tilt: Tilt, tolerance: float, *, is_blind: bool) -> float:
    """The factor on the spacing, from 0.1 to 0.7: the width falls with its square; without a lower
    end the factor follows how far the tilt was off.
    """
    if is_blind:
        return max(0.1, min(0.7, bracket.upper / max(tilt.epsilon, 1e-300)))

    width = bracket.upper - bracket.lower
    return min(0.7, max(0.1, math.sqrt(0.8 * tolerance * bracket.upper / width)))


def _epsilon_ends(
    pair: Pair, curves: _Curves, goal: tuple[float, float], near: float
) -> tuple[float, float]:
    """Both ends of epsilon, read off the curves and moved outward by the slack of the losses."""
    delta, tolerance = goal
    high = _epsilon_above(curves.upper, pair.upper, delta, near)
    low = max(curves.lower.epsilon(delta, high) - pair.lower.slack, 0.0) * (1.0 - 4.0 * U)

    # Written so that an infinite end is caught too: Chernoff's bound may be finite.
    if not high - low < tolerance * high:
        high = min(high, chernoff(pair.upper, delta))

    return low, high


def _epsilon_above(upper: PrivacyCurve | Unknown, part: Tilted, delta: float, near: float) -> float:
    """The upper end of epsilon, moved outward by the slack of the losses."""
    return max(upper.epsilon(delta, near) + part.slack, 0.0) * (1.0 + 4.0 * U)


def _spaced(
    problem: Composition, law: Law, tilt: Tilt, budget: float, delta: float
) -> tuple[float, Pair]:
    """A spacing at which upper and lower measure differ by the budget in ln delta, as seen by their
    cumulants, and those.
    """
    theta = tilt.theta

    # The two differ by about T theta (1 + theta) h^2 / 6 (section 3).
    spacing = math.sqrt(6.0 * budget / (theta * (1.0 + theta) * problem.steps))

    for is_last in (False, False, False, True):
        pair = measures(problem, law, theta, spacing, delta)
        used = pair.difference / budget
        if 0.5 < used <= 1.1 or is_last:
            break

        spacing *= min(3.0, max(0.2, 0.95 / math.sqrt(max(used, 1e-9))))

    return spacing, pair


@dataclass(frozen=True, slots=True)
class _Curves:
    """The lower and the upper curve."""

    lower: PrivacyCurve | Unknown
    upper: PrivacyCurve | Unknown

    def is_rounding(self, epsilon: float) -> bool:
        """Whether rounding makes up much of the distance of the curves; for choosing what to do
        next.
        """
        rounding = self.upper.rounding(epsilon) + self.lower.rounding(epsilon)
        return rounding > 0.25 * (self.upper.delta(epsilon) - self.lower.delta(epsilon))


def _curves(pair: Pair, window: Window) -> _Curves:
    """The lower and the upper curve; curves that say nothing if the transform would be too long."""
    length = _length(window, pair.upper.spacing)
    if length > _LONGEST or not pair.lower.weights:
        return _Curves(Unknown(0.0), Unknown(math.inf))

    return _Curves(_lower(pair.lower, window, length), _upper(pair.upper, window, length))


def _length(window: Window, spacing: float) -> int:
    """How many places the window has, a number for which transforms are fast."""
    return int(scipy.fft.next_fast_len(math.ceil(window.points(spacing)) + 8, real=True))


def _places(part: Tilted, window: Window, length: int) -> tuple[int, int]:
    """The first and the last place of the window; the last is at its upper end."""
    last = math.ceil((window.high - part.origin) / part.spacing) - 1
    return last - length + 1, last


def _upper(part: Tilted, window: Window, length: int) -> PrivacyCurve:
    """The upper curve: errors added to every place, and what lies outside of the window."""
    first, last = _places(part, window, length)

    # Wrapping around only adds to an upper bound; what lies above the window has to be added.
    end = part.origin + part.spacing * last
    cumulant = float(part.cumulant(np.array([window.tail]))[0])
    above = math.exp(min(cumulant - window.tail * end, 0.0))

    # An epsilon below 0 means 0, and below the window nothing is known.
    least = max(part.origin + part.spacing * first, -part.spacing)
    composed = compose(part, length, extended=window.extended)
    return composed_curve(part, composed, (last, least), outward=1, constant=part.infinite + above)


def _lower(part: Tilted, window: Window, length: int) -> PrivacyCurve:
    """The lower curve: errors subtracted from every place, and what may have wrapped around."""
    first, last = _places(part, window, length)
    lowest = part.origin + part.spacing * first
    floor = max(window.floor, lowest)
    width = length * part.spacing

    # At most this much wrapped around from below and from above into losses >= floor, untilted
    # (section 5, "Window"). If the window begins below every loss, nothing came from below.
    down, up = window.wrap_down, window.wrap_up
    cumulant_down, cumulant_up = part.cumulant(np.array([-down, up])).tolist()
    below = cumulant_down + down * lowest - part.theta * width
    wrapped = 0.0 if first <= part.lowest else _series(below, part.theta * width)
    above = cumulant_up - up * (floor + width) + part.theta * width
    constant = -(wrapped + _series(above, (up - part.theta) * width)) * (1.0 + 1e-9)
    composed = compose(part, length, extended=window.extended)
    return composed_curve(part, composed, (last, floor), outward=-1, constant=constant)


def _series(log_first: float, decay: float) -> float:
    """Sum a geometric series with first term e^log_first and ratio e^-decay; 1 at most."""
    return min(math.exp(min(log_first, 0.0)) / -math.expm1(-max(decay, 1e-300)), 1.0)


def delta_bracket(problem: Composition, epsilon: float, tolerance: float) -> Bracket:
    """Bracket delta at an epsilon, to a relative tolerance, for one direction of a composition."""
    # Twice, because the law leaves out what is far below delta, which is not known at first.
    law = problem.law(1e-280)
    delta = math.exp(min(tilt_for_epsilon(law, epsilon).log_delta, -1e-9))
    law = problem.law(delta)
    tilt = tilt_for_epsilon(law, epsilon)

    best = Bracket(0.0, 1.0)
    pair: Pair | None
    spacing, pair = _spaced(problem, law, tilt, 0.8 * tolerance, delta)
    work = 0.0

    for attempt in range(_ROUNDS):
        window = planned(law, tilt, spacing)

        try:
            pair = pair or measures(problem, law, tilt.theta, spacing, delta)
        except OutOfRangeError:
            # After a first bracket this is no error: it stays as wide as it is.
            if attempt:
                break

            raise

        # Since D decreases, a loss moved outward by the slack is an epsilon moved the other way.
        pair = pair.tilted(window.theta)
        curves = _curves(pair, window)
        at_most = max(epsilon - pair.upper.slack, 0.0) * (1.0 - 4.0 * U)
        at_least = (epsilon + pair.lower.slack) * (1.0 + 4.0 * U)
        high = curves.upper.delta(at_most) * (1.0 + 1e-12)
        low = curves.lower.delta(at_least) * (1.0 - 1e-12)
        best = Bracket(max(best.lower, low), min(best.upper, high), spacing, chernoff=delta)
        work += window.points(spacing)
        if best.upper - best.lower <= tolerance * best.upper or work > _WORK:
            break

        spacing *= _refinement(best, tilt, tolerance, is_blind=False)
        tilt, pair = replace(tilt, log_delta=math.log(max(best.upper, 1e-300))), None

    return best
