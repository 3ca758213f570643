"""What a ledger can be held to, and the rules that decide what it admits: the meeting place of
ledger and accountants.

    Ledger.open(path)                     the steps that its first run plans, nothing else
    Ledger.open(path, budget=...)         or what one of these admits:

    Budget(epsilon=3.0, delta=1e-6)       the first run's steps, and never above (3, 1e-6)
    Budget(plans=programme)               the steps of these plans
    Filter(epsilon=3.0, delta=1e-6)       whatever is chosen by looking, within (3, 1e-6)
    Odometer(delta=1e-6)                  whatever is chosen by looking; epsilon as it grows

Each becomes a row of the ledger before the first charge, and holds whoever opens the file. Which
one is decided once: what is fixed in advance is accounted for tightly, what is chosen from outputs
by a filter or an odometer, and the two are never mixed (docs/proofs/filters.md). Exactly the budget
fits; anything above does not (P38).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from discreet import _validate as check
from discreet.accounting.accountant import account
from discreet.accounting.filters import GaussianFilter, RenyiFilter, choose_filter, filter_of
from discreet.accounting.normalise import normalise
from discreet.accounting.odometer import odometer_reading, shares
from discreet.accounting.sources import HasSnapshot
from discreet.errors import AccountingError, BudgetExceeded, ParameterError
from discreet.ledger.rules import install
from discreet.ledger.terms import Rule, Terms
from discreet.units import Adjacency

if TYPE_CHECKING:
    from discreet.ledger.snapshot import Snapshot
    from discreet.ledger.terms import Planned

__all__ = ["Budget", "Filter", "Odometer"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """A list of steps that is fixed before the first release, and the most that it may cost.

    Guarantee: tight. All of the list counts, whether it was taken or not, so that a run may end
        whenever it likes.

    Args:
        epsilon: most that may be spent, above 0; left out, nothing limits it.
        delta: of epsilon, in (0, 1).
        plans: a plan or a programme: what may be charged. Left out, it is what the first run plans.
            Other steps are refused for good.

    >>> Budget(epsilon=1.0, delta=1e-6).terms().rule.value
    'list'
    """

    epsilon: float | None = None
    delta: float | None = None
    plans: HasSnapshot | None = None

    def __post_init__(self) -> None:
        if (self.epsilon is None) != (self.delta is None):
            raise ParameterError(
                owner="Budget",
                name="epsilon",
                expected="given together with delta, or neither",
                got="one of the two",
            )

        # Without a limit and without a list there would be nothing to hold a ledger to.
        if self.epsilon is not None:
            check.positive("Budget", "epsilon", self.epsilon)
            check.fraction("Budget", "delta", self.delta)
        elif self.plans is None:
            raise ParameterError(
                owner="Budget", name="epsilon", expected="given, or plans", got="neither"
            )

        plans: object = self.plans
        if plans is not None and not isinstance(plans, HasSnapshot):
            raise ParameterError(
                owner="Budget",
                name="plans",
                expected="a Plan, a Programme, or None",
                got=type(plans).__name__,
            )

    def terms(self) -> Terms:
        """What the ledger is held to."""
        planned = () if self.plans is None else self.plans.snapshot().counted()

        # An empty list means: what the first run plans. Whoever names plans means no such thing.
        if self.plans is not None and not planned:
            raise ParameterError(
                owner="Budget",
                name="plans",
                expected="plans with noise, which charge something",
                got="none that charges anything",
            )

        return Terms(rule=Rule.LIST, epsilon=self.epsilon, delta=self.delta, planned=planned)


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """A budget for whatever is chosen from outputs: runs, their parameters, their number, when they
    end.

    Guarantee: everything together is (epsilon, delta)-private, whatever decided on it. The claim is
    the budget in full: how much of it was spent depends on the outputs and is no guarantee. A plan
    that just meets (epsilon, delta) by the tight accountant does not fit: a filter asks for about
    a tenth more.

    Args:
        epsilon: above 0.
        delta: in (0, 1).
        order: of the Rényi filter; left out, the order (or the Gaussian filter, where nothing is
            sampled) that allows what the first run plans most often.

    >>> Filter(epsilon=1.0, delta=1e-6).terms().rule.value
    'filter'
    """

    epsilon: float
    delta: float
    order: float | None = None

    def __post_init__(self) -> None:
        check.positive("Filter", "epsilon", self.epsilon)
        check.fraction("Filter", "delta", self.delta)

        # Made for its error: an order that leaves nothing of the budget is refused now.
        if self.order is not None:
            RenyiFilter(self.epsilon, self.delta, self.order)

    def terms(self) -> Terms:
        """What the ledger is held to."""
        # Which filter it will be is left to the first run's plan (`_Rules.completed`).
        if self.order is None:
            return Terms(rule=Rule.FILTER, epsilon=self.epsilon, delta=self.delta)

        return Terms(
            rule=Rule.RENYI_FILTER,
            epsilon=self.epsilon,
            delta=self.delta,
            orders=((self.order, 1.0),),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Odometer:
    """No budget for whatever is chosen from outputs: what it cost is stated as it grows.

    Guarantee: `dp.account` states a valid epsilon at this delta whatever decided on runs and steps.
    For what the first run plans it is the tight one at half of delta, a few percent more than of a
    list; for further runs see docs/budgets.md. Where the budget is known beforehand, a `Filter`
    costs less.

    Args:
        delta: in (0, 1); of all claims, fixed here.
        epsilon: refuses what would let the reading exceed it; left out, nothing is refused.

    >>> Odometer(delta=1e-6).terms().rule.value
    'odometer'
    """

    delta: float
    epsilon: float | None = None

    def __post_init__(self) -> None:
        check.fraction("Odometer", "delta", self.delta)
        if self.epsilon is not None:
            check.positive("Odometer", "epsilon", self.epsilon)

    def terms(self) -> Terms:
        """What the ledger is held to."""
        return Terms(rule=Rule.ODOMETER, epsilon=self.epsilon, delta=self.delta)


class _Rules:
    """The rules of every ledger of this process; see `discreet.ledger.rules`."""

    def completed(self, terms: Terms, planned: Planned, adjacency: Adjacency) -> Terms:
        # Delta is part of the terms of both rules; the type alone allows that there is none.
        if terms.rule is Rule.ODOMETER:
            levels, orders = shares(planned, adjacency, terms.delta or 0.0)
            return replace(terms, planned=planned, levels=levels, orders=orders)

        # The filter is chosen by what the first run plans, which is fixed before any release.
        first = normalise(planned, adjacency)
        chosen = choose_filter(first, epsilon=terms.epsilon or 0.0, delta=terms.delta or 0.0)
        if isinstance(chosen, RenyiFilter):
            return replace(terms, rule=Rule.RENYI_FILTER, orders=((chosen.order, 1.0),))

        return replace(terms, rule=Rule.GAUSSIAN_FILTER)

    def admit(self, snapshot: Snapshot) -> None:
        terms = snapshot.terms
        committed = snapshot.committed()

        # Nothing to hold it to, or nothing that is held.
        if terms is None or terms.epsilon is None or not committed or not snapshot.runs:
            return

        # All that was promised to runs counts, not only what they have charged so far.
        adjacency = snapshot.runs[0].info.adjacency
        if terms.rule is Rule.LIST:
            upper = _tight_upper(committed, terms.delta or 0.0, terms.epsilon, adjacency)
            _refuse_above(terms.epsilon, terms.delta, upper, "the tight accountant")

        elif terms.rule is Rule.ODOMETER:
            reading = odometer_reading(terms, committed, adjacency)
            _refuse_above(
                terms.epsilon, terms.delta, reading.epsilon, f"the odometer ({reading.rule})"
            )

        # A filter refuses by itself: it never lets more be spent than it has.
        else:
            _filter_with_room(terms).spend(normalise(committed, adjacency))


def _filter_with_room(terms: Terms) -> RenyiFilter | GaussianFilter:
    """The filter of the terms; an order that allows nothing within the budget admits nothing."""
    # For whoever asks to be admitted it is a budget without room, not an analysis that failed.
    try:
        return filter_of(terms)
    except AccountingError as error:
        raise BudgetExceeded(
            expected=error.expected,
            got=error.got,
            do=(
                "The order was fixed before the first release: only a larger epsilon admits "
                "anything. Nothing was charged."
            ),
        ) from None


@lru_cache(maxsize=256)  # a list is looked at again with every run that draws on it
def _tight_upper(steps: Planned, delta: float, limit: float, adjacency: Adjacency) -> float:
    return account(steps, delta=delta, limit=limit, adjacency=adjacency).upper


def _refuse_above(epsilon: float, delta: float | None, upper: float, analysis: str) -> None:
    # Written so that NaN is refused as well.
    if not upper <= epsilon:
        raise BudgetExceeded(
            expected=f"charges within ({epsilon!r}, {delta!r})",
            got=f"({upper:.6g}, {delta!r}) with this one, by {analysis}",
            do="Plan fewer steps, or steps with more noise. Nothing was charged.",
        )


install(_Rules())
