"""An odometer: what may be said of a ledger whose further runs were chosen by looking at the
earlier ones.

Before the first release delta is divided among the rules that may later be used, because which of
them is used depends on what was released. A claim is the smallest epsilon that any of them gives:

    level n     all charges are within n times what the first run planned: the tight epsilon of n
                times that plan, at the level's share of delta
    orders      whatever was charged: a mixture of Rényi orders, each with its share,

                    epsilon = ln max over l > 0 of
                                  l - delta * sum_j w_j l^(a_j) exp(-(a_j - 1) R_j),

                where R_j is the sum of the divergences of order a_j along the path

Theorem and proof: docs/proofs/filters.md, "The odometer".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from discreet.accounting.costs import Cost
from discreet.accounting.normalise import normalise
from discreet.accounting.rdp import composed
from discreet.accounting.rdp import epsilon as renyi_epsilon
from discreet.accounting.tight import tight_upper
from discreet.ledger.terms import Planned, Terms
from discreet.units import Adjacency

__all__ = ["Reading", "mixture_epsilon", "odometer_reading", "shares"]

# Powers of two, so that the shares add up to exactly 1. A level is worth a share of its own if
# people stop there.
_LEVELS = (
    (1, 1 / 2),
    (2, 1 / 8),
    (3, 1 / 16),
    (4, 1 / 32),
    (5, 1 / 32),
    (10, 1 / 32),
    (20, 1 / 32),
)
# Times the first plan: for each of them the order that serves it best gets a share.
_COPIES = (1, 2, 4, 10, 30, 100)
_ORDER_SHARE = 1 / 32
_TOLERANCE = 1e-3

# The relative width of the bracket; the tangent's error is about its square.
_NARROW = 1e-9

# Beyond, nothing is claimed.
_LARGEST_EPSILON = 1e6

# The largest order - 1; beyond, a mixture gains nothing.
_LARGEST_OFFSET = 1e6


@dataclass(frozen=True, slots=True)
class Reading:
    """What an odometer says: epsilon, and the rule that gives it, in words."""

    epsilon: float
    rule: str


def shares(
    planned: Planned, adjacency: Adjacency, delta: float
) -> tuple[tuple[tuple[int, float], ...], tuple[tuple[float, float], ...]]:
    """Levels and orders with their shares of delta, from what the first run plans; all of it is
    public.
    """
    orders: dict[float, float] = {}

    for copies in _COPIES:
        # Two numbers of copies may have the same best order: it gets both shares.
        costs = normalise([(step, copies * count) for step, count in planned], adjacency)
        order = renyi_epsilon(costs, delta=delta * _ORDER_SHARE).order

        offset = min(order - 1.0, _LARGEST_OFFSET)
        orders[1.0 + offset] = orders.get(1.0 + offset, 0.0) + _ORDER_SHARE

    return _LEVELS, tuple(sorted(orders.items()))


# Read again with every run that is proposed.
@lru_cache(maxsize=1024)
def odometer_reading(terms: Terms, charged: Planned, adjacency: Adjacency) -> Reading:
    """The smallest epsilon that a rule with a share gives for what was charged.

    Guarantee: whatever decided on runs, their parameters and their ends, for every set S of
    outcomes P[S] <= sum over readings e of exp(e) P'[S and the reading is e] + delta, rounding
    included.

    Args:
        terms: complete ones of an odometer.
        charged: what was charged, by kind of step.
        adjacency: of all runs.
    """
    delta = terms.delta or 0.0
    costs = normalise(charged, adjacency)
    readings = [Reading(mixture_epsilon(costs, terms.orders, delta), "a mixture of Rényi orders")]

    # Charges beyond every level are still bounded by the orders, which hold whatever was charged.
    # The smallest reading may be chosen afterwards, as each rule has its own share of delta.
    level = _level(terms, charged)

    if level is not None:
        copies, share = level
        epsilon = _level_epsilon(terms.planned, adjacency, copies, delta * share)
        plan = "the first run's plan" if copies == 1 else f"{copies} times the first run's plan"
        readings.append(Reading(epsilon, f"{plan} at {share:g} of delta"))

    return min(readings, key=lambda reading: reading.epsilon)


# The same few levels serve many readings.
@lru_cache(maxsize=256)
def _level_epsilon(planned: Planned, adjacency: Adjacency, copies: int, delta: float) -> float:
    costs = normalise([(step, copies * count) for step, count in planned], adjacency)
    return tight_upper(costs, delta, _TOLERANCE, {})


def _level(terms: Terms, charged: Planned) -> tuple[int, float] | None:
    """The lowest level that holds all charges."""
    planned = dict(terms.planned)

    for copies, share in sorted(terms.levels):
        # A kind of step that the first run did not plan is beyond every level.
        if all(count <= copies * planned.get(step, 0) for step, count in charged):
            return copies, share

    return None


def mixture_epsilon(
    costs: Sequence[tuple[Cost, int]], orders: Sequence[tuple[float, float]], delta: float
) -> float:
    """The epsilon of a mixture of Rényi orders, rounded up.

    With one order and share 1 it is the usual conversion of a Rényi divergence.

    Args:
        costs: with counts, whatever decided on them.
        orders: (order, share of delta), fixed before the first release.
        delta: in (0, 1).

    >>> from discreet.accounting.costs import Gaussian
    >>> round(mixture_epsilon([(Gaussian(2.0), 1)], [(10.0, 1.0)], 1e-5), 3)
    2.168
    """
    # An order without a finite divergence bounds nothing; its share of delta is lost.
    terms = []

    for order, share in orders:
        divergence = composed(costs, order)
        if math.isfinite(divergence):
            terms.append(_Term(order, math.log(delta) + math.log(share), divergence))

    # No order gives a bound; or the function is largest at l <= 1, where it is at most 1.
    low, high = _around_the_top(terms)
    if high in (0.0, math.inf):
        return high

    # The function is concave in l: its tangent at exp(low) bounds it up to exp(high). All of it
    # is divided by exp(low), which would overflow, and whose logarithm is added back.
    at_low = 1.0 - sum(term.value(low) for term in terms)
    height = at_low + _slope(terms, low) * math.expm1(high - low)
    return max(0.0, low + math.log(height) + 2.0**-45 * (1.0 + low))


@dataclass(frozen=True, slots=True)
class _Term:
    """One order of a mixture: its summand is delta v l^a exp(-(a-1)R)."""

    order: float
    log_weight: float
    divergence: float

    def value(self, log_ratio: float) -> float:
        """The summand over l, at the likelihood ratio l, rounded down."""
        exponent = self.log_weight + (self.order - 1.0) * (log_ratio - self.divergence)

        # A smaller summand makes l minus the sum larger, and with it the epsilon that is claimed.
        sizes = 1.0 + abs(self.log_weight) + (self.order - 1.0) * (abs(log_ratio) + self.divergence)
        return math.exp(min(exponent - 2.0**-48 * sizes, 700.0))


def _slope(terms: Sequence[_Term], log_ratio: float) -> float:
    """1 minus the derivative of the sum by l: it falls as l grows, and is 0 where l minus the sum
    is largest.
    """
    return 1.0 - sum(term.order * term.value(log_ratio) for term in terms)


def _around_the_top(terms: Sequence[_Term]) -> tuple[float, float]:
    """A narrow interval of ln l around the place where l minus the sum is largest; (0, 0) if that
    is below 1.
    """
    if not terms:
        return 0.0, math.inf

    low, high = 0.0, 1.0
    if _slope(terms, low) <= 0.0:
        return 0.0, 0.0

    # The slope falls with l: double until the top lies inside, then halve.
    while _slope(terms, high) > 0.0:
        low, high = high, 2.0 * high
        if high > _LARGEST_EPSILON:
            return low, math.inf

    while high - low > _NARROW * (1.0 + high):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if _slope(terms, middle) > 0.0 else (low, middle)

    return low, high
