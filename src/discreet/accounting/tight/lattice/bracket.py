"""Certified epsilon at a delta, or delta at an epsilon, for one direction of a composition.

The order of things: choose tilt and window from quadratures; choose the spacing so that the upper
and the lower measure differ by little enough in their cumulant at the tilt (their difference in ln
delta, known before any transform); compose both; read both curves. If the bracket is still wider
than asked for, refine the spacing and repeat.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import scipy

from discreet.accounting.tight.interface import Direction
from discreet.accounting.tight.lattice.compose import Composed, Tilted, compose, tilted
from discreet.accounting.tight.lattice.curve import Curve, curve, unknown
from discreet.accounting.tight.lattice.pair import Pair, Problem, chernoff, measures, upper_measure
from discreet.accounting.tight.lattice.tilt import (
    Law,
    Tilt,
    sharpened,
    tilt_for_delta,
    tilt_for_epsilon,
)
from discreet.accounting.tight.lattice.window import Window, planned
from discreet.accounting.tight.rounding import WIDE, FloatArray, OutOfRangeError, U

__all__ = ["Bracket", "Start", "Starts", "delta_bracket", "epsilon_bracket"]

_LONGEST = 3 << 19
_ROUNDS = 10
_CROWD = 20_000  # nodes above which a lattice for a smaller tilt, with fewer, is better
_WORK = 2_200_000  # points transformed, after which a bracket is left as wide as it is


@dataclass(frozen=True, slots=True)
class Bracket:
    """lower <= truth <= upper.

    Attributes:
        spacing: of the lattice that it was found with; a good guess for the other direction.
        chernoff: about what the best exponent alone gives, a Rényi bound say; 0 if not known.
    """

    lower: float
    upper: float
    spacing: float = math.inf
    chernoff: float = 0.0


@dataclass(frozen=True, slots=True)
class Start:
    """Where a computation ended: a good place to begin the next, for a few steps more."""

    epsilon: float
    spacing: float
    steps: int


Starts: TypeAlias = dict[tuple[Direction, ...], Start]


def epsilon_bracket(
    problem: Problem,
    delta: float,
    tolerance: float,
    other: Bracket | None = None,
    starts: Starts | None = None,
) -> Bracket:
    """Epsilon at delta.

    Args:
        problem: the directions with their counts.
        delta: in (0, 1).
        tolerance: relative width to aim at.
        other: bracket of the other direction, if known. If this direction is certified not to be
            worse, then that is all
            that matters: an upper bound is returned, with a lower bound of 0.
        starts: remembers where a computation for the same directions with nearly the same counts
            ended; saves time only.
    """
    law = problem.law(delta)
    start = None if starts is None else starts.get(problem.directions)
    if start is not None and starts is not None and 0.8 < start.steps / problem.steps <= 1.0:
        tilt = replace(tilt_for_epsilon(law, start.epsilon), log_delta=math.log(delta))
        spacing, pair, rough = start.spacing, None, 0.0
    else:
        tilt = tilt_for_delta(law, math.log(delta))
        rough = max(tilt.epsilon, 0.0)
        if tilt.epsilon <= 0.0:
            tilt = replace(tilt_for_epsilon(law, 0.0), log_delta=math.log(delta))
        if tilt.epsilon <= 0.0:
            _, pair = _spaced(problem, law, tilt, 0.05, delta)
            if chernoff(pair.upper, delta) <= 0.0:
                return Bracket(0.0, 0.0)
        else:
            tilt = sharpened(law, tilt)
        spacing, pair = 0.0, None
    if other is not None and math.isfinite(other.spacing):
        enough = max(other.upper, other.lower / (1.0 - tolerance))
        upper = _upper_epsilon(problem, law, tilt, other.spacing, delta, enough)
        if upper <= enough:
            return Bracket(0.0, upper, chernoff=rough)
    if not spacing:
        budget = min(0.8 * tolerance * max(tilt.epsilon, 1e-9) * tilt.theta, 0.5)
        spacing, pair = _spaced(problem, law, tilt, budget, delta)
    found = _refine(problem, law, (tilt, spacing, pair), (delta, tolerance))
    if starts is not None and found.lower > 0.0 and math.isfinite(found.spacing):
        starts[problem.directions] = Start(found.upper, found.spacing, problem.steps)
    return replace(found, chernoff=rough)


def _upper_epsilon(
    problem: Problem, law: Law, tilt: Tilt, spacing: float, delta: float, enough: float
) -> float:
    """An upper bound alone, from one lattice; by Chernoff, without a transform, if that is already
    at most `enough`.
    """
    window = planned(law, tilt, spacing)
    if window.points(spacing) > _LONGEST:
        return math.inf
    try:
        part = upper_measure(problem, law, tilt.theta, spacing, delta)
    except OutOfRangeError:
        return math.inf
    bound = chernoff(part, delta)
    if bound <= enough:
        return bound
    part = tilted(part.measures, window.theta, outward=1)
    length = _length(window, spacing)
    upper = _upper(part, _composed(part, window, length), window, tilt.epsilon)
    return min(bound, max(upper.epsilon(delta) + part.slack, 0.0) * (1.0 + 4.0 * U))


def _refine(
    problem: Problem, law: Law, begin: tuple[Tilt, float, Pair | None], goal: tuple[float, float]
) -> Bracket:
    """Brackets with ever finer spacing, from `begin` = (tilt, spacing, measures if known) to `goal`
    = (delta, tolerance).
    """
    (tilt, spacing, pair), (delta, tolerance) = begin, goal
    best = Bracket(0.0, math.inf)
    work, done, extended, crowded = 0.0, False, False, False
    for _ in range(_ROUNDS):
        plan = planned(law, tilt, spacing, extended=extended)
        if plan.points(spacing) > _LONGEST:
            spacing, pair = plan.width / (0.9 * _LONGEST), None
        try:
            pair = pair or measures(
                problem, law, plan.theta if crowded else tilt.theta, spacing, delta
            )
        except OutOfRangeError:
            if done:
                break  # the bracket stays as wide as it is
            raise
        done = True
        pair = pair.tilted(plan.theta)
        lower, upper, rounding = _curves(pair, plan, tilt.epsilon)
        high = max(upper.epsilon(delta) + pair.upper.slack, 0.0) * (1.0 + 4.0 * U)
        low = (
            max(lower.epsilon(delta) - pair.lower.slack, 0.0) * (1.0 - 4.0 * U)
            if lower.reaches(delta)
            else 0.0
        )
        if not high - low < tolerance * high:  # also where it is infinite
            high = min(high, chernoff(pair.upper, delta))
        best = Bracket(max(best.lower, low), min(best.upper, high), spacing)
        width = best.upper - best.lower
        work += plan.points(spacing)
        if width <= tolerance * best.upper < math.inf or work > _WORK:
            break
        gap, nodes = upper.delta(best.upper) - lower.delta(best.upper), pair.nodes * spacing
        if WIDE and not plan.extended and rounding.delta(best.upper) > 0.25 * gap:
            extended = True
        elif low > 0.0:
            spacing *= min(0.7, max(0.1, math.sqrt(0.8 * tolerance * best.upper / width)))
        else:
            spacing *= max(0.1, min(0.7, best.upper / max(tilt.epsilon, 1e-300)))
        tilt, pair = replace(tilt_for_epsilon(law, best.upper), log_delta=tilt.log_delta), None
        crowded = crowded or nodes > _CROWD * spacing
    return best


def _spaced(
    problem: Problem, law: Law, tilt: Tilt, budget: float, delta: float
) -> tuple[float, Pair]:
    """A spacing at which upper and lower measure differ by the budget in ln delta, as seen by their
    cumulants, and those.
    """
    theta = tilt.theta
    spacing = math.sqrt(6.0 * budget / (theta * (1.0 + theta) * problem.steps))
    for last in (False, False, False, True):
        pair = measures(problem, law, theta, spacing, delta)
        used = pair.difference / budget
        if 0.5 < used <= 1.1 or last:
            break
        spacing *= min(3.0, max(0.2, 0.95 / math.sqrt(max(used, 1e-9))))
    return spacing, pair


@dataclass(frozen=True, slots=True)
class _Rounding:
    """What rounding of the transforms takes from, or adds to, delta between two curves: about, for
    choosing what to do next.
    """

    error: float
    part: Tilted

    def delta(self, epsilon: float) -> float:
        """With e the error of a bin: sum_k e^(K - theta s_k) (1 - e^(eps - s_k)) e over bins s_k =
        eps + k spacing, k >= 0.
        """
        theta = self.part.theta
        height = math.exp(min(self.part.log_total - theta * epsilon, 700.0))
        return self.error * height / (theta * (1.0 + theta) * self.part.spacing)


def _curves(pair: Pair, window: Window, near: float) -> tuple[Curve, Curve, _Rounding]:
    """The lower and the upper curve around epsilon = near."""
    length = _length(window, pair.upper.spacing)
    if length > _LONGEST or not pair.lower.weights:
        return unknown(-1.0), unknown(math.inf), _Rounding(0.0, pair.upper)
    above, below = _composed(pair.upper, window, length), _composed(pair.lower, window, length)
    rounding = _Rounding(above.error + below.error, pair.upper)
    return (
        _lower(pair.lower, below, window, near),
        _upper(pair.upper, above, window, near),
        rounding,
    )


def _length(window: Window, spacing: float) -> int:
    return int(scipy.fft.next_fast_len(math.ceil(window.points(spacing)) + 8, real=True))


def _composed(part: Tilted, window: Window, length: int) -> Composed:
    first = math.ceil((window.high - part.origin) / part.spacing) - length
    return compose(part, first, length, extended=window.extended)


def _nodes(part: Tilted, composed: Composed) -> FloatArray:
    return part.origin + part.spacing * (
        composed.first + np.arange(len(composed.mass), dtype=np.float64)
    )


def _from(floor: float, node: FloatArray) -> slice:
    """Nodes from `floor` upwards, two at least."""
    return slice(min(int(np.searchsorted(node, floor)), len(node) - 2), len(node))


def _upper(part: Tilted, composed: Composed, window: Window, near: float) -> Curve:
    node = _nodes(part, composed)
    mass = np.maximum(composed.mass, 0.0) + composed.error
    # Wrapping around only adds to an upper bound; what lies above the window has to be added.
    above = math.exp(min(part.cumulant(window.tail) - window.tail * float(node[-1]), 0.0))
    used = _from(-part.spacing, node)
    return curve(node[used], mass[used], part, near, outward=1, constant=part.infinite + above)


def _lower(part: Tilted, composed: Composed, window: Window, near: float) -> Curve:
    node = _nodes(part, composed)
    mass = np.maximum(composed.mass - composed.error, 0.0)
    width = len(node) * part.spacing
    used = _from(window.floor, node)
    floor = float(node[used][0])
    # At most this much wrapped around from below and from above into losses >= floor, untilted
    # (section 5).
    below = (
        part.cumulant(-window.wrap_down) + window.wrap_down * float(node[0]) - part.theta * width
    )
    wrapped = 0.0 if composed.first <= part.lowest else _series(below, part.theta * width)
    above = part.cumulant(window.wrap_up) - window.wrap_up * (floor + width) + part.theta * width
    constant = -(wrapped + _series(above, (window.wrap_up - part.theta) * width)) * (1.0 + 1e-9)
    return curve(node[used], mass[used], part, near, outward=-1, constant=constant)


def _series(log_first: float, decay: float) -> float:
    """First term e^log_first of a geometric series with ratio e^-decay, summed; at most 1 matters."""
    return min(math.exp(min(log_first, 0.0)) / -math.expm1(-max(decay, 1e-300)), 1.0)


def delta_bracket(problem: Problem, epsilon: float, tolerance: float) -> Bracket:
    """Delta at epsilon, to a relative tolerance."""
    law = problem.law(1e-280)
    delta = math.exp(min(tilt_for_epsilon(law, epsilon).log_delta, -1e-9))
    law = problem.law(delta)
    tilt = tilt_for_epsilon(law, epsilon)
    best = Bracket(0.0, 1.0)
    pair: Pair | None
    spacing, pair = _spaced(problem, law, tilt, 0.8 * tolerance, delta)
    work, done = 0.0, False
    for _ in range(_ROUNDS):
        window = planned(law, tilt, spacing)
        try:
            pair = pair or measures(problem, law, tilt.theta, spacing, delta)
        except OutOfRangeError:
            if done:
                break  # the bracket stays as wide as it is
            raise
        done = True
        pair = pair.tilted(window.theta)
        lower, upper, _ = _curves(pair, window, epsilon)
        high = upper.delta(max(epsilon - pair.upper.slack, 0.0) * (1.0 - 4.0 * U)) * (1.0 + 1e-12)
        low = lower.delta((epsilon + pair.lower.slack) * (1.0 + 4.0 * U)) * (1.0 - 1e-12)
        best = Bracket(max(best.lower, low), min(best.upper, high), spacing, delta)
        width = best.upper - best.lower
        work += window.points(spacing)
        if width <= tolerance * best.upper or work > _WORK:
            break
        spacing *= min(0.7, max(0.1, math.sqrt(0.8 * tolerance * best.upper / width)))
        tilt, pair = replace(tilt, log_delta=math.log(max(best.upper, 1e-300))), None
    return best
