"""What one step costs, with adjacency and groups already folded in.

A cost names the pair of output distributions (or the family of pairs) that an attacker has to tell
apart after one step. Every accountant reads costs and counts, never events, so the convention on
sensitivity is applied once, in `normalise`, and no accountant has an adjacency of its own (P35).

Convention, for every cost: `noise_multiplier` is noise divided by the sensitivity of rule 5 of the
event vocabulary (one unit added, removed or zeroed out). Where a cost stands for replace-one, its
text says how far apart the two means are in that unit.

`attained` says that two data sets exist on which the step has exactly this pair, so that a lower
bound on the pair's epsilon is a lower bound on the mechanism's. Where it is False the pair only
dominates, and no lower bound follows.

The pairs are those of docs/proofs/tight.md, section 2, and of the proofs of the samplings' names.

| case                                          | what happens                                     |
|-----------------------------------------------|--------------------------------------------------|
| noise 0, negative, infinite or NaN            | ParameterError (`Gaussian`, `PoissonGaussian`,   |
|                                               | `Laplace`)                                       |
| probability 0 or 1 of a `PoissonGaussian`     | ParameterError; `normalise` makes 1 a `Gaussian` |
| a `BoundedRange` of 0 or infinity             | ParameterError                                   |
| all other fields                              | not checked here, but in the event they are from |
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

from discreet import _validate as check

__all__ = [
    "BallsInBinsGaussian",
    "BoundedRange",
    "Cost",
    "FixedSizeGaussian",
    "Gaussian",
    "Laplace",
    "PoissonGaussian",
    "Response",
    "TruncatedPoissonGaussian",
]


@dataclass(frozen=True, slots=True)
class Gaussian:
    """N(1, s^2) against N(0, s^2), s = `noise_multiplier`: no sampling, or sampling that does not
    amplify.

    A replace-one step at twice the sensitivity is this cost with half the noise multiplier (an
    exact operation).

    Args:
        noise_multiplier: noise standard deviation divided by the distance of the means.
        attained: see the header; False for shuffled batches, where the pair only dominates.
    """

    noise_multiplier: float
    attained: bool = True

    def __post_init__(self) -> None:
        check.positive("Gaussian", "noise_multiplier", self.noise_multiplier)


@dataclass(frozen=True, slots=True)
class PoissonGaussian:
    """Gaussian sum over a Poisson sample; with q = `probability` in (0, 1), s = `noise_multiplier`,
    N(m) = N(m, s^2):

    * `replace` False (add-or-remove and zero-out): (1-q) N(0) + q N(1) against N(0), in both
      directions;
    * `replace` True: (1-q) N(0) + q N(1) against (1-q) N(0) + q N(-1), symmetric in its two
      directions.
    """

    probability: float
    noise_multiplier: float
    replace: bool = False

    attained = True

    def __post_init__(self) -> None:
        check.fraction("PoissonGaussian", "probability", self.probability)
        check.positive("PoissonGaussian", "noise_multiplier", self.noise_multiplier)


@dataclass(frozen=True, slots=True)
class TruncatedPoissonGaussian:
    """Gaussian sum over a Poisson sample that is cut to a random subset of `limit`, if more of the
    `records` records were drawn.

    Fields as in `events.TruncatedPoisson`. Truncation couples the records: one unit more or less
    may exchange another for it, which moves the sum by up to twice the sensitivity. `zero_out` is
    told apart from add-or-remove (both flags False), because a zeroed record still takes another's
    place.
    """

    probability: float
    limit: int
    records: int
    noise_multiplier: float
    replace: bool = False
    zero_out: bool = False

    # The proof shows whether the other records fill the sample, which no observer is told.
    attained = False


@dataclass(frozen=True, slots=True)
class FixedSizeGaussian:
    """Gaussian sum over `size` of `records` records, without replacement, under replace-one.

    A record that is exchanged, or drawn in another's place, moves the mean by up to 2 in the unit
    in which the noise has standard deviation `noise_multiplier`. Zero-out is a special replacement
    and costs the same.
    """

    size: int
    records: int
    noise_multiplier: float

    # `accounting.attained` knows a weaker pair that two data sets have under replace-one.
    attained = False


@dataclass(frozen=True, slots=True)
class BallsInBinsGaussian:
    """One epoch of balls in bins: mean over t of N(e_t, s^2 I) against N(0, s^2 I) in `batches`
    dimensions, both directions.

    e_t is the t-th unit vector and s = `noise_multiplier`; add-or-remove and zero-out. Two data
    sets with this pair exist, but what is composed is a lattice law above it, so no lower bound
    follows.
    """

    batches: int
    noise_multiplier: float

    attained = False


@dataclass(frozen=True, slots=True)
class Laplace:
    """Lap(1, b) against Lap(0, b), b = `noise_multiplier` = scale / (L1 distance of the means), no
    sampling.
    """

    noise_multiplier: float

    attained = True

    def __post_init__(self) -> None:
        check.positive("Laplace", "noise_multiplier", self.noise_multiplier)


@dataclass(frozen=True, slots=True)
class BoundedRange:
    """A choice whose privacy loss lies in an interval of length `epsilon` that contains 0 (the
    exponential mechanism).

    The interval's place may depend on the data, so the cost stands for a family of pairs.
    [DongDurfeeRogers2020]
    """

    epsilon: float

    attained = False

    def __post_init__(self) -> None:
        check.positive("BoundedRange", "epsilon", self.epsilon)


@dataclass(frozen=True, slots=True)
class Response:
    """Randomized response among `categories` values, the true one with `truth_probability`, under
    replace-one.

    Loss ln(truth/other) with probability truth, its negative with probability other, 0 else;
    other = (1 - truth)/(categories - 1).
    """

    categories: int
    truth_probability: float

    attained = True

    @property
    def gap(self) -> float:
        """The largest loss, ln(truth/other), rounded up."""
        # Exact up to one rounding up, so that no loss is understated.
        truth = Fraction(self.truth_probability)
        excess = max(truth * (self.categories - 1) / (1 - truth) - 1, Fraction(0))
        return math.log1p(math.nextafter(float(excess), math.inf)) * (1.0 + 2.0**-50)


# Closed: every accountant must know every cost, and refuse what it does not know.
Cost: TypeAlias = (
    Gaussian
    | PoissonGaussian
    | TruncatedPoissonGaussian
    | FixedSizeGaussian
    | BallsInBinsGaussian
    | Laplace
    | BoundedRange
    | Response
)
