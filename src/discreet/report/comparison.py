"""Plan against ledger against audit, side by side."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from discreet.accounting.sources import phrase
from discreet.auditing import Audit
from discreet.ledger import Charge, CorrelatedGaussianSum, GaussianSum, Query
from discreet.ledger.folding import folded_noise_multiplier
from discreet.report.deviations import comparable, contradicted, of_the_plan
from discreet.report.document import Row, Table, capped
from discreet.report.facts import Facts
from discreet.report.words import counted, downward, exact, measured, moment, multiplier, noise_of, upward

__all__ = ["comparison", "comparison_notes"]

_NONE = "—"
_SHOWN = 3  # different values in one cell


def comparison(facts: Facts) -> Table:
    """One row for each thing that can differ; alarming where it does."""
    own = [charge for charge in of_the_plan(facts) if charge.count]
    groups = capped(list(_groups(facts, own)), 4)
    return Table(("", "plan", "ledger", "audit"), (*_terms(facts), *_steps(facts, own), *groups, *_epsilon(facts)))


def comparison_notes(facts: Facts) -> tuple[str, ...]:
    """What is missing from the table, and why."""
    notes = []
    if facts.plan is None:
        notes.append("No plan was given to this report, so nothing shows whether what happened is what was declared before.")
    if facts.audit is None:
        notes.append("No audit was given to this report: nothing was measured, everything here is computed.")
    else:
        if comparable(facts) and not contradicted(facts):
            notes.append("The audit passes: nothing that was measured contradicts the claim.")
        notes.append(
            "An audit can refute a claim, never prove one: a low value may be a weak attack. "
            "One that reaches a small share of the claim would have overlooked all but gross errors."
        )
    return tuple(notes)


def _row(name: str, plan: str, ledger: str, audit: str = _NONE, *, alarming: bool = False) -> Row:
    return Row((name, plan, ledger, audit), alarming)


def _terms(facts: Facts) -> Iterator[Row]:
    plan, audit, runs = facts.plan, facts.audit, [run.info for run in facts.held.runs]
    for name, planned, found, audited in (
        ("unit", plan and str(plan.unit), {str(run.unit) for run in runs}, audit and str(audit.unit)),
        ("adjacency", plan and plan.adjacency.value, {run.adjacency.value for run in runs}, audit and audit.adjacency.value),
    ):
        differs = planned is not None and found != {planned}
        yield _row(name, planned or _NONE, _joined(found), audited or _NONE, alarming=differs)
    yield _row(
        "numerics",
        _NONE if plan is None else f"{plan.numerics.value}, at least",
        _joined({run.numerics.value for run in runs}),
        alarming=plan is not None and not all(run.numerics.serves(plan.numerics) for run in runs),
    )
    yield _row("parameters", _NONE, _joined({run.parameters.value for run in runs}))


def _steps(facts: Facts, own: list[Charge]) -> Iterator[Row]:
    plan = facts.plan
    planned = plan.step.sampling if plan is not None and plan.queries() else None
    found = {charge.step.sampling for charge in own}
    yield _row(
        "sampling",
        _NONE if planned is None else phrase(planned),
        _joined({phrase(sampling) for sampling in found}),
        alarming=planned is not None and found != {planned},
    )
    total = sum(charge.count for charge in own)
    unsettled = sum(charge.unsettled for charge in own)
    yield _row(
        "steps",
        _NONE if plan is None else f"{plan.steps:,}",
        f"{total:,}" + (f", {unsettled:,} of them unsettled" if unsettled else ""),
        alarming=plan is not None and total - unsettled > plan.steps,
    )
    if total < facts.held.steps:
        yield _row("steps of other runs", "0", f"{facts.held.steps - total:,}")
    yield _row(
        "noise multiplier, folded",
        _NONE if plan is None else downward(plan.noise_multiplier, 6),
        _joined({_folded(charge) for charge in own}),
        alarming=plan is not None and plan.private and any(charge.step != plan.step for charge in own),
    )


def _folded(charge: Charge) -> str:
    found = [query for query in charge.step.queries if isinstance(query, GaussianSum | CorrelatedGaussianSum)]
    return downward(folded_noise_multiplier(found), 6) if found else "not Gaussian"


def _groups(facts: Facts, own: list[Charge]) -> Iterator[Row]:
    planned: dict[str, Query] = {} if facts.plan is None else {query.group: query for query in facts.plan.queries()}
    taken: dict[str, set[Query]] = {}
    for charge in own:
        for query in charge.step.queries:
            taken.setdefault(query.group, set()).add(query)
    for group in sorted(planned.keys() | taken.keys()):
        found = taken.get(group, set())
        yield _row(
            f"group {group}",
            _noise(planned[group]) if group in planned else _NONE,
            _joined(map(_noise, found)),
            alarming=facts.plan is not None and bool(own) and found != {planned.get(group)},
        )
    for group in () if facts.plan is None else facts.plan.open_groups():
        yield _row(f"group {group}", "NOT PRIVATE", "released without noise", alarming=True)


def _noise(query: Query) -> str:
    sensitivity, noise = noise_of(query)
    ratio = multiplier(query)
    if sensitivity is None or noise is None or ratio is None:
        return "randomised response"
    return f"sensitivity {exact(sensitivity)}, noise {downward(noise, 6)}, multiplier {downward(ratio, 6)}"


def _epsilon(facts: Facts) -> Iterator[Row]:
    for limit in facts.ceilings:
        spent = "not comparable" if limit.spent is None else f"at most {upward(limit.spent)}"
        yield _row(
            f"epsilon at delta {exact(limit.delta)}",
            f"{limit.name} {exact(limit.epsilon)}",
            spent if not facts.void else f"no guarantee ({spent} without the marks)",
            alarming=facts.void or (limit.spent is not None and not limit.spent <= limit.epsilon),
        )
    audit = facts.audit
    if audit is not None:
        claimed = _NONE if facts.audited_claim is None else f"at most {upward(facts.audited_claim)}"
        yield _row(
            f"epsilon at delta {exact(audit.delta)}, measured",
            _NONE,
            claimed if not facts.void else "no guarantee",
            f"at least {measured(audit.lower)} (confidence {exact(audit.confidence)})",
            alarming=contradicted(facts),
        )
        if audit.assumed_lower is not None:
            under = f"at least {measured(audit.assumed_lower)}, if {audit.assumes}"
            yield _row("measured, under an assumption", _NONE, _NONE, under, alarming=contradicted(facts))
        if comparable(facts) and facts.audited_claim:
            yield _row("share of the claim reached", _NONE, _NONE, _reached(audit, facts.audited_claim))
        how = f"{audit.method}; {counted(audit.canaries, 'canary')}, {counted(audit.trials, 'trial')}; {moment(audit.made)}"
        yield _row("measured how", _NONE, _NONE, how)
        place = _NONE if facts.audited is None else facts.audited.value
        yield _row("measured for", _NONE, facts.held.head[:16] + "…", f"{audit.ledger_head[:16]}…: {place}")


def _reached(audit: Audit, claim: float) -> str:
    """How far up to the claim the audit came, in percent, rounded down."""
    assumed = audit.assumed_lower
    free = f"{math.floor(100.0 * audit.lower / claim):,} %"
    return free if assumed is None else f"{free}; {math.floor(100.0 * assumed / claim):,} % under the assumption"


def _joined(values: Iterable[str]) -> str:
    """Different values of one thing, few of them."""
    found = sorted(set(values))
    more = f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return "; ".join(found[:_SHOWN]) + more if found else _NONE
