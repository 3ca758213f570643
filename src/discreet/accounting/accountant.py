"""The public accountant: a source in, a guarantee out."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from discreet import _validate as check
from discreet.accounting import rdp
from discreet.accounting.attained import attained_lower
from discreet.accounting.normalise import Counted, Source, normalise
from discreet.accounting.sources import Read, read
from discreet.accounting.tight import Interval, tight_delta, tight_epsilon
from discreet.errors import AccountingError, ParameterError
from discreet.units import Guarantee, Parameters

if TYPE_CHECKING:
    from discreet.units import Adjacency, Unit

__all__ = ["Accountant", "account"]

Accountant: TypeAlias = Literal["tight", "rdp"]


def account(
    source: Source,
    *,
    delta: float | None = None,
    epsilon: float | None = None,
    accountant: Accountant = "tight",
    tolerance: float = 1e-3,
    adjacency: Adjacency | None = None,
    unit: Unit | None = None,
) -> Guarantee:
    """State what a source costs: epsilon at a delta, or delta at an epsilon.

    Guarantee: with `accountant="tight"`, `lower <= truth <= upper` for the composition of the steps' dominating pairs,
    where `lower` counts only pairs that some two data sets attain; rounding included (docs/proofs/tight.md). With "rdp"
    only `upper` is a bound and `lower` is 0 (docs/proofs/rdp.md). Both are for steps fixed in advance; steps chosen from
    earlier outputs need a filter and are refused here.

    Args:
        source: a ledger, a plan, or pairs (step, count). All of them public.
        delta: in (0, 1); give this or epsilon.
        epsilon: at least 0.
        accountant: "tight" (default) or "rdp".
        tolerance: relative width (upper - lower)/upper that "tight" aims at; a wider bracket is still a valid one.
        adjacency: needed with pairs; with a ledger or plan it must be theirs.
        unit: likewise; pairs without one are about examples.

    Raises:
        AccountingError: no valid analysis exists for what was asked; the message says why.
        ParameterError: a parameter is not of its stated kind or range.

    >>> from discreet.ledger.events import GaussianSum, Poisson, Step
    >>> from discreet.units import Adjacency
    >>> step = Step(Poisson(0.01), [GaussianSum("grad", sensitivity=1.0, noise_std=4.0)])
    >>> found = account([(step, 10_000)], delta=1e-5, adjacency=Adjacency.ADD_OR_REMOVE)
    >>> round(found.estimate, 6), found.lower <= 0.946866801 <= found.upper
    (0.946867, True)
    """
    tolerance = check.positive("account", "tolerance", tolerance)
    if (delta is None) == (epsilon is None):
        raise ParameterError(owner="account", name="delta", expected="given, or epsilon, but not both", got="both or neither")
    found = read(source, adjacency, unit)
    if found.parameters is Parameters.CHOSEN_FROM_OUTPUTS:
        raise AccountingError(
            expected="steps fixed in advance",
            got="parameters chosen from outputs",
            do="A running bound is no valid stopping rule then. Guard the ledger with a Budget, which uses a privacy filter, "
            "and state budget.guarantee(ledger.charges(), marks=ledger.marks()).",
        )
    leaves = normalise(found.steps, found.adjacency)
    if accountant not in ("tight", "rdp"):
        raise ParameterError(owner="account", name="accountant", expected="'tight' or 'rdp'", got=repr(accountant))
    if delta is not None:
        delta = check.fraction("account", "delta", delta)
        interval = _epsilon(leaves, delta, accountant, tolerance)
        if accountant == "tight":
            explicit = min(attained_lower(found, leaves, delta, tolerance), interval.upper)
            interval = replace(interval, lower=max(interval.lower, explicit), estimate=max(interval.estimate, explicit))
        return _state(found, accountant, delta, interval)
    return _state_delta(found, accountant, *_delta(leaves, epsilon, accountant, tolerance))


def _epsilon(leaves: Counted, delta: float, accountant: str, tolerance: float) -> Interval:
    if accountant == "tight":
        return tight_epsilon(leaves, delta, tolerance)
    upper = rdp.epsilon(leaves, delta=delta).value if leaves else 0.0
    return Interval(0.0, upper, upper)


def _delta(leaves: Counted, epsilon: float | None, accountant: str, tolerance: float) -> tuple[float, Interval]:
    level = check.real("account", "epsilon", epsilon)
    if level < 0.0:
        raise ParameterError(owner="account", name="epsilon", expected="at least 0", got=repr(level))
    if accountant == "tight":
        return level, tight_delta(leaves, level, tolerance)
    upper = rdp.delta(leaves, epsilon=level).value if leaves else 0.0
    return level, Interval(0.0, upper, upper)


def _state(found: Read, accountant: str, delta: float, interval: Interval) -> Guarantee:
    return Guarantee(
        lower=interval.lower,
        upper=interval.upper,
        delta=delta,
        unit=found.unit,
        adjacency=found.adjacency,
        accountant=accountant,
        sampling=found.sampling,
        numerics=found.numerics,
        assumptions=found.assumptions,
        voided_by=found.voided_by,
        estimate=interval.estimate if accountant == "tight" and math.isfinite(interval.estimate) else None,
    )


def _state_delta(found: Read, accountant: str, epsilon: float, interval: Interval) -> Guarantee:
    return Guarantee(
        lower=0.0,
        upper=epsilon,
        delta=interval.upper,
        unit=found.unit,
        adjacency=found.adjacency,
        accountant=accountant,
        sampling=found.sampling,
        numerics=found.numerics,
        assumptions=found.assumptions,
        voided_by=found.voided_by,
        delta_lower=min(interval.lower, interval.upper),
    )
