"""What can be solved for: each class holds everything that is known and names the one value that is
not.

Every class says how a value becomes a step and a count, whether more of it costs more or less
privacy, and where a search may start. The directions are theorems, proven in
docs/proofs/calibration.md; none is guessed from numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from discreet import _validate as check
from discreet.accounting.calibration.starts import (
    amplification,
    inverse_square,
    log_expm1,
    noise_slope,
    square_parameter,
)
from discreet.errors import AccountingError, ParameterError
from discreet.ledger.events import GaussianSum, Poisson, Sampling, Step
from discreet.ledger.folding import folded_noise_multiplier

__all__ = [
    "Counted",
    "ExpectedBatchSize",
    "ExpectedBatchSizeAtAverageNoise",
    "GroupNoise",
    "NoiseFactor",
    "NoiseMultiplier",
    "Probability",
    "ProbabilityAtAverageNoise",
    "Steps",
    "Unknown",
    "infeasible",
]

Counted: TypeAlias = tuple[tuple[Step, int], ...]
"""Steps, each with how often it is taken."""

# The probability below which no search goes.
_SMALLEST = 1e-12


@dataclass(frozen=True, slots=True)
class NoiseMultiplier:
    """Noise standard deviation over sensitivity, for `steps` steps of one Gaussian sum; more costs
    less (post-processing).
    """

    sampling: Sampling
    steps: int

    name: ClassVar[str] = "noise multiplier"
    costs_more: ClassVar[bool] = False
    whole: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check.whole("NoiseMultiplier", "steps", self.steps, least=1)

    def limits(self, delta: float) -> tuple[float, float]:  # noqa: ARG002 one protocol for all
        """Smallest and largest value to be tried."""
        return 1e-3, 1e9

    def start(self, mu: float) -> tuple[float, float]:
        """A first value for a target that a Gaussian of parameter `mu` would meet, and d
        ln(epsilon) / d ln(value) there.
        """
        probability, draws, distance = amplification(self.sampling)
        total = draws * self.steps

        # Without amplification T steps are one Gaussian of parameter sqrt(T)/s, exactly.
        if probability == 1.0:
            return distance * math.sqrt(total) / mu, -1.0

        # mu^2 = q^2 T (e^(1/s^2) - 1), solved for s.
        noise = distance / math.sqrt(math.log1p(mu**2 / (probability**2 * total)))
        return noise, noise_slope(noise / distance)

    def steps_at(self, value: float) -> Counted:
        """The planned step with this value, and how often."""
        return ((_step(self.sampling, value), self.steps),)


@dataclass(frozen=True, slots=True)
class Probability:
    """Probability of a Poisson sample at a fixed noise multiplier; more costs more (a rarer sample
    mixes in nothing).
    """

    noise_multiplier: float
    steps: int

    name: ClassVar[str] = "sampling probability"
    costs_more: ClassVar[bool] = True
    whole: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check.positive("Probability", "noise_multiplier", self.noise_multiplier)
        check.whole("Probability", "steps", self.steps, least=1)

    def limits(self, delta: float) -> tuple[float, float]:  # noqa: ARG002 one protocol for all
        """Smallest and largest value to be tried."""
        return _SMALLEST, 1.0

    def start(self, mu: float) -> tuple[float, float]:
        """A first value and d ln(epsilon) / d ln(value)."""
        # mu^2 = q^2 T (e^(1/s^2) - 1), solved for q.
        return mu / math.sqrt(self.steps * math.expm1(inverse_square(self.noise_multiplier))), 1.0

    def steps_at(self, value: float) -> Counted:
        """The planned step with this value, and how often."""
        return ((_step(Poisson(value), self.noise_multiplier), self.steps),)


@dataclass(frozen=True, slots=True)
class ExpectedBatchSize:
    """Largest expected size of a Poisson sample of `records` records at a fixed noise multiplier;
    more costs more.
    """

    records: int
    noise_multiplier: float
    steps: int

    name: ClassVar[str] = "expected batch size"
    costs_more: ClassVar[bool] = True
    whole: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check.whole("ExpectedBatchSize", "records", self.records, least=1)
        check.positive("ExpectedBatchSize", "noise_multiplier", self.noise_multiplier)
        check.whole("ExpectedBatchSize", "steps", self.steps, least=1)

    def limits(self, delta: float) -> tuple[float, float]:  # noqa: ARG002 one protocol for all
        """Smallest and largest value to be tried."""
        return 1.0, float(self.records)

    def start(self, mu: float) -> tuple[float, float]:
        """A first value and d ln(epsilon) / d ln(value)."""
        probability, slope = Probability(self.noise_multiplier, self.steps).start(mu)
        return probability * self.records, slope

    def steps_at(self, value: float) -> Counted:
        """The planned step with this value, and how often."""
        return ((_step(Poisson(value / self.records), self.noise_multiplier), self.steps),)


@dataclass(frozen=True, slots=True)
class ProbabilityAtAverageNoise:
    """Probability of a Poisson sample when the noise on the *average* is fixed [McMahan2018,
    section 4].

    The noise multiplier is z = q n * average_noise. More costs less: every Rényi moment of whole
    order falls with q (docs/proofs/calibration.md, theorem 4). At probabilities so small that the
    record is hardly ever drawn (q * steps near delta) epsilon falls again, for the wrong reason;
    the search keeps to the branch that ends at q = 1.

    Args:
        records: number of records, n.
        average_noise: noise on the average, over the sensitivity of the *sum*.
        steps: number of steps.
    """

    records: int
    average_noise: float
    steps: int

    name: ClassVar[str] = "sampling probability at fixed average noise"
    costs_more: ClassVar[bool] = False
    whole: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check.whole(type(self).__name__, "records", self.records, least=1)
        check.positive(type(self).__name__, "average_noise", self.average_noise)
        check.whole(type(self).__name__, "steps", self.steps, least=1)

    def limits(self, delta: float) -> tuple[float, float]:
        """Smallest and largest value to be tried."""
        # Below, the record is so rarely drawn that epsilon falls for the wrong reason.
        return min(1.0, max(_SMALLEST, 100.0 * delta / self.steps)), 1.0

    def start(self, mu: float) -> tuple[float, float]:
        """A first value and d ln(epsilon) / d ln(value)."""
        # q^2 T (e^(1/z^2) - 1) falls with q: bisection, in logarithms.
        low, high = math.log(_SMALLEST), 0.0

        for _ in range(60):
            middle = 0.5 * (low + high)
            noise = math.exp(middle) * self.records * self.average_noise

            # ln mu^2: the exponential itself would overflow where the noise is small.
            cost = 2.0 * middle + math.log(self.steps) + log_expm1(max(1e-300, 1.0 / noise / noise))
            low, high = (middle, high) if cost > 2.0 * math.log(mu) else (low, middle)

        # The noise grows with q, hence the second summand.
        probability = math.exp(high)

        return probability, 1.0 + noise_slope(probability * self.records * self.average_noise)

    def steps_at(self, value: float) -> Counted:
        """The planned step with this value, and how often."""
        return ((_step(Poisson(value), value * self.records * self.average_noise), self.steps),)


@dataclass(frozen=True, slots=True)
class ExpectedBatchSizeAtAverageNoise:
    """Smallest expected size of a Poisson sample when the noise on the average is fixed; see
    `ProbabilityAtAverageNoise`.
    """

    records: int
    average_noise: float
    steps: int

    name: ClassVar[str] = "expected batch size at fixed average noise"
    costs_more: ClassVar[bool] = False
    whole: ClassVar[bool] = True

    def _inner(self) -> ProbabilityAtAverageNoise:
        return ProbabilityAtAverageNoise(self.records, self.average_noise, self.steps)

    def __post_init__(self) -> None:
        self._inner()

    def limits(self, delta: float) -> tuple[float, float]:
        """Smallest and largest value to be tried."""
        return max(1.0, self._inner().limits(delta)[0] * self.records), float(self.records)

    def start(self, mu: float) -> tuple[float, float]:
        """A first value and d ln(epsilon) / d ln(value)."""
        probability, slope = self._inner().start(mu)
        return probability * self.records, slope

    def steps_at(self, value: float) -> Counted:
        """The planned step with this value, and how often."""
        return ((_step(Poisson(value / self.records), value * self.average_noise), self.steps),)


@dataclass(frozen=True, slots=True)
class Steps:
    """How often a step can be taken; more costs more (fewer steps are a part of the release)."""

    step: Step

    name: ClassVar[str] = "number of steps"
    costs_more: ClassVar[bool] = True
    whole: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check.instance("Steps", "step", self.step, Step)

    def limits(self, delta: float) -> tuple[float, float]:  # noqa: ARG002 one protocol for all
        """Smallest and largest value to be tried."""
        return 1.0, 1e12

    def start(self, mu: float) -> tuple[float, float]:
        """A first value and d ln(epsilon) / d ln(value)."""
        each = square_parameter(self.step, 1, 1.0)

        # Nothing is known of queries without Gaussian noise: any start will do.
        if each == 0.0:
            return 100.0, 0.6

        # Many steps add like sqrt(T); a little more, as epsilon bends upwards.
        return mu**2 / each, 0.55

    def steps_at(self, value: float) -> Counted:
        """The fixed step, taken `value` times."""
        # Exact: the search tries whole numbers only, which it holds as floats.
        return ((self.step, int(value)),)


@dataclass(frozen=True, slots=True)
class GroupNoise:
    """Noise standard deviation of one group, the other groups of the step being fixed; more costs
    less.

    The others alone set a floor: no noise on this group brings epsilon below what they cost.

    Args:
        step: with every group; the noise given for the unknown one is ignored.
        group: name of the unknown one, a `GaussianSum`.
        steps: number of steps.
    """

    step: Step
    group: str
    steps: int

    name: ClassVar[str] = "noise of one group"
    costs_more: ClassVar[bool] = False
    whole: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check.instance("GroupNoise", "step", self.step, Step)
        check.whole("GroupNoise", "steps", self.steps, least=1)

        # Only of Gaussian noise is it proven that more of it costs less within a step.
        named = next((query for query in self.step.queries if query.group == self.group), None)
        if not isinstance(named, GaussianSum):
            raise ParameterError(
                owner="GroupNoise",
                name="group",
                expected=f"one of the Gaussian groups {', '.join(self.step.groups)}",
                got=repr(self.group),
            )

    def limits(self, delta: float) -> tuple[float, float]:  # noqa: ARG002 one protocol for all
        """Smallest and largest value to be tried."""
        # In units of the sensitivity: the value is a standard deviation, not a multiplier.
        return 1e-3 * self._sensitivity(), 1e6 * self._sensitivity()

    def start(self, mu: float) -> tuple[float, float]:
        """The value that folds to the noise multiplier one group would need; the slope of the share
        it has.
        """
        # The noise multiplier that the whole step must fold to.
        noise, slope = NoiseMultiplier(self.step.sampling, self.steps).start(mu)
        fixed_groups = [
            query
            for query in self.step.queries
            if isinstance(query, GaussianSum) and query.group != self.group
        ]

        # Precisions 1/s^2 add in the fold: this is what the other groups leave of the whole.
        precision = noise**-2 - (
            folded_noise_multiplier(fixed_groups) ** -2 if fixed_groups else 0.0
        )

        # Little or nothing may be left; a start needs a positive share all the same.
        share = max(0.05, precision * noise**2)
        return self._sensitivity() / math.sqrt(share) * noise, slope * share

    def steps_at(self, value: float) -> Counted:
        """The planned step with this value, and how often."""
        # A step sorts its queries by group, so the unknown one may come last.
        queries = [query for query in self.step.queries if query.group != self.group]
        queries.append(GaussianSum(self.group, self._sensitivity(), value))
        return ((Step(self.step.sampling, queries), self.steps),)

    def _sensitivity(self) -> float:
        # There is exactly one such query: the constructor refuses everything else.
        return next(
            query.sensitivity
            for query in self.step.queries
            if isinstance(query, GaussianSum) and query.group == self.group
        )


@dataclass(frozen=True, slots=True)
class NoiseFactor:
    """One factor on the noise of some steps, other steps being fixed; more costs less
    (post-processing, step by step).

    The fixed steps alone set a floor, as in `GroupNoise`.

    Args:
        scaled: steps of Gaussian sums, whose noise is multiplied.
        fixed: steps that stay as they are.
    """

    scaled: Counted
    fixed: Counted = ()

    name: ClassVar[str] = "factor on the noise"
    costs_more: ClassVar[bool] = False
    whole: ClassVar[bool] = False

    def __post_init__(self) -> None:
        for step, count in (*self.scaled, *self.fixed):
            check.instance("NoiseFactor", "step", step, Step)
            check.whole("NoiseFactor", "count", count, least=1)

        # What scaling would mean for other mechanisms is not proven here.
        not_gaussian = [
            query.group
            for step, _ in self.scaled
            for query in step.queries
            if not isinstance(query, GaussianSum)
        ]
        if not_gaussian or not self.scaled:
            raise ParameterError(
                owner="NoiseFactor",
                name="scaled",
                expected="steps of Gaussian sums",
                got=f"other queries: {', '.join(not_gaussian)}" if not_gaussian else "none",
            )

    def limits(self, delta: float) -> tuple[float, float]:  # noqa: ARG002 one protocol for all
        """Smallest and largest value to be tried."""
        return 1e-4, 1e7

    def start(self, mu: float) -> tuple[float, float]:
        """A first value and d ln(epsilon) / d ln(value)."""
        fixed = sum(square_parameter(step, count, 1.0) for step, count in self.fixed)

        # The cost falls with the factor: bisection, in logarithms.
        low, high = math.log(1e-4), math.log(1e7)

        for _ in range(60):
            middle = 0.5 * (low + high)
            cost = fixed + sum(
                square_parameter(step, count, math.exp(middle)) for step, count in self.scaled
            )

            # Where the fixed steps alone cost more than mu^2, this ends at the upper limit.
            low, high = (middle, high) if cost > mu**2 else (low, middle)

        # Only the scaled part of the cost answers to the factor.
        return math.exp(high), -max(0.05, 1.0 - fixed / mu**2)

    def steps_at(self, value: float) -> Counted:
        """The scaled steps with this factor, then the fixed ones."""
        return *((_noised(step, value), count) for step, count in self.scaled), *self.fixed


Unknown: TypeAlias = (
    NoiseMultiplier
    | Probability
    | ExpectedBatchSize
    | ProbabilityAtAverageNoise
    | ExpectedBatchSizeAtAverageNoise
    | Steps
    | GroupNoise
    | NoiseFactor
)


def _step(sampling: Sampling, noise_multiplier: float) -> Step:
    # Only the ratio of noise to sensitivity matters, so the sensitivity is 1.
    return Step(sampling, (GaussianSum("sum", 1.0, noise_multiplier),))


def _noised(step: Step, factor: float) -> Step:
    queries = [
        GaussianSum(query.group, query.sensitivity, query.noise_std * factor)
        for query in step.queries
        # All of them: `NoiseFactor` sees to it.
        if isinstance(query, GaussianSum)
    ]
    return Step(step.sampling, queries)


def infeasible(unknown: Unknown, epsilon: float, delta: float, floor: float) -> AccountingError:
    """The error that says how far the target is out of reach."""
    return AccountingError(
        expected=f"an epsilon that some {unknown.name} reaches at delta {delta!r}",
        got=f"{epsilon!r}: infeasible, the floor is {floor:.6g}",
        do="Raise the target, or change one of the values that are held fixed.",
    )
