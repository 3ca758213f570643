"""Certified epsilon at a delta, or delta at an epsilon, for one direction of a composition.

The order of things: choose tilt and window from quadratures; choose the spacing so that the upper and the lower measure differ
by little enough in their cumulant at the tilt (their difference in ln delta, known before any transform); compose both; read
both curves. If the bracket is still wider than asked for, refine the spacing and repeat.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import scipy.fft

from discreet.accounting.tight._rounding import FloatArray, OutOfRangeError, U
from discreet.accounting.tight.compose import Tilted, compose, compose_jumps, tilted
from discreet.accounting.tight.curve import Curve, curve, unknown
from discreet.accounting.tight.direction import Direction
from discreet.accounting.tight.gather import gather
from discreet.accounting.tight.lattice import Lattice, Scope, lattice, scope
from discreet.accounting.tight.measure import Measure, spread
from discreet.accounting.tight.tilt import Law, Tilt, log_peak, tilt_for_delta, tilt_for_epsilon

__all__ = ["Bracket", "Problem", "Start", "Starts", "chernoff", "delta_bracket", "epsilon_bracket", "period"]

_LONGEST = 3 << 19
_ROUNDS = 10
_WORK = 2_200_000  # points transformed, after which a bracket is left as wide as it is
_LONG = 80.0  # a window of more than this over theta is tried with a smaller theta
_LESS = (0.8, 0.6, 0.45, 0.3, 0.2, 0.1, 0.05, 0.02)
_LOSS = 12.0  # by how much, in ln, the tilted mass may exceed what is wanted, for the sake of a short window
_MANY = 300_000  # points above which sums without a large loss are left out, if they can be
_CUTS = (0.6, 0.45, 0.3, 0.2, 0.14, 0.1, 0.07, 0.05)
_RARE = 8.0  # the same for sums with a large loss, whose own errors are small
_TRUSTED = 0.4  # lower curves are computed from this part of the expected epsilon upwards
_SMALL = 1e-7  # part of delta that may be lost to each of: infinity, tails, wrapping around


@dataclass(frozen=True, slots=True)
class Bracket:
    """lower <= truth <= upper."""

    lower: float
    upper: float


@dataclass(frozen=True, slots=True)
class Problem:
    """One direction of a composition: directions with counts."""

    parts: tuple[tuple[Direction, int], ...]

    @property
    def directions(self) -> tuple[Direction, ...]:
        """Without their counts."""
        return tuple(direction for direction, _ in self.parts)

    @property
    def steps(self) -> int:
        """Number of steps."""
        return sum(count for _, count in self.parts)

    def law(self, delta: float) -> Law:
        """The composed loss, without what has a probability far below delta."""
        law = Law(tuple((direction.quadrature(), float(count)) for direction, count in self.parts))
        return law.capped(_SMALL * delta / len(self.parts))


@dataclass(frozen=True, slots=True)
class Start:
    """Where a computation ended: a good place to begin the next, for a few steps more."""

    epsilon: float
    spacing: float
    steps: int


Starts: TypeAlias = dict[tuple[Direction, ...], Start]


@dataclass(frozen=True, slots=True)
class _Pair:
    """The upper and the lower measure of a composition on one lattice, tilted alike."""

    upper: Tilted
    lower: Tilted
    infinite: float

    @property
    def difference(self) -> float:
        """Width in ln delta that the discretisation causes."""
        return self.upper.log_total - self.lower.log_total


@dataclass(frozen=True, slots=True)
class _Window:
    """Losses from `low` to `high` that the transform covers; exponents that bound what lies outside.

    The lower curve is used at `floor` and above only. With a finite `cut`, sums without a loss above the cut are left out: they
    reach `floor` with a probability far below delta, bounded with the exponent `bulk`, and both curves begin at `floor`.
    """

    low: float
    high: float
    floor: float
    tail: float
    wrap_down: float
    wrap_up: float
    cut: float = math.inf
    bulk: float = 0.0

    def points(self, spacing: float) -> float:
        """Length of a transform over the window."""
        return (self.high - self.low) / spacing


def epsilon_bracket(
    problem: Problem, delta: float, tolerance: float, floor: float = 0.0, starts: Starts | None = None
) -> Bracket:
    """Epsilon at delta; stops early, with a lower bound of 0, when the upper bound is at most `floor`.

    `starts` remembers where a computation for the same directions with nearly the same counts ended; it saves time only.
    """
    law = problem.law(delta)
    start = None if starts is None else starts.get(problem.directions)
    if start is not None and starts is not None and 0.8 < start.steps / problem.steps <= 1.0:
        tilt = replace(tilt_for_epsilon(law, start.epsilon), log_delta=math.log(delta))
        return _refine(problem, law, (tilt, start.spacing), (delta, tolerance, floor), starts)
    tilt = tilt_for_delta(law, math.log(delta))
    if tilt.epsilon <= 0.0:
        tilt = replace(tilt_for_epsilon(law, 0.0), log_delta=math.log(delta))
    if tilt.epsilon <= 0.0:
        pair = _measures(problem, law, tilt.theta, _spacing(problem, law, tilt, 0.05, delta), delta)
        if chernoff(pair.upper, delta - pair.infinite) <= 0.0:
            return Bracket(0.0, 0.0)
    spacing = _spacing(problem, law, tilt, min(0.8 * tolerance * max(tilt.epsilon, 1e-9) * tilt.theta, 0.5), delta)
    return _refine(problem, law, (tilt, spacing), (delta, tolerance, floor), starts)


def _refine(
    problem: Problem,
    law: Law,
    begin: tuple[Tilt, float],
    goal: tuple[float, float, float],
    starts: Starts | None,
) -> Bracket:
    """Compute brackets with ever finer spacing, from `begin` = (tilt, spacing) to `goal` = (delta, tolerance, floor)."""
    (tilt, spacing), (delta, tolerance, floor) = begin, goal
    best = Bracket(0.0, math.inf)
    work, done = 0.0, False
    for _ in range(_ROUNDS):
        tilt, window = _shortest(law, tilt, spacing)
        if window.points(spacing) > _MANY:
            tilt, window = _jumping(law, tilt, window)
        try:
            pair = _measures(problem, law, tilt.theta, spacing, delta)
        except OutOfRangeError:
            if done:
                break  # the bracket stays as wide as it is
            raise
        done = True
        best = Bracket(best.lower, min(best.upper, chernoff(pair.upper, delta - pair.infinite)))
        if best.upper <= floor:
            break
        lower, upper = _curves(pair, window, tilt.epsilon)
        high = max(upper.epsilon(delta) + pair.upper.slack, 0.0) * (1.0 + 4.0 * U)
        low = max(lower.epsilon(delta) - pair.lower.slack, 0.0) * (1.0 - 4.0 * U) if lower.reaches(delta) else 0.0
        best = Bracket(max(best.lower, low), min(best.upper, high))
        width = best.upper - best.lower
        work += window.points(spacing)
        if width <= tolerance * best.upper or work > _WORK:
            if starts is not None and low > 0.0:
                starts[problem.directions] = Start(best.upper, spacing, problem.steps)
            break
        if low > 0.0:
            spacing *= min(0.7, max(0.1, math.sqrt(0.8 * tolerance * best.upper / width)))
        else:
            spacing *= max(0.1, min(0.7, best.upper / max(tilt.epsilon, 1e-300)))
        tilt = replace(tilt_for_epsilon(law, best.upper), log_delta=tilt.log_delta)
    return best


def chernoff(part: Tilted, delta: float) -> float:
    """A certified upper bound on epsilon from the upper measure alone: Chernoff at several exponents, no transform."""
    if delta <= 0.0:
        return math.inf
    best = math.inf
    for factor in (0.7, 0.85, 1.0, 1.2, 1.5):
        theta = part.theta * factor
        peak = float(log_peak(np.array([theta]))[0])
        best = min(best, (part.cumulant(theta) + peak - math.log(delta)) / theta)
    return max(best * (1.0 + 1e-12) + part.slack, 0.0)


def _spacing(problem: Problem, law: Law, tilt: Tilt, budget: float, delta: float) -> float:
    """A spacing at which upper and lower measure differ by the budget in ln delta, as seen by their cumulants."""
    theta = tilt.theta
    total = float(sum(count for _, count in problem.parts))
    spacing = math.sqrt(6.0 * budget / (theta * (1.0 + theta) * total))
    for _ in range(4):
        used = _measures(problem, law, theta, spacing, delta).difference / budget
        if 0.5 < used <= 1.1:
            break
        spacing *= min(3.0, max(0.2, 0.95 / math.sqrt(max(used, 1e-9))))
    return spacing


def _measures(problem: Problem, law: Law, theta: float, spacing: float, delta: float) -> _Pair:
    uppers: list[tuple[Measure, int]] = []
    lowers: list[tuple[Measure, int]] = []
    infinite = 0.0
    most = max(count for _, count in problem.parts)
    longest = max(1, int(0.5 / ((1.0 + theta) * spacing)))
    for (direction, count), (nodes, _) in zip(problem.parts, law.parts, strict=True):
        coarse = min(max(1, math.isqrt(most // count)), longest)
        step = spacing * coarse
        beyond = _SMALL * delta / (count * len(problem.parts))
        area = scope(nodes, theta, step, beyond, 1e-10 / count)
        grid, lower = _placed(direction, area, step, max(1, longest // coarse), 0.003 * (1.0 + theta) * step * step)
        upper = spread(direction, grid)
        infinite += count * upper.infinite
        uppers.append((_refined(upper, spacing, coarse), count))
        lowers.append((_refined(lower, spacing, coarse), count))
    return _Pair(tilted(tuple(uppers), theta, outward=1), tilted(tuple(lowers), theta, outward=-1), infinite * (1.0 + 1e-9))


def _placed(direction: Direction, area: Scope, step: float, longest: int, near: float) -> tuple[Lattice, Measure]:
    """A lattice placed so that its fullest node is balanced: worth left over between 0 and `near`, by regula falsi."""
    offset = area.centre
    grid = lattice(area, step, offset, longest)
    lower = gather(direction, grid)
    lack: tuple[float, float] | None = None
    excess: tuple[float, float, Lattice, Measure] | None = None
    for _ in range(6):
        if -1e-9 * step <= lower.lean <= near:
            return grid, lower
        if lower.lean < 0.0:
            lack = (offset, lower.lean)
        elif excess is None or lower.lean < excess[1]:
            excess = (offset, lower.lean, grid, lower)
        if lack is None or excess is None:
            offset += 1.02 * lower.lean if lower.lean < 0.0 else lower.lean
        else:
            offset = excess[0] + (lack[0] - excess[0]) * 0.98 * excess[1] / (excess[1] - lack[1])
        grid = lattice(area, step, offset, longest)
        lower = gather(direction, grid)
    if excess is not None and not 0.0 <= lower.lean <= excess[1]:
        return excess[2], excess[3]
    return grid, lower


def _refined(measure: Measure, spacing: float, coarse: int) -> Measure:
    """The same measure on the common lattice."""
    return measure if coarse == 1 else replace(measure, spacing=spacing, index=measure.index * coarse)


def _shortest(law: Law, tilt: Tilt, spacing: float) -> tuple[Tilt, _Window]:
    """The window at this tilt or, where rare large losses make it long, at a smaller one that still keeps rounding away."""
    window = _window(law, tilt)
    if tilt.theta * (window.high - window.low) < _LONG:
        return tilt, window
    best = (tilt, window)
    for factor in _LESS:
        theta = tilt.theta * factor
        one = np.array([theta])
        lost = float((law.loose(one, spacing) + log_peak(one))[0]) - theta * tilt.epsilon - tilt.log_delta
        less = replace(tilt, theta=theta)
        window = _window(law, less)
        if lost < _allowed(law) and window.high - window.low < best[1].high - best[1].low:
            best = (less, window)
    return best


def _allowed(law: Law) -> float:
    """Rounding errors grow with the number of steps, so fewer are allowed to be magnified then."""
    return _LOSS - max(0.0, math.log(sum(count for _, count in law.parts) / 1e5))


def _jumping(law: Law, tilt: Tilt, window: _Window) -> tuple[Tilt, _Window]:
    """A short window where epsilon is reached by rare large losses only: sums without one are left out. See `_Window`."""
    floor = 0.85 * tilt.epsilon
    goal = tilt.log_delta + math.log(_SMALL)
    steep = np.array([5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0, 1280.0]) / max(tilt.epsilon, 1e-300)
    best = (tilt, window)
    for share in _CUTS:
        small = law.below(share * tilt.epsilon)
        reach = small.cumulant(steep) - steep * floor
        if float(np.min(reach)) > goal:
            continue
        for factor in (1.0, *_LESS):
            one = np.array([tilt.theta * factor])
            whole, rest = float(law.cumulant(one)[0]), float(small.cumulant(one)[0])
            rare = whole + math.log(max(-math.expm1(min(rest - whole, 0.0)), 1e-300))
            lost = rare + float(log_peak(one)[0]) - float(one[0]) * tilt.epsilon - tilt.log_delta
            less = replace(tilt, theta=float(one[0]))
            found = _window(law, less)
            if lost < _RARE and found.high - found.low < 0.7 * (best[1].high - best[1].low):
                bulk = float(steep[int(np.argmin(reach))])
                best = (less, replace(found, floor=max(floor, found.floor), cut=share * tilt.epsilon, bulk=bulk))
        break
    return best


def _window(law: Law, tilt: Tilt) -> _Window:
    """As short a window as tails and wrapping allow; see docs/proofs/tight.md, section 5."""
    theta, goal = tilt.theta, tilt.log_delta + math.log(_SMALL)
    floor = max(_TRUSTED * tilt.epsilon, tilt.epsilon - 10.0 / theta)
    rise = theta * np.array([0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.85, 1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 100.0])
    fall = theta * np.array([0.0, 0.1, 0.3, 0.6, 1.0, 2.0, 4.0, 10.0, 30.0, 100.0, 1e3, 1e4, 1e5])
    up, down = law.cumulant(rise), law.cumulant(-fall)
    reach = (up - goal) / rise
    high = float(np.min(reach))
    tail = float(rise[int(np.argmin(reach))])
    steeper = rise > theta

    def outside(width: float) -> tuple[float, float, float, float]:
        below = down + fall * (high - width) - theta * width
        above = (up - rise * (floor + width) + theta * width)[steeper]
        i, j = int(np.argmin(below)), int(np.argmin(above))
        return float(below[i]), float(above[j]), float(fall[i]), float(rise[steeper][j])

    short, long = 0.0, max(high - floor, 1e-300)
    while max(outside(long)[:2]) > goal and long < 1e3 * (high - law.least):
        short, long = long, 2.0 * long
    for _ in range(12):
        middle = 0.5 * (short + long)
        short, long = (short, middle) if max(outside(middle)[:2]) <= goal else (middle, long)
    long = max(long, 1.02 * (high - floor))
    _, _, wrap_down, wrap_up = outside(long)
    return _Window(high - long, high, floor, tail, wrap_down, wrap_up)


def period(law: Law, tilt: Tilt, delta: float) -> float:
    """Length of a window with wrapping far below delta, for the estimate."""
    window = _window(law, replace(tilt, log_delta=math.log(delta) - 12.0))
    return 1.2 * (window.high - window.low)


def _curves(pair: _Pair, window: _Window, near: float) -> tuple[Curve, Curve]:
    """The lower and the upper curve around epsilon = near."""
    spacing = pair.upper.spacing
    length = scipy.fft.next_fast_len(math.ceil((window.high - window.low) / spacing) + 8, real=True)
    if length > _LONGEST:
        return unknown(-1.0), unknown(math.inf)
    return _lower(pair.lower, window, near, length), _upper(pair, window, near, length)


def _upper(pair: _Pair, window: _Window, near: float, length: int) -> Curve:
    part = pair.upper
    first = math.ceil((window.high - part.origin) / part.spacing) - length
    node = part.origin + part.spacing * (first + np.arange(length, dtype=np.float64))
    if math.isfinite(window.cut):
        return _upper_jumps(pair, window, near, first, node)
    composed = compose(part, first, length)
    mass = np.maximum(composed.mass, 0.0) + composed.error
    # Wrapping around only adds to an upper bound; what lies above the window has to be added.
    above = math.exp(min(part.cumulant(window.tail) - window.tail * float(node[-1]), 0.0))
    return curve(node, mass, part, near, outward=1, constant=pair.infinite + above)


def _upper_jumps(pair: _Pair, window: _Window, near: float, first: int, node: FloatArray) -> Curve:
    """The upper curve from `floor` upwards, where sums without a loss above the cut are bounded instead of composed."""
    part = pair.upper
    composed = compose_jumps(part, first, len(node), window.cut)
    trusted = node >= window.floor
    if not math.isfinite(composed.error) or np.count_nonzero(trusted) < 2:
        return unknown(math.inf)
    mass = np.maximum(composed.mass, 0.0) + composed.error
    above = math.exp(min(part.cumulant(window.tail) - window.tail * float(node[-1]), 0.0))
    within = math.exp(min(part.cumulant(window.bulk, window.cut) - window.bulk * window.floor, 0.0))
    return curve(node[trusted], mass[trusted], part, near, outward=1, constant=pair.infinite + above + within)


def _lower(part: Tilted, window: _Window, near: float, length: int) -> Curve:
    if not part.weights:
        return unknown(-1.0)
    first = math.ceil((window.high - part.origin) / part.spacing) - length
    rare = math.isfinite(window.cut)
    composed = compose_jumps(part, first, length, window.cut) if rare else compose(part, first, length)
    node = part.origin + part.spacing * (first + np.arange(length, dtype=np.float64))
    mass = np.maximum(composed.mass - composed.error, 0.0)
    width = length * part.spacing
    trusted = node >= window.floor
    if np.count_nonzero(trusted) < 2:
        return unknown(-1.0)
    floor = float(node[trusted][0])
    # At most this much wrapped around from below and from above into losses >= floor, untilted (section 5).
    below = part.cumulant(-window.wrap_down) + window.wrap_down * float(node[0]) - part.theta * width
    wrapped = 0.0 if first <= part.lowest else _series(below, part.theta * width)
    above = part.cumulant(window.wrap_up) - window.wrap_up * (floor + width) + part.theta * width
    constant = -(wrapped + _series(above, (window.wrap_up - part.theta) * width)) * (1.0 + 1e-9)
    return curve(node[trusted], mass[trusted], part, near, outward=-1, constant=constant)


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
    spacing = _spacing(problem, law, tilt, 0.8 * tolerance, delta)
    work, done = 0.0, False
    for _ in range(_ROUNDS):
        tilt, window = _shortest(law, tilt, spacing)
        try:
            pair = _measures(problem, law, tilt.theta, spacing, delta)
        except OutOfRangeError:
            if done:
                break  # the bracket stays as wide as it is
            raise
        done = True
        lower, upper = _curves(pair, window, epsilon)
        high = upper.delta(max(epsilon - pair.upper.slack, 0.0) * (1.0 - 4.0 * U)) * (1.0 + 1e-12)
        low = lower.delta((epsilon + pair.lower.slack) * (1.0 + 4.0 * U)) * (1.0 - 1e-12)
        best = Bracket(max(best.lower, low), min(best.upper, high))
        width = best.upper - best.lower
        work += window.points(spacing)
        if width <= tolerance * best.upper or work > _WORK:
            break
        spacing *= min(0.7, max(0.1, math.sqrt(0.8 * tolerance * best.upper / width)))
        tilt = replace(tilt, log_delta=math.log(max(best.upper, 1e-300)))
    return best
