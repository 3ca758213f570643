"""Find the one missing value for a target (epsilon, delta); the result is always on the safe side.

    # The noise multiplier is missing.
    result = calibrate(epsilon=3.0, delta=1e-6, probability=0.005, steps=20_000)

    # Anything of `unknowns`.
    result = solve(Steps(step), epsilon=3.0, delta=1e-6)

The answer is a value whose *certified upper* epsilon was computed and is at most the target: the
guarantee in the result is that computation, not an interpolation. The search is a safeguarded
secant in (ln value, ln epsilon), first on estimates without a certificate, then on certified
brackets; that epsilon is monotone is a theorem for every unknown (docs/proofs/calibration.md), and
even a wrong start costs only time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from discreet import _validate as check
from discreet.accounting.accountant import Accountant, account
from discreet.accounting.calibration.approximations import gaussian_parameter
from discreet.accounting.calibration.unknowns import (
    NoiseMultiplier,
    Probability,
    Steps,
    Unknown,
    infeasible,
)
from discreet.accounting.normalise import normalise
from discreet.accounting.tight import sketched_epsilon
from discreet.errors import AccountingError, ParameterError
from discreet.ledger.events import GaussianSum, Poisson, Step
from discreet.units import Adjacency, Guarantee

__all__ = ["Calibration", "calibrate", "solve"]

_MOST_EVALUATIONS = 80

# Estimates before the first evaluation, at most, and the step in ln value that ends them.
_SKETCHES = 8
_STILL = 1e-4

# Evaluations after which the secant gives way to bisection.
_PATIENCE = 12

# The relative width of a bracket while the search is farther than `_NEAR` from the target, in
# ln(epsilon).
_ROUGH = 0.03
_NEAR = 0.2


@dataclass(frozen=True, slots=True)
class Calibration:
    """The value that was missing.

    Args:
        value: on the safe side of the target.
        guarantee: accounted at exactly this value; its upper bound is at most the target.
        unknown: what was solved for, with everything that was held fixed.
        evaluations: how many times the accountant was asked.
    """

    value: float
    guarantee: Guarantee
    unknown: Unknown
    evaluations: int

    def __str__(self) -> str:
        return (
            f"{self.unknown.name} {self.value!r}: ({self.guarantee.upper:.6g}, "
            f"{self.guarantee.delta!r})"
        )


def calibrate(
    *,
    epsilon: float,
    delta: float,
    probability: float | None = None,
    noise_multiplier: float | None = None,
    steps: int | None = None,
    adjacency: Adjacency = Adjacency.ADD_OR_REMOVE,
    tolerance: float = 1e-3,
) -> Calibration:
    """Poisson-sampled Gaussian sums: find whichever of probability, noise multiplier and steps is
    left out.

    Args:
        epsilon: the target.
        delta: of the target.
        probability: of each record in each step, in (0, 1].
        noise_multiplier: noise standard deviation over sensitivity.
        steps: number of steps.
        adjacency: which change of the data the target is about.
        tolerance: the certified epsilon is at least (1 - tolerance) times the target, unless the
            value is at its limit.

    >>> round(calibrate(epsilon=3.0, delta=1e-6, probability=0.005, steps=20_000).value, 2)
    1.3
    """
    parameters = {"probability": probability, "noise_multiplier": noise_multiplier, "steps": steps}
    missing = [name for name, value in parameters.items() if value is None]

    if len(missing) != 1:
        raise ParameterError(
            owner="calibrate",
            name="steps",
            expected="one of probability, noise_multiplier and steps left out",
            got="none left out" if not missing else f"{' and '.join(missing)} left out",
        )

    # The zeros only satisfy the type checker: whatever is not searched for was given.
    unknown: Unknown
    chance, noise = probability or 0.0, noise_multiplier or 0.0

    if steps is None:
        unknown = Steps(Step(Poisson(chance), (GaussianSum("sum", 1.0, noise),)))
    elif noise_multiplier is None:
        unknown = NoiseMultiplier(Poisson(chance), steps)
    else:
        unknown = Probability(noise, steps)

    return solve(unknown, epsilon=epsilon, delta=delta, adjacency=adjacency, tolerance=tolerance)


def solve(
    unknown: Unknown,
    *,
    epsilon: float,
    delta: float,
    adjacency: Adjacency = Adjacency.ADD_OR_REMOVE,
    accountant: Accountant = "tight",
    tolerance: float = 1e-3,
) -> Calibration:
    """The value of any `unknown` that just meets the target.

    Raises:
        AccountingError: the target is infeasible (the message names the floor), or the accountant
            could not answer.
    """
    target = check.positive("solve", "epsilon", epsilon)
    at = check.fraction("solve", "delta", delta)
    share = check.fraction("solve", "tolerance", tolerance)

    # Each evaluation accounts for the very steps that an answer would name.
    def evaluate(value: float, width: float) -> Guarantee:
        return account(
            unknown.steps_at(value),
            delta=at,
            accountant=accountant,
            tolerance=width,
            adjacency=adjacency,
        )

    def sketch(value: float) -> float:
        if accountant != "tight":
            return math.nan

        return sketched_epsilon(normalise(unknown.steps_at(value), adjacency), at)

    return _Search(unknown, target, at, share, evaluate, sketch).run()


@dataclass(slots=True)
class _Search:
    """State of one search: the best value known to be safe, the nearest known not to be."""

    unknown: Unknown
    target: float
    delta: float
    tolerance: float
    # Takes a value and the relative width of the bracket.
    evaluate: Callable[[float, float], Guarantee]
    # About epsilon at a value; not a number where nothing is known.
    sketch: Callable[[float], float]
    asked: int = 0
    safe: tuple[float, Guarantee] | None = None
    unsafe: float | None = None
    # Pairs (ln value, ln(epsilon / target)), in order: of sketches, then of evaluations.
    points: list[tuple[float, float]] = field(default_factory=list)

    def run(self) -> Calibration:
        low, high = (math.log(limit) for limit in self.unknown.limits(self.delta))

        # As if the whole release were one Gaussian: a guess, which only costs time if it is bad.
        first, slope = self.unknown.start(gaussian_parameter(epsilon=self.target, delta=self.delta))
        aim = self._sketched(min(high, max(low, math.log(first))), slope, (low, high))

        # `_MOST_EVALUATIONS` is far above what a monotone curve needs, whatever the start.
        # Each turn asks the accountant once or twice; everything else is free beside it.
        while self.asked < _MOST_EVALUATIONS:
            self._try(self._value(aim))
            if self._close():
                break

            aim = min(high, max(low, self._next(slope)))

            if self._exhausted(aim, low, high):
                break
        else:
            raise AccountingError(
                expected=f"the search for the {self.unknown.name} to settle",
                got=(
                    f"no value within {self.tolerance!r} of the target after {_MOST_EVALUATIONS} "
                    "tries"
                ),
                do="Ask for a larger tolerance.",
            )

        # The cheapest value that may be tried says how far the target is out of reach.
        if self.safe is None:
            cheapest = self._value(low if self.unknown.costs_more else high)
            floor = self.evaluate(cheapest, self.tolerance).upper
            raise infeasible(self.unknown, self.target, self.delta, floor)

        value, guarantee = self.safe
        return Calibration(
            int(value) if self.unknown.whole else value, guarantee, self.unknown, self.asked
        )

    def _sketched(self, aim: float, slope: float, limits: tuple[float, float]) -> float:
        """Where the target is met by estimates alone; the first aim if there are none."""
        for _ in range(_SKETCHES):
            value = self._value(aim)
            about = self.sketch(value)
            if not 0.0 < about < math.inf:
                break

            self.points.append((math.log(value), _log_ratio(about, self.target)))
            before, aim = aim, min(limits[1], max(limits[0], self._next(slope)))
            if abs(aim - before) <= _STILL or self._value(aim) == value:
                break

        return aim

    def _try(self, value: float) -> None:
        """Account at this value: roughly while far from the target, at the full tolerance where it
        could be the answer.
        """
        self.asked += 1
        rough = max(self.tolerance, _ROUGH)
        guarantee = self.evaluate(value, rough if self._far() else self.tolerance)

        # A rough bracket that may hold the answer decides nothing: the same value once more.
        spends_enough = guarantee.upper >= self.target * (1.0 - self.tolerance)
        if guarantee.lower <= self.target and spends_enough and self._far():
            guarantee = self.evaluate(value, self.tolerance)

        # The secant follows the estimate, which is smoother; safety asks the upper bound.
        level = guarantee.upper if guarantee.estimate is None else guarantee.estimate
        self.points.append((math.log(value), _log_ratio(level, self.target)))

        # The best safe value is the one that spends most, whatever the direction of the unknown;
        # the best unsafe one costs least. `not <=`: what is not a number is not safe.
        nearer = min if self.unknown.costs_more else max
        if not guarantee.upper <= self.target:
            self.unsafe = value if self.unsafe is None else nearer(value, self.unsafe)
        elif self.safe is None or guarantee.upper > self.safe[1].upper:
            self.safe = (value, guarantee)

    def _far(self) -> bool:
        # Before the first evaluation nothing is known, so it is a rough one.
        return not self.points or abs(self.points[-1][1]) > _NEAR

    def _value(self, position: float) -> float:
        value = math.exp(position)
        low, high = self.unknown.limits(self.delta)

        # The limits once more: exp may round to just outside of them.
        if not self.unknown.whole:
            return min(high, max(low, value))

        # Towards the safe side, but a whole number already reached must not be missed by the
        # rounding of exp.
        whole = math.ceil(value * (1 - 1e-12))
        if self.unknown.costs_more:
            whole = math.floor(value * (1 + 1e-12))

        return float(min(high, max(low, whole)))

    def _close(self) -> bool:
        # Only a safe value counts: one that is unsafe by a hair is no answer.
        return self.safe is not None and self.safe[1].upper >= self.target * (1.0 - self.tolerance)

    def _next(self, slope: float) -> float:
        """Aim a little inside the safe side: secant through the last two points, kept inside the
        bracket.
        """
        position, height = self.points[-1]

        # A secant with the wrong sign, or through a point at infinity, is worse than the guess.
        if len(self.points) > 1:
            (x0, y0), (x1, y1) = self.points[-2:]

            if x0 != x1 and (y1 - y0) / (x1 - x0) * slope > 0.0 and abs(y0) < 40.0 > abs(y1):
                slope = (y1 - y0) / (x1 - x0)

        # The estimate lies below the upper bound by up to half the tolerance, hence 0.7 and not
        # 0.4.
        # A step in ln value of 3 at most, since far from the target the slope is not to be trusted.
        aim = position + max(-3.0, min(3.0, (0.7 * math.log1p(-self.tolerance) - height) / slope))

        if self.safe is None or self.unsafe is None:
            value = self._value(position)

            # A whole number must move by one at least: away from what is known, to the other side.
            if self.unknown.whole and self._value(aim) == value:
                upwards = self.unknown.costs_more == (self.safe is not None)
                aim = math.log(max(0.5, value + (1.0 if upwards else -1.0)))

            return aim

        # Inside the bracket, and not at its very ends: each turn narrows it by a share.
        inner, outer = math.log(self.safe[0]), math.log(self.unsafe)
        share = (aim - inner) / (outer - inner) if outer != inner else 0.5

        # The secant had its chance; bisection always ends.
        if self.asked > _PATIENCE:
            share = 0.5

        return inner + (outer - inner) * min(0.95, max(0.05, share))

    def _exhausted(self, aim: float, low: float, high: float) -> bool:
        """Nothing left to try: at a limit, or no value between the safe and the unsafe one."""
        value = self._value(aim)

        # Only one side is known: the search ends where the limits do.
        if self.safe is None or self.unsafe is None:
            known = self.unsafe if self.safe is None else self.safe[0]

            return value == known and value in (self._value(low), self._value(high))

        # Between the two: a value that was tried before cannot narrow the bracket.
        return value in (self.safe[0], self.unsafe)


def _log_ratio(upper: float, target: float) -> float:
    # Held within 50, so that 0 and infinity have a place on the line too.
    if upper <= 0.0:
        return -50.0

    # The logarithm of infinity is infinite, so it is cut off like every other large one.
    return max(-50.0, min(50.0, math.log(upper / target)))
