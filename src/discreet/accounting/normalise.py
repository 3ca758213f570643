"""From what happened to canonical (cost, count) pairs: the only place where a count exists.

    steps that count -> for each step: sampling x queries x adjacency -> costs -> counts of equal
    costs summed

Folding, Eq. 1 of [McMahan2018]: Gaussian sums with sensitivities S_g and noise sigma_g over one
sample are one Gaussian sum with noise multiplier

    z = ( sum_g (S_g / sigma_g)^2 )^(-1/2),

for any number of groups, because the concatenation of (sum_g / sigma_g) has unit noise and one unit
moves it by at most 1/z. It is computed in exact rational arithmetic and rounded down once, so no
order, width or size of the numbers matters (P34) and nothing under- or overflows unseen.

A combination without a valid analysis raises `AccountingError` with the reason; nothing is guessed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, TypeAlias, TypeVar

from discreet import _validate as check
from discreet.accounting.costs import (
    BallsInBinsGaussian,
    BoundedRange,
    Cost,
    FixedSizeGaussian,
    Gaussian,
    Laplace,
    PoissonGaussian,
    Response,
    TruncatedPoissonGaussian,
)
from discreet.errors import AccountingError
from discreet.ledger.events import (
    BallsInBins,
    ExponentialChoice,
    FixedSize,
    GaussianSum,
    LaplaceSum,
    Poisson,
    Query,
    RandomizedResponse,
    Sampling,
    Shuffled,
    Step,
    TruncatedPoisson,
)
from discreet.ledger.folding import folded_noise_multiplier
from discreet.units import Adjacency

__all__ = [
    "Counted",
    "costs_of_step",
    "normalise",
]

_E = TypeVar("_E")

Counted: TypeAlias = tuple[tuple[Cost, int], ...]
"""Distinct costs with their counts, in a canonical order."""


def normalise(steps: Iterable[tuple[Step, int]], adjacency: Adjacency) -> Counted:
    """Distinct costs of the steps with their total counts; a count of 0 adds nothing and leaves
    no trace.

    The order of the result depends on the costs only, so that the order of events cannot change a
    digit.

    >>> from discreet.ledger.events import GaussianSum, Poisson, Step
    >>> step = Step(Poisson(0.01), [GaussianSum("a", 3.0, 12.0), GaussianSum("b", 4.0, 16.0)])
    >>> normalise([(step, 2), (step, 3)], Adjacency.ZERO_OUT)[0][1]
    5
    """
    check.instance("normalise", "adjacency", adjacency, Adjacency)
    totals: dict[Cost, int] = {}

    for step, count in steps:
        # A step of count 0 is analysed all the same: what has no analysis is refused either way.
        times = check.whole("normalise", "count", count, least=0)

        for cost in costs_of_step(check.instance("normalise", "step", step, Step), adjacency):
            if times:
                totals[cost] = totals.get(cost, 0) + times

    return tuple(sorted(totals.items(), key=lambda item: (type(item[0]).__name__, repr(item[0]))))


@lru_cache(maxsize=4096)
def costs_of_step(step: Step, adjacency: Adjacency) -> tuple[Cost, ...]:
    """Costs whose composition is one execution of the step.

    Without sampling the queries compose one by one (Gaussians folded). Under sampling they share
    one draw, so only Gaussian sums, which fold into one, are analysed.
    """
    if step.sampling.is_full_batch:
        return _unsampled(step.queries, adjacency)

    gaussians = [query for query in step.queries if isinstance(query, GaussianSum)]
    if len(gaussians) < len(step.queries):
        kinds = ", ".join(type(query).__name__ for query in step.queries)
        raise AccountingError(
            expected="Gaussian sums only, under a sampling that amplifies",
            got=f"{kinds} on one {type(step.sampling).__name__} sample",
            do=(
                "Queries that share a sample cannot be composed as if sampled apart; ask the "
                "others of a step of their own over Everything."
            ),
        )

    return (_sampled(step.sampling, folded_noise_multiplier(gaussians), adjacency),)


def _unsampled(queries: Sequence[Query], adjacency: Adjacency) -> tuple[Cost, ...]:
    """Full batch: replace-one is one removal and one addition, hence twice the sensitivity."""
    gaussians = [query for query in queries if query.gaussian_cost is not None]
    costs: list[Cost] = []

    # One release of several Gaussians is one Gaussian: folding loses nothing, composing might.
    if gaussians:
        costs.append(Gaussian(folded_noise_multiplier(gaussians) / _factor(adjacency)))

    costs.extend(
        _entry(_QUERIES, query)(query, adjacency)
        for query in queries
        if query.gaussian_cost is None
    )
    return tuple(costs)


def _factor(adjacency: Adjacency) -> int:
    return 2 if adjacency is Adjacency.REPLACE_ONE else 1


def _laplace(query: LaplaceSum, adjacency: Adjacency) -> Cost:
    # Rounded down: less noise than there is costs more.
    ratio = Fraction(query.scale) / Fraction(query.sensitivity)
    return Laplace(_rounded(ratio / _factor(adjacency), towards=0.0))


def _choice(query: ExponentialChoice, adjacency: Adjacency) -> Cost:
    # A score moves by at most `sensitivity`, the normaliser by as much: the loss has range
    # 2*sensitivity/scale.
    ratio = 2 * Fraction(query.sensitivity) / Fraction(query.scale)
    return BoundedRange(_rounded(ratio * _factor(adjacency), towards=math.inf))


def _response(query: RandomizedResponse, adjacency: Adjacency) -> Cost:
    if adjacency is not Adjacency.REPLACE_ONE:
        raise AccountingError(
            expected="replace-one adjacency for randomized response",
            got=adjacency.value,
            do=(
                "Every unit's own report is released, so its presence is visible; state the run's "
                "adjacency as replace-one."
            ),
        )

    return Response(query.categories, query.truth_probability)


_QUERIES: dict[type[Query], Callable[[Any, Adjacency], Cost]] = {
    LaplaceSum: _laplace,
    ExponentialChoice: _choice,
    RandomizedResponse: _response,
}
"""What one query over the full batch costs; Gaussian sums fold, and need no entry."""


@dataclass(frozen=True, slots=True)
class _Sum:
    """One Gaussian sum over one draw: the question that every entry of `_POLICIES` answers."""

    noise_multiplier: float
    adjacency: Adjacency

    @property
    def replace(self) -> bool:
        """Whether the adjacency is replace-one."""
        return self.adjacency is Adjacency.REPLACE_ONE

    def without_amplification(self, *, attained: bool = True) -> Gaussian:
        """What the sum costs if everybody knows who is in; half the noise is exact."""
        return Gaussian(self.noise_multiplier / _factor(self.adjacency), attained=attained)


def _sampled(sampling: Sampling, noise_multiplier: float, adjacency: Adjacency) -> Cost:
    """One Gaussian sum over one draw; see docs/proofs/tight.md, section 2, for every policy."""
    return _entry(_POLICIES, sampling)(sampling, _Sum(noise_multiplier, adjacency))


def _poisson(sampling: Poisson, total: _Sum) -> Cost:
    return PoissonGaussian(sampling.probability, total.noise_multiplier, total.replace)


def _truncated(sampling: TruncatedPoisson, total: _Sum) -> Cost:
    # Under add-or-remove the larger of the two data sets may have one record more than `records`.
    largest = sampling.records + (total.adjacency is Adjacency.ADD_OR_REMOVE)
    if sampling.limit < largest:
        return TruncatedPoissonGaussian(
            sampling.probability,
            sampling.limit,
            sampling.records,
            total.noise_multiplier,
            total.replace,
            total.adjacency is Adjacency.ZERO_OUT,
        )

    # The limit can never be exceeded: nothing is cut off, and the sample is a plain one.
    if sampling.probability == 1.0:
        return total.without_amplification()

    return PoissonGaussian(sampling.probability, total.noise_multiplier, total.replace)


def _fixed_size(sampling: FixedSize, total: _Sum) -> Cost:
    _number_public(sampling, total.adjacency)

    # Everybody is drawn: the full batch, whose pair is attained.
    if sampling.size == sampling.records:
        return total.without_amplification()

    return FixedSizeGaussian(sampling.size, sampling.records, total.noise_multiplier)


def _shuffled(sampling: Shuffled, total: _Sum) -> Cost:
    _number_public(sampling, total.adjacency)

    # No amplification is proven: the epoch costs what it would if the order were public, one
    # Gaussian sum in the unit's batch. That pair only dominates, so no lower bound counts it.
    return total.without_amplification(attained=False)


def _balls_in_bins(sampling: BallsInBins, total: _Sum) -> Cost:
    if sampling.amplifies(total.adjacency):
        return BallsInBinsGaussian(sampling.batches, total.noise_multiplier)

    # With a single batch everybody is in it, and the pair of the full batch is attained.
    return total.without_amplification(attained=sampling.batches == 1)


_POLICIES: dict[type[Sampling], Callable[[Any, _Sum], Cost]] = {
    Poisson: _poisson,
    TruncatedPoisson: _truncated,
    FixedSize: _fixed_size,
    Shuffled: _shuffled,
    BallsInBins: _balls_in_bins,
}
"""What one Gaussian sum over one draw costs. Policies that take everything never come here."""


def _entry(table: Mapping[type, _E], event: Sampling | Query) -> _E:
    """The analysis of this kind of event; refused where there is none."""
    analysis = table.get(type(event))
    if analysis is None:
        raise AccountingError(
            expected="an event with an analysis: " + ", ".join(kind.__name__ for kind in table),
            got=type(event).__name__,
            do="Add its analysis, with a proof, to the tables of discreet/accounting/normalise.py.",
        )

    return analysis


def _number_public(sampling: Sampling, adjacency: Adjacency) -> None:
    if adjacency is Adjacency.ADD_OR_REMOVE:
        raise AccountingError(
            expected=f"zero-out or replace-one adjacency for {type(sampling).__name__} sampling",
            got=adjacency.value,
            do=(
                "One record more or less moves every other record's place in the batches, and no "
                "valid analysis of that is known here; declare the number of records public and "
                "use zero-out or replace-one."
            ),
        )


def _rounded(ratio: Fraction, *, towards: float) -> float:
    """The float64 next to a positive ratio on the side of `towards`, which is 0 or infinity."""
    try:
        near = ratio.numerator / ratio.denominator
    except OverflowError:
        near = math.inf

    if not 1e-300 < near < 1e300:
        raise AccountingError(
            expected="a ratio of noise to sensitivity between 1e-300 and 1e300",
            got=repr(near),
            do="Check the units.",
        )

    # Division rounds to nearest, so the float may lie on either side of the ratio.
    wrong_side = Fraction(near) > ratio if towards == 0.0 else Fraction(near) < ratio
    return math.nextafter(near, towards) if wrong_side else near
