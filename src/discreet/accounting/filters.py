"""Privacy filters: stopping soundly when the next step may depend on what was released (P39).

If noise or probability of a step are chosen from earlier outputs, the running value of a tight
accountant is not a valid stopping rule. Valid is to fix, *before the first release*, one quantity
that adds along every path, and a limit for it:

    RenyiFilter      sum of the Rényi divergences at one order
                     [FeldmanZrnic2021; Lecuyer2021]
    GaussianFilter   sum of 1/noise_multiplier^2, un-sampled Gaussians
                     [SmithThakurta2022; Koskela2023]

A step is taken only if the sum with it stays within the limit; then the whole adaptive process is
(epsilon, delta)-private, wherever it stops. What was spent so far is *not* a smaller guarantee: the
claim is the budget.
Filters are values: `spend` returns the filter afterwards. Proofs: docs/proofs/filters.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TypeAlias

from discreet import _validate as check
from discreet.accounting.costs import Cost, Gaussian
from discreet.accounting.gaussian import gaussian_delta
from discreet.accounting.rdp import composed
from discreet.accounting.rdp._orders import best_order
from discreet.errors import AccountingError, BudgetExceeded, ParameterError
from discreet.ledger.terms import Rule, Terms

__all__ = ["Filter", "GaussianFilter", "RenyiFilter", "choose_filter", "filter_of"]


@dataclass(frozen=True, slots=True)
class RenyiFilter:
    """At most `limit` of Rényi divergence of one order, whatever the costs.

    limit = epsilon - ln((a-1)/a) + (ln delta + ln a)/(a-1), rounded down: `rdp.conversion` solved
    for the divergence.

    Args:
        epsilon, delta: the budget.
        order: above 1, chosen before the first release.
        spent: divergence so far.
    """

    epsilon: float
    delta: float
    order: float
    spent: float = 0.0

    def __post_init__(self) -> None:
        _check_budget("RenyiFilter", self.epsilon, self.delta)
        order = check.real("RenyiFilter", "order", self.order)
        if order <= 1.0:
            raise ParameterError(
                owner="RenyiFilter", name="order", expected="a number above 1", got=repr(order)
            )

        # At a small order the conversion to (epsilon, delta) alone costs more than the budget.
        if self.limit <= 0.0:
            raise AccountingError(
                expected=f"an order whose limit at ({self.epsilon!r}, {self.delta!r}) is above 0",
                got=f"order {order!r} with limit {self.limit:.4g}",
                do="Take a larger order, or leave it out to have it chosen.",
            )

    @property
    def limit(self) -> float:
        """The most divergence that the budget allows at this order."""
        return _renyi_limit(self.epsilon, self.delta, self.order)

    @property
    def name(self) -> str:
        """What a guarantee calls this analysis."""
        return f"Rényi filter at order {self.order:.6g}"

    def admits(self, counted: Sequence[tuple[Cost, int]]) -> bool:
        """Whether these (cost, count) pairs would still fit."""
        return self._after(counted) <= self.limit

    def spend(self, counted: Sequence[tuple[Cost, int]]) -> RenyiFilter:
        """The filter after these steps; `BudgetExceeded` if they do not fit."""
        # `not <=`: a sum that is not a number is refused.
        after = self._after(counted)
        if not after <= self.limit:
            raise _exceeded(self.name, self.epsilon, self.delta, after / self.limit)

        return replace(self, spent=after)

    def _after(self, counted: Sequence[tuple[Cost, int]]) -> float:
        return _sum_up(self.spent, composed(counted, self.order))


@dataclass(frozen=True, slots=True)
class GaussianFilter:
    """At most `limit` of sum count / noise_multiplier^2, for Gaussian costs without amplification;
    nothing is lost.

    limit = mu^2 for the largest mu with delta_mu(epsilon) <= delta, where N(mu, 1) against N(0, 1)
    has the profile delta_mu.

    Args:
        epsilon, delta: the budget.
        spent: sum so far.
    """

    epsilon: float
    delta: float
    spent: float = 0.0

    def __post_init__(self) -> None:
        _check_budget("GaussianFilter", self.epsilon, self.delta)

    @property
    def limit(self) -> float:
        """The most that the budget allows."""
        return _gaussian_limit(self.epsilon, self.delta)

    @property
    def name(self) -> str:
        """What a guarantee calls this analysis."""
        return "Gaussian filter"

    def admits(self, counted: Sequence[tuple[Cost, int]]) -> bool:
        """Whether these (cost, count) pairs would still fit."""
        return self._after(counted) <= self.limit

    def spend(self, counted: Sequence[tuple[Cost, int]]) -> GaussianFilter:
        """The filter after these steps; `BudgetExceeded` if they do not fit."""
        after = self._after(counted)

        # The limit is 0 where no noise meets the budget; then nothing is a share of it.
        if not after <= self.limit:
            share = after / self.limit if self.limit else math.inf
            raise _exceeded(self.name, self.epsilon, self.delta, share)

        return replace(self, spent=after)

    def _after(self, counted: Sequence[tuple[Cost, int]]) -> float:
        # Exact: the sum is rounded once, upwards, in `_sum_up`.
        total = Fraction(0)

        for cost, count in counted:
            if not isinstance(cost, Gaussian):
                raise AccountingError(
                    expected=(
                        "Gaussian steps without amplification by sampling, for the Gaussian filter"
                    ),
                    got=repr(cost),
                    do=(
                        "A filter cannot be exchanged after the first release. Give another "
                        "ledger an order: Filter(order=...)."
                    ),
                )

            total += (
                check.whole("GaussianFilter", "count", count, least=0)
                / Fraction(cost.noise_multiplier) ** 2
            )

        # Beyond float64 the conversion would overflow; infinity fits no limit.
        return _sum_up(self.spent, float(total) if total < 2**1000 else math.inf)


Filter: TypeAlias = RenyiFilter | GaussianFilter


def filter_of(terms: Terms) -> Filter:
    """The filter that a ledger's terms name, with nothing spent."""
    epsilon, delta = terms.epsilon or 0.0, terms.delta or 0.0
    if terms.rule is Rule.GAUSSIAN_FILTER:
        return GaussianFilter(epsilon, delta)

    # A Rényi filter has one order, with the whole of delta.
    ((order, _),) = terms.orders
    return RenyiFilter(epsilon, delta, order)


def choose_filter(first: Sequence[tuple[Cost, int]], *, epsilon: float, delta: float) -> Filter:
    """The filter that allows what the first run plans most often: chosen before anything was
    released, hence valid.

    Un-sampled Gaussians get the Gaussian filter; everything else the Rényi filter at the best order
    for that step.
    """
    # Nothing is lost in the sum of Gaussians, so their filter is never the worse one.
    if first and all(isinstance(cost, Gaussian) for cost, _ in first):
        return GaussianFilter(epsilon, delta)

    # The share of the limit that the plan takes: the smallest allows the most repetitions.
    def share(order: float) -> float:
        limit = _renyi_limit(epsilon, delta, order)
        return composed(first, order) / limit if limit > 0.0 else math.inf

    # An order - 1 at which the limit is above 0: where the search begins.
    positive = -2.0 * math.log(delta) / epsilon
    if not positive < 1e12:
        raise AccountingError(
            expected="an epsilon that leaves room for an order",
            got=repr(epsilon),
            do="Take a larger epsilon or delta.",
        )

    return RenyiFilter(epsilon, delta, best_order(share, max(8.0, positive)))


def _renyi_limit(epsilon: float, delta: float, order: float) -> float:
    # The formula of the class, less more than the rounding errors of its terms.
    shape = math.log1p(-1.0 / order)
    tail = (math.log(delta) + math.log(order)) / (order - 1.0)
    sizes = epsilon + abs(shape) + (abs(math.log(delta)) + math.log(order) + 1.0) / (order - 1.0)
    return epsilon - shape + tail - 2.0**-48 * sizes


def _gaussian_limit(epsilon: float, delta: float) -> float:
    """1/s^2, rounded down, for the smallest noise multiplier s whose certified delta is met:
    bisection on that side.
    """

    def met(noise_multiplier: float) -> bool:
        return gaussian_delta(noise_multiplier, epsilon)[1] <= delta

    # `high` meets delta, `low` does not; both are moved until that holds.
    low, high = 0.5, 1.0

    while not met(high):
        low, high = high, 2.0 * high
        if high > 1e12:
            return 0.0

    while met(low):
        low, high = 0.5 * low, low

    # Whatever the bisection ends at, `high` was certified: the limit is below the true one.
    while high - low > 1e-13 * high:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if met(middle) else (middle, high)

    return (1.0 - 2.0**-50) / high**2


def _sum_up(spent: float, more: float) -> float:
    # Both roundings go up; nothing added leaves the sum as it is, to the last bit.
    return math.nextafter(spent + math.nextafter(more, math.inf), math.inf) if more else spent


def _check_budget(owner: str, epsilon: float, delta: float) -> None:
    check.positive(owner, "epsilon", epsilon)
    check.fraction(owner, "delta", delta)


def _exceeded(name: str, epsilon: float, delta: float, share: float) -> BudgetExceeded:
    return BudgetExceeded(
        expected=f"steps within ({epsilon!r}, {delta!r}) by the {name}",
        got=f"{share:.6g} times the limit",
        do="Reserve fewer steps, or steps with more noise. Nothing was charged.",
    )
