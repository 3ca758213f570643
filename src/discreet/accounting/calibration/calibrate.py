"""Find the one missing value for a target (epsilon, delta); the result is always on the safe side.

    # The noise multiplier is missing.
    result = calibrate(epsilon=3.0, delta=1e-6, probability=0.005, steps=20_000)

    # Anything of `unknowns`.
    result = solve(Steps(step), epsilon=3.0, delta=1e-6)

The answer is a value whose *certified upper* epsilon was computed and is at most the target: the
guarantee in the result is that computation, not an interpolation. The search is a safeguarded
secant in (ln value, ln epsilon); that epsilon is monotone is a theorem for every unknown
(docs/proofs/calibration.md), and even a wrong start costs only time.
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
from discreet.errors import AccountingError, ParameterError
from discreet.ledger.events import GaussianSum, Poisson, Step
from discreet.units import Adjacency, Guarantee

__all__ = ["Calibration", "calibrate", "solve"]

_MOST_EVALUATIONS = 80

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
    if steps is None:
        unknown = Steps(
            Step(Poisson(probability or 0.0), (GaussianSum("sum", 1.0, noise_multiplier or 0.0),))
        )
    elif noise_multiplier is None:
        unknown = NoiseMultiplier(Poisson(probability or 0.0), steps)
    else:
        unknown = Probability(noise_multiplier, steps)

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

    def evaluate(value: float, width: float) -> Guarantee:
        return account(
            unknown.steps_at(value),
            delta=at,
            accountant=accountant,
            tolerance=width,
            adjacency=adjacency,
        )

    return _Search(unknown, target, at, share, evaluate).run()


@dataclass(slots=True)
class _Search:
    """State of one search: the best value known to be safe, the nearest known not to be."""

    unknown: Unknown
    target: float
    delta: float
    tolerance: float
    # Takes a value and the relative width of the bracket.
    evaluate: Callable[[float, float], Guarantee]
    safe: tuple[float, Guarantee] | None = None
    unsafe: float | None = None
    # Pairs (ln value, ln(epsilon / target)), in the order of the evaluations.
    points: list[tuple[float, float]] = field(default_factory=list)

    def run(self) -> Calibration:
        low, high = (math.log(limit) for limit in self.unknown.limits(self.delta))
        first, slope = self.unknown.start(gaussian_parameter(epsilon=self.target, delta=self.delta))
        aim = min(high, max(low, math.log(first)))

        # Each turn asks the accountant once or twice; everything else is free beside it.
        while len(self.points) < _MOST_EVALUATIONS:
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
            int(value) if self.unknown.whole else value, guarantee, self.unknown, len(self.points)
        )

    def _try(self, value: float) -> None:
        """Account at this value: roughly while far from the target, at the full tolerance where it
        could be the answer.
        """
        rough = max(self.tolerance, _ROUGH)
        guarantee = self.evaluate(value, rough if self._far() else self.tolerance)

        # A rough bracket that may hold the answer decides nothing: the same value once more.
        if (
            guarantee.lower <= self.target
            and guarantee.upper >= self.target * (1.0 - self.tolerance)
            and self._far()
        ):
            guarantee = self.evaluate(value, self.tolerance)

        # The secant follows the estimate, which is smoother; safety asks the upper bound.
        level = guarantee.upper if guarantee.estimate is None else guarantee.estimate
        self.points.append((math.log(value), _log_ratio(level, self.target)))

        # The best safe value is the one that spends most, whatever the direction of the unknown.
        if guarantee.upper <= self.target:
            if self.safe is None or guarantee.upper > self.safe[1].upper:
                self.safe = (value, guarantee)
        elif self.unsafe is None or (
            value < self.unsafe if self.unknown.costs_more else value > self.unsafe
        ):
            self.unsafe = value

    def _far(self) -> bool:
        return not self.points or abs(self.points[-1][1]) > _NEAR

    def _value(self, position: float) -> float:
        value = math.exp(position)
        low, high = self.unknown.limits(self.delta)
        if not self.unknown.whole:
            return min(high, max(low, value))

        # Towards the safe side, but a whole number already reached must not be missed by the
        # rounding of exp.
        whole = math.ceil(value * (1 - 1e-12))
        if self.unknown.costs_more:
            whole = math.floor(value * (1 + 1e-12))

        return float(min(high, max(low, whole)))

    def _close(self) -> bool:
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
        aim = position + max(-3.0, min(3.0, (0.7 * math.log1p(-self.tolerance) - height) / slope))

        if self.safe is None or self.unsafe is None:
            # A whole number must move by one at least: away from what is known, to the other side.
            value = self._value(position)
            if self.unknown.whole and self._value(aim) == value:
                upwards = self.unknown.costs_more == (self.safe is not None)
                aim = math.log(max(0.5, value + (1.0 if upwards else -1.0)))
            return aim

        # Inside the bracket, and not at its very ends: each turn narrows it by a share.
        inner, outer = math.log(self.safe[0]), math.log(self.unsafe)
        share = (aim - inner) / (outer - inner) if outer != inner else 0.5
        if len(self.points) > _PATIENCE:
            # The secant had its chance.
            share = 0.5

        return inner + (outer - inner) * min(0.95, max(0.05, share))

    def _exhausted(self, aim: float, low: float, high: float) -> bool:
        """Nothing left to try: at a limit, or no value between the safe and the unsafe one."""
        value = self._value(aim)

        # Only one side is known: the search ends where the limits do.
        if self.safe is None or self.unsafe is None:
            known = self.unsafe if self.safe is None else self.safe[0]
            return value == known and value in (self._value(low), self._value(high))

        return value in (self.safe[0], self.unsafe)


def _log_ratio(upper: float, target: float) -> float:
    # Held within 50, so that 0 and infinity have a place on the line too.
    if upper <= 0.0:
        return -50.0
    return 50.0 if math.isinf(upper) else max(-50.0, min(50.0, math.log(upper / target)))
