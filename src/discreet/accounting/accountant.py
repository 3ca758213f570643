"""The public accountant: a source in, a guarantee out."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal, TypeAlias

from discreet import _validate as check
from discreet.accounting import rdp
from discreet.accounting.attained import attained_lower
from discreet.accounting.filters import filter_of
from discreet.accounting.normalise import Counted, normalise
from discreet.accounting.odometer import odometer_reading
from discreet.accounting.sources import Read, Source, read_source
from discreet.accounting.tight import Interval, tight_delta, tight_epsilon
from discreet.errors import AccountingError, BudgetExceeded, ParameterError
from discreet.ledger.terms import Rule, Terms
from discreet.units import Adjacency, Guarantee, Parameters, Unit

__all__ = ["Accountant", "account"]

Accountant: TypeAlias = Literal["tight", "rdp"]

# The relative width to which a bracket is narrowed while a limit lies inside it.
_FINEST = 1e-5


def account(  # noqa: PLR0913  (a source and one level; everything else has a default)
    source: Source,
    *,
    delta: float | None = None,
    epsilon: float | None = None,
    accountant: Accountant = "tight",
    tolerance: float = 1e-3,
    limit: float | None = None,
    adjacency: Adjacency | None = None,
    unit: Unit | None = None,
) -> Guarantee:
    """State what a source costs: epsilon at a delta, or delta at an epsilon.

    Guarantee: with `accountant="tight"`, `lower <= truth <= upper` for the composition of the
    steps' dominating pairs, where `lower` counts only pairs that some two data sets attain;
    rounding included (docs/proofs/tight.md). With "rdp" only `upper` is a bound and `lower` is 0
    (docs/proofs/rdp.md). A ledger that is held to a filter or an odometer has one analysis and one
    delta, which were fixed before its first release; whatever decided on its runs, the claim is
    valid (docs/proofs/filters.md). A ledger that something voided has no number: `upper` is
    infinite.

    Args:
        source: a ledger, a plan, several ledgers of one data set, or pairs (step, count). All of
            them public.
        delta: in (0, 1); give this or epsilon. Left out, it is that of the ledger's budget.
        epsilon: at least 0.
        accountant: "tight" (default) or "rdp".
        tolerance: relative width (upper - lower)/upper that "tight" aims at; a wider bracket is
            still a valid one.
        limit: an epsilon that matters: the bracket is narrowed while it lies inside. By default
            that of the ledger's budget.
        adjacency: needed with pairs; with a ledger or plan it must be theirs.
        unit: likewise; pairs without one are about examples.

    Raises:
        AccountingError: no valid analysis exists for what was asked; the message says why.
        ParameterError: a parameter is not of its stated kind or range.

    >>> from discreet.ledger.events import GaussianSum, Poisson, Step
    >>> from discreet.units import Adjacency
    >>> step = Step(Poisson(0.01), [GaussianSum("grad", sensitivity=1.0, noise_std=4.0)])
    >>> claim = account([(step, 10_000)], delta=1e-5, adjacency=Adjacency.ADD_OR_REMOVE)
    >>> round(claim.estimate, 6), claim.lower <= 0.946866801 <= claim.upper
    (0.946867, True)
    """
    tolerance = check.positive("account", "tolerance", tolerance)

    if accountant not in ("tight", "rdp"):
        raise ParameterError(
            owner="account", name="accountant", expected="'tight' or 'rdp'", got=repr(accountant)
        )

    if limit is not None:
        limit = check.positive("account", "limit", limit)

    facts = read_source(source, adjacency, unit)
    terms = facts.terms

    # A ledger with a budget names its own delta; asking for an epsilon overrides that.
    if delta is None and epsilon is None and terms is not None:
        delta = terms.delta

    if (delta is None) == (epsilon is None):
        raise ParameterError(
            owner="account",
            name="delta",
            expected="given, or epsilon, but not both",
            got="both or neither",
        )

    # What voids a guarantee comes before every number, the rule before every free choice of one.
    if facts.voided_by:
        return _void(facts, delta)

    if terms is not None and terms.rule is not Rule.LIST:
        return _fixed_analysis(facts, terms, delta, accountant)

    if facts.parameters is Parameters.CHOSEN_FROM_OUTPUTS:
        raise AccountingError(
            expected="steps fixed in advance",
            got="parameters chosen from outputs, in a ledger that holds no budget",
            do=(
                "A running bound is no valid stopping rule then, and a budget that is named "
                "afterwards proves nothing. Hold the ledger to a Filter or an Odometer before its "
                "first run."
            ),
        )

    if delta is None:
        costs = normalise(facts.steps, facts.adjacency)
        return _state_delta(facts, accountant, *_delta(costs, epsilon, accountant, tolerance))

    # Only here may delta be chosen freely: the steps were fixed, so every delta has its epsilon.
    delta = check.fraction("account", "delta", delta)
    return _epsilon_near(facts, delta, accountant, tolerance, limit)


def _fixed_analysis(
    facts: Read, terms: Terms, delta: float | None, accountant: Accountant
) -> Guarantee:
    """The claim of a filter or an odometer, whose analysis was fixed before the first release."""
    if delta != terms.delta or accountant != "tight":
        raise AccountingError(
            expected=(
                f"delta {terms.delta!r} and the {terms.rule.value}, which were fixed before the "
                "first release"
            ),
            got=f"accountant {accountant!r}, "
            + ("an epsilon" if delta is None else f"delta {delta!r}"),
            do=(
                "Leave delta and accountant out. What was fixed by looking at what was released "
                "proves nothing."
            ),
        )

    if terms.rule is Rule.ODOMETER:
        return _odometer_claim(facts, terms)

    # The ledger decided on every charge when it was made; here the whole sum is checked again, in
    # case something else wrote the file.
    costs = normalise(facts.steps, facts.adjacency)
    epsilon = facts.largest_epsilon or 0.0
    analysis = filter_of(replace(terms, epsilon=epsilon))

    try:
        analysis.spend(costs)
    except BudgetExceeded as exceeded:
        raise AccountingError(
            expected="charges that the ledger's own filter admitted",
            got=exceeded.got,
            do="Whoever wrote this ledger did not obey its budget: there is no guarantee.",
        ) from None

    claim = _state(facts, analysis.name, analysis.delta, Interval(0.0, epsilon, epsilon))

    # What was spent so far is no smaller guarantee: where to stop was chosen by looking.
    basis = (
        f"the whole budget, whatever decided on runs and steps; the {analysis.name}, fixed before "
        "the first release"
    )
    return replace(claim, estimate=None, basis=f"{basis}, admitted every charge")


def _odometer_claim(facts: Read, terms: Terms) -> Guarantee:
    reading = odometer_reading(terms, facts.steps, facts.adjacency)
    delta = terms.delta or 0.0

    # For comparison, what the same steps would cost if they had been fixed in advance.
    fixed = tight_epsilon(normalise(facts.steps, facts.adjacency), delta, 1e-3)
    interval = Interval(min(fixed.lower, reading.epsilon), reading.epsilon, reading.epsilon)
    return replace(
        _state(facts, "odometer", delta, interval),
        if_fixed=fixed.upper,
        basis=(
            f"what was charged, whatever decided on runs and steps; {reading.rule}, fixed before "
            "the first release"
        ),
    )


def _void(facts: Read, delta: float | None) -> Guarantee:
    """What is said of a ledger that something voided: that there is no guarantee, and no number."""
    return Guarantee(
        lower=0.0,
        upper=math.inf,
        delta=1.0 if delta is None else check.fraction("account", "delta", delta),
        unit=facts.unit,
        adjacency=facts.adjacency,
        accountant="none",
        sampling=facts.sampling,
        numerics=facts.numerics,
        assumptions=(),
        voided_by=facts.voided_by,
    )


def _epsilon_near(
    facts: Read, delta: float, accountant: Accountant, tolerance: float, limit: float | None
) -> Guarantee:
    """Epsilon at a delta, in a bracket that is narrowed while the limit lies inside."""
    terms = facts.terms
    if limit is None and terms is not None and terms.delta == delta:
        limit = terms.epsilon

    costs = normalise(facts.steps, facts.adjacency)
    interval = _epsilon(costs, delta, accountant, tolerance)
    if accountant != "tight":
        return _state(facts, accountant, delta, interval)

    # While the limit lies inside the bracket, nobody can say whether the budget is kept.
    while limit is not None and interval.lower <= limit < interval.upper and tolerance > _FINEST:
        tolerance /= 10.0
        finer = _epsilon(costs, delta, accountant, tolerance)
        interval = finer if finer.upper < interval.upper else interval

    # Two explicit data sets may attain more than the lower bound of the dominating pairs.
    explicit = min(attained_lower(facts, costs, delta, tolerance), interval.upper)
    interval = replace(
        interval, lower=max(interval.lower, explicit), estimate=max(interval.estimate, explicit)
    )
    return _state(facts, accountant, delta, interval)


def _epsilon(costs: Counted, delta: float, accountant: str, tolerance: float) -> Interval:
    if accountant == "tight":
        return tight_epsilon(costs, delta, tolerance)

    # Without costs there is no divergence to convert, and nothing was released.
    upper = rdp.epsilon(costs, delta=delta).value if costs else 0.0
    return Interval(0.0, upper, upper)


def _delta(
    costs: Counted, epsilon: float | None, accountant: str, tolerance: float
) -> tuple[float, Interval]:
    # Epsilon 0 is allowed: its delta is the total variation distance.
    level = check.real("account", "epsilon", epsilon)
    if level < 0.0:
        raise ParameterError(
            owner="account", name="epsilon", expected="at least 0", got=repr(level)
        )

    if accountant == "tight":
        return level, tight_delta(costs, level, tolerance)

    upper = rdp.delta(costs, epsilon=level).value if costs else 0.0
    return level, Interval(0.0, upper, upper)


def _state(facts: Read, accountant: str, delta: float, interval: Interval) -> Guarantee:
    # Only the tight accountant estimates: the other one has an upper bound and nothing else.
    has_estimate = accountant == "tight" and math.isfinite(interval.estimate)
    return Guarantee(
        lower=interval.lower,
        upper=interval.upper,
        delta=delta,
        unit=facts.unit,
        adjacency=facts.adjacency,
        accountant=accountant,
        sampling=facts.sampling,
        numerics=facts.numerics,
        assumptions=facts.assumptions,
        voided_by=facts.voided_by,
        basis=facts.basis,
        estimate=interval.estimate if has_estimate else None,
    )


def _state_delta(facts: Read, accountant: str, epsilon: float, interval: Interval) -> Guarantee:
    return Guarantee(
        lower=0.0,
        upper=epsilon,
        delta=interval.upper,
        unit=facts.unit,
        adjacency=facts.adjacency,
        accountant=accountant,
        sampling=facts.sampling,
        numerics=facts.numerics,
        assumptions=facts.assumptions,
        voided_by=facts.voided_by,
        basis=facts.basis,
        # The two bounds of delta are rounded apart, and may cross by a rounding.
        delta_lower=min(interval.lower, interval.upper),
    )
