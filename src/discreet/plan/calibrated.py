"""DP-SGD in four numbers: batch, duration, noise, target. Three of them are given, the fourth
follows, on the safe side.

    batch       sampling_probability, or expected_batch_size of `records` records
    duration    steps, or epochs
    noise       noise_multiplier
    target      epsilon at delta

Without a target the three others are taken as they are. With one, the missing value is searched
for; the answer is a value at which the accountant itself computed an upper bound that is at most
epsilon (docs/proofs/calibration.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

from discreet import _validate as check
from discreet.accounting import account, solve
from discreet.accounting.calibration.unknowns import (
    ExpectedBatchSize,
    NoiseMultiplier,
    Probability,
    Steps,
)
from discreet.errors import AccountingError, ParameterError
from discreet.ledger.events import GaussianSum, Poisson, Step
from discreet.units import Adjacency, Guarantee

__all__ = [
    "Numbers",
    "Request",
    "Target",
    "default_delta",
    "epoch_steps",
    "guarantee_of",
    "search",
]

_OWNER = "Plan.dpsgd"

# A search ends when the certified epsilon is this close, relatively, below the target.
_TOLERANCE = 1e-3

# 1/3 is not a float: three draws of it are one epoch all the same.
_FORGIVEN = Fraction(1, 10**12)


@dataclass(frozen=True, slots=True)
class Target:
    """What a plan was calibrated for: a wish, never a guarantee.

    Args:
        epsilon: above 0.
        delta: in (0, 1).
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", check.positive("Target", "epsilon", self.epsilon))
        object.__setattr__(self, "delta", check.fraction("Target", "delta", self.delta))


@dataclass(frozen=True, slots=True)
class Numbers:
    """The four numbers of a plan, none of them missing.

    Args:
        probability: of each record in each step.
        steps: how many.
        noise_multiplier: noise standard deviation over sensitivity.
        target: what they were calibrated for, if anything.
    """

    probability: float
    steps: int
    noise_multiplier: float
    target: Target | None = None


def default_delta(records: int) -> float:
    """The largest power of ten that is at most 1/(10 records).

    At delta = 1/records, publishing one record chosen at random would count as private; a tenth of
    that is the usual distance to keep [Ponomareva2023].

    >>> default_delta(60_000), default_delta(1_000_000)
    (1e-06, 1e-07)
    """
    # Counted in digits of a whole number: a logarithm could be rounded to the next power.
    tens = len(str(10 * check.whole("default_delta", "records", records, least=1) - 1))
    return float(f"1e-{tens}")


def epoch_steps(epochs: float, expected_batch_size: float, records: int) -> int:
    """Steps for a number of passes: epochs * records / expected_batch_size, rounded up.

    The numbers are read as the decimals that Python prints, and one part in 10^12 is forgiven, so
    that 0.1 epochs of batches of 10 of 1,000 records are 10 steps and not 11. The result is what is
    drawn and what is charged, so that rounding can never come between the two (P32).

    >>> epoch_steps(20, 512, 60_000), epoch_steps(0.1, 10, 1_000), epoch_steps(1, 1 / 3, 1)
    (2344, 10, 3)
    """
    passes = Fraction(repr(check.positive(_OWNER, "epochs", epochs)))
    size = Fraction(repr(check.positive(_OWNER, "expected_batch_size", expected_batch_size)))
    exact = passes * check.whole(_OWNER, "records", records, least=1) / size

    nearest = round(exact)
    steps = nearest if abs(exact - nearest) <= _FORGIVEN * exact else math.ceil(exact)

    # The ledger counts steps in 64 bits.
    if steps >= 2**63:
        raise ParameterError(
            owner=_OWNER, name="epochs", expected="fewer than 2^63 steps", got=f"{epochs!r}"
        )

    return max(1, steps)


def guarantee_of(
    numbers: tuple[float, int, float], delta: float, adjacency: Adjacency
) -> Guarantee:
    """What (probability, steps, noise multiplier) costs, certified."""
    probability, steps, noise_multiplier = numbers
    step = Step(Poisson(probability), GaussianSum("sum", 1.0, noise_multiplier))
    return account([(step, steps)], delta=delta, adjacency=adjacency, tolerance=_TOLERANCE)


def search(cost: Callable[[int], Guarantee], largest: int, target: Target, *, rising: bool) -> int:
    """Find the whole number in 1..largest nearest to the target among those that meet it.

    `cost` should rise (or fall) with the number. If it does not everywhere, the answer may waste
    budget but still meets the target: only a number whose own certified cost is at most the target
    is returned.

    Raises:
        AccountingError: if not even the cheapest end meets the target.
    """
    safe, unsafe = (1, largest) if rising else (largest, 1)

    # Two ends need no search: the cheapest does not meet the target, or the dearest does.
    floor = cost(safe).upper
    if not floor <= target.epsilon:
        raise AccountingError(
            expected=f"an epsilon that some batch reaches at delta {target.delta!r}",
            got=f"{target.epsilon!r}: infeasible, the floor is {floor:.6g}",
            do="Raise the target, or change one of the values that are held fixed.",
        )

    if cost(unsafe).upper <= target.epsilon:
        return unsafe

    # Invariant: the cost of `safe` was computed and is at most the target. So it can be returned
    # after any number of rounds, also where the cost is not monotone.
    while abs(safe - unsafe) > 1:
        # The geometric middle, and never the lower end itself.
        middle = max(math.isqrt(safe * unsafe), min(safe, unsafe) + 1)
        upper = cost(middle).upper
        if upper > target.epsilon:
            unsafe = middle
            continue

        # One evaluation takes long; the last thousandth of epsilon is not worth more of them.
        safe = middle
        if upper >= target.epsilon * (1.0 - _TOLERANCE):
            break

    return safe


_whole = partial(check.whole, _OWNER, least=1)
_positive = partial(check.positive, _OWNER)

_CHECKS: dict[str, Callable[[str, object], float]] = {
    "records": _whole,
    "steps": _whole,
    "expected_batch_size": _positive,
    "epochs": _positive,
    "noise_multiplier": _positive,
    "epsilon": _positive,
    # Every record in every step is a sampling; a delta of 1 would claim nothing.
    "sampling_probability": partial(check.fraction, _OWNER, one=True),
    "delta": partial(check.fraction, _OWNER),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What the caller of `Plan.dpsgd` said: nothing twice, and exactly one of four left out."""

    records: int | None = None
    expected_batch_size: float | None = None
    sampling_probability: float | None = None
    steps: int | None = None
    epochs: float | None = None
    noise_multiplier: float | None = None
    epsilon: float | None = None
    delta: float | None = None
    adjacency: Adjacency = Adjacency.ADD_OR_REMOVE

    def __post_init__(self) -> None:
        check.instance(_OWNER, "adjacency", self.adjacency, Adjacency)

        # Each number by itself first, as a float64 or an int: what follows compares them.
        for name, checked in _CHECKS.items():
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, checked(name, value))

        # Then what they say together. A number given in two notations is refused even if both
        # agree: which of them would count is nobody's guess.
        self._check_batch()
        if self.steps is not None and self.epochs is not None:
            raise _refused("epochs", "left out when steps is given", repr(self.epochs))

        # A delta belongs to an epsilon, and without one follows from the number of records.
        if self.epsilon is None and self.delta is not None:
            raise _refused("delta", "left out when no epsilon is asked for", repr(self.delta))

        if self.epsilon is not None and self.delta is None and self.records is None:
            raise _refused("delta", "given with epsilon when the number of records is not", "None")

    def _check_batch(self) -> None:
        """Require one notation of the batch, and records enough for it."""
        size = self.expected_batch_size
        if size is None:
            return

        if self.sampling_probability is not None:
            raise _refused(
                "sampling_probability",
                "left out when expected_batch_size is given",
                repr(self.sampling_probability),
            )

        if self.records is None:
            raise _refused("records", "given with expected_batch_size", "None")

        # A probability above 1 otherwise; equal to it, every step takes every record.
        if size > self.records:
            raise _refused("expected_batch_size", f"at most records={self.records}", repr(size))

    @property
    def probability(self) -> float | None:
        """The probability of each record in each step, if it was given in either way."""
        if self.expected_batch_size is None or self.records is None:
            return self.sampling_probability

        # The rounded quotient is what is drawn with and what is charged: one number for both.
        return self.expected_batch_size / self.records

    @property
    def target(self) -> Target | None:
        """Epsilon with its delta: the given one, else `default_delta`."""
        if self.epsilon is None:
            return None

        if self.delta is not None:
            return Target(self.epsilon, self.delta)

        # Known here, as `__post_init__` refused an epsilon with neither of the two.
        records = check.whole(_OWNER, "records", self.records, least=1)
        return Target(self.epsilon, default_delta(records))

    def complete(self) -> Numbers:
        """Find the one missing number."""
        match (self.probability, self._steps(), self.noise_multiplier, self.target):
            case (float(probability), int(steps), float(noise), None):
                return Numbers(probability, steps, noise)

            case (float(probability), int(steps), None, Target() as target):
                noise = self._solve(NoiseMultiplier(Poisson(probability), steps), target)
                return Numbers(probability, steps, noise, target)

            case (float(probability), None, float(noise), Target() as target):
                step = Step(Poisson(probability), GaussianSum("sum", 1.0, noise))
                return Numbers(probability, int(self._solve(Steps(step), target)), noise, target)

            # Epochs become steps only with a batch, so that here the duration may be a float.
            case (None, int() | float(), float(noise), Target() as target):
                return self._batch(noise, target)

            case four:
                raise _not_one_missing(four)

    def _steps(self) -> int | float | None:
        """The duration in steps where it is known, else in epochs."""
        match (
            self.steps,
            self.epochs,
            self.expected_batch_size,
            self.records,
            self.sampling_probability,
        ):
            case (None, float(epochs), float(batch), int(records), _):
                return epoch_steps(epochs, batch, records)

            # With a probability q alone an epoch is 1/q steps, whatever the number of records.
            case (None, float(epochs), _, _, float(probability)):
                return epoch_steps(epochs, probability, 1)

        return self.epochs if self.steps is None else self.steps

    def _batch(self, noise: float, target: Target) -> Numbers:
        """Find the largest batch that meets the target.

        It is a whole number where the number of records is known.
        """
        match (self.records, self.steps, self.epochs):
            case (None, int(steps), _):
                return Numbers(self._solve(Probability(noise, steps), target), steps, noise, target)

            case (int(records), int(steps), _):
                batch = int(self._solve(ExpectedBatchSize(records, noise, steps), target))
                return Numbers(batch / records, steps, noise, target)

            # A larger batch means fewer steps of the same number of epochs. The solver keeps steps
            # fixed, so this pair has a search of its own.
            case (int(records), _, float(epochs)):

                def cost(batch: int) -> Guarantee:
                    numbers = (batch / records, epoch_steps(epochs, batch, records), noise)
                    return guarantee_of(numbers, target.delta, self.adjacency)

                batch = search(cost, records, target, rising=True)
                steps = epoch_steps(epochs, batch, records)
                return Numbers(batch / records, steps, noise, target)

        raise _refused("records", "given, to find the batch for a number of epochs", "None")

    def _solve(
        self, unknown: NoiseMultiplier | Probability | ExpectedBatchSize | Steps, target: Target
    ) -> float:
        return solve(
            unknown,
            epsilon=target.epsilon,
            delta=target.delta,
            adjacency=self.adjacency,
            tolerance=_TOLERANCE,
        ).value


def _not_one_missing(four: tuple[object, ...]) -> ParameterError:
    names = ("expected_batch_size", "steps", "noise_multiplier", "epsilon")
    missing = [name for name, value in zip(names, four, strict=True) if value is None]
    expected = (
        "such that exactly one of expected_batch_size (or sampling_probability), steps (or "
        "epochs), noise_multiplier and epsilon is left out"
    )

    # Where all four are there it is the target that a plan can do without.
    got = f"{' and '.join(missing)} left out" if missing else "all four"
    return _refused((missing or ["epsilon"])[0], expected, got)


def _refused(name: str, expected: str, got: str) -> ParameterError:
    return ParameterError(owner=_OWNER, name=name, expected=expected, got=got)
