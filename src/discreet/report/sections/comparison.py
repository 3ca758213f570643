"""Plan against ledger against audit, side by side."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

from discreet._digits import counted, downward, upward
from discreet.auditing import Audit
from discreet.ledger import Charge, Query, Step
from discreet.ledger.folding import folded_noise_multiplier
from discreet.plan import Plan
from discreet.report.facts.gathered import Facts
from discreet.report.facts.own_plans import agreement
from discreet.report.formats.document import Table, TableRow, capped
from discreet.report.formats.words import exact, measured, moment, multiplier
from discreet.report.sections.deviations import (
    alike,
    charges_of_plan,
    comparable,
    contradicted,
    step_of,
)

__all__ = ["comparison", "comparison_notes"]

_NONE = "—"
# Different values in one cell.
_SHOWN = 3


def comparison(facts: Facts) -> Table:
    """One row for each thing that can differ; alarming where it does."""
    parts = [
        row
        for name, plan in facts.plans.items() or [("", None)]
        for row in _part(facts, name, plan)
    ]

    return Table(
        ("", "plan", "ledger", "audit"), (*_terms(facts), *parts, *_others(facts), *_epsilon(facts))
    )


def _part(facts: Facts, name: str, plan: Plan | None) -> Iterator[TableRow]:
    """One plan against the charges of its runs; without a plan, all charges."""
    charges = [charge for charge in charges_of_plan(facts, plan) if charge.count]
    for row in (*_steps(facts, plan, charges), *capped(list(_groups(plan, charges)), 4)):
        yield replace(row, cells=(f"{name}: {row.cells[0]}", *row.cells[1:])) if name else row


def comparison_notes(facts: Facts) -> tuple[str, ...]:
    """What is missing from the table, and why."""
    notes = []
    if facts.plan is None:
        notes.append(f"No plan was given to this report. {agreement(facts.snapshot)}")

    if facts.audit is None:
        notes.append(
            "No audit was given to this report: nothing was measured, everything here is computed."
        )
    else:
        if comparable(facts) and not contradicted(facts):
            notes.append("The audit passes: nothing that was measured contradicts the claim.")

        notes.append(
            "An audit can refute a claim, never prove one: a low value may be a weak attack. One "
            "that reaches a small share of the claim would have overlooked all but gross errors."
        )

    return tuple(notes)


def _row(
    name: str, plan: str, ledger: str, audit: str = _NONE, *, alarming: bool = False
) -> TableRow:
    return TableRow((name, plan, ledger, audit), alarming)


def _terms(facts: Facts) -> Iterator[TableRow]:
    audit, runs = facts.audit, [run.info for run in facts.snapshot.runs]
    plan = next(iter(facts.plans.values()), None)  # unit and adjacency are the same in all

    units = {str(run.unit) for run in runs}
    yield _row(
        "unit",
        _NONE if plan is None else str(plan.unit),
        _joined(units),
        _NONE if audit is None else str(audit.unit),
        alarming=plan is not None and units != {str(plan.unit)},
    )

    adjacencies = {run.adjacency for run in runs}
    yield _row(
        "adjacency",
        _NONE if plan is None else plan.adjacency.value,
        _joined(adjacency.value for adjacency in adjacencies),
        _NONE if audit is None else audit.adjacency.value,
        alarming=plan is not None and adjacencies != {plan.adjacency},
    )

    yield from _execution(facts)


def _execution(facts: Facts) -> Iterator[TableRow]:
    """How runs were executed: with which numerics, and by whose choice of parameters."""
    runs = [run.info for run in facts.snapshot.runs]
    yield _row(
        "numerics",
        _joined(f"{plan.numerics.value}, at least" for plan in facts.plans.values()),
        _joined(run.numerics.value for run in runs),
        alarming=any(
            not charge.run.numerics.serves(plan.numerics)
            for plan in facts.plans.values()
            for charge in charges_of_plan(facts, plan)
        ),
    )

    yield _row("parameters", _NONE, _joined(run.parameters.value for run in runs))


def _others(facts: Facts) -> Iterator[TableRow]:
    # Whatever belongs to no plan is still part of the claim, so it is shown.
    planned = {charge for plan in facts.plans.values() for charge in charges_of_plan(facts, plan)}
    steps = sum(charge.count for charge in facts.snapshot.charges if charge not in planned)

    if facts.plans and steps:
        yield _row("steps of other runs", "0", f"{steps:,}")


def _steps(facts: Facts, plan: Plan | None, charges: list[Charge]) -> Iterator[TableRow]:
    yield _sampling(None if plan is None else step_of(plan), charges)

    total = sum(charge.count for charge in charges)
    unsettled = sum(charge.unsettled for charge in charges)
    # Charges do not tell plans with equal steps apart: each is held to the sum of them.
    steps = 0 if plan is None else sum(facts.plans[name].steps for name in alike(facts, plan))
    yield _row(
        "steps",
        _NONE if plan is None else f"{steps:,}",
        f"{total:,}" + (f", {unsettled:,} of them unsettled" if unsettled else ""),
        alarming=plan is not None and total - unsettled > steps,
    )

    yield _multiplier(plan, charges)


def _sampling(step: Step | None, charges: list[Charge]) -> TableRow:
    policies = {charge.step.sampling for charge in charges}
    return _row(
        "sampling",
        _NONE if step is None else step.sampling.phrase,
        _joined(policy.phrase for policy in policies),
        # That nothing was charged yet is no deviation.
        alarming=step is not None and bool(policies) and policies != {step.sampling},
    )


def _multiplier(plan: Plan | None, charges: list[Charge]) -> TableRow:
    """The noise multiplier of all groups together; alarming if any charge is not as planned."""
    return _row(
        "noise multiplier, folded",
        _NONE if plan is None else downward(plan.noise_multiplier, 6),
        _joined(map(_folded, charges)),
        alarming=plan is not None
        and plan.private
        and any(charge.step != plan.step for charge in charges),
    )


def _folded(charge: Charge) -> str:
    gaussians = charge.step.gaussians
    return downward(folded_noise_multiplier(gaussians), 6) if gaussians else "not Gaussian"


def _groups(plan: Plan | None, charges: list[Charge]) -> Iterator[TableRow]:
    planned: dict[str, Query] = (
        {} if plan is None else {query.group: query for query in plan.queries()}
    )
    taken: dict[str, set[Query]] = {}

    for charge in charges:
        for query in charge.step.queries:
            taken.setdefault(query.group, set()).add(query)

    for group in sorted(planned.keys() | taken.keys()):
        charged = taken.get(group, set())
        yield _row(
            f"group {group}",
            _noise(planned[group]) if group in planned else _NONE,
            _joined(map(_noise, charged)),
            alarming=plan is not None and bool(charges) and charged != {planned.get(group)},
        )

    # Groups without noise ask no query, so they are in neither of the two.
    for group in () if plan is None else plan.open_groups():
        yield _row(f"group {group}", "NOT PRIVATE", "released without noise", alarming=True)


def _noise(query: Query) -> str:
    ratio = multiplier(query)
    if query.sensitivity_and_noise is None or ratio is None:
        return query.phrase.partition(":")[0]  # the kind of question, without its numbers

    sensitivity, noise = query.sensitivity_and_noise
    return (
        f"sensitivity {exact(sensitivity)}, noise {downward(noise, 6)}, multiplier "
        f"{downward(ratio, 6)}"
    )


def _epsilon(facts: Facts) -> Iterator[TableRow]:
    for limit in facts.ceilings:
        spent = "not comparable" if limit.spent is None else f"at most {upward(limit.spent)}"
        yield _row(
            f"epsilon at delta {exact(limit.delta)}",
            f"{limit.name} {exact(limit.epsilon)}",
            spent,
            alarming=limit.spent is not None and not limit.spent <= limit.epsilon,
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
            yield _row(
                "measured, under an assumption", _NONE, _NONE, under, alarming=contradicted(facts)
            )

        if comparable(facts) and facts.audited_claim:
            yield _row(
                "share of the claim reached", _NONE, _NONE, _reached(audit, facts.audited_claim)
            )

        how = (
            f"{audit.method}; {counted(audit.canaries, 'canary')}, "
            f"{counted(audit.trials, 'trial')}; {moment(audit.made)}"
        )

        yield _row("measured how", _NONE, _NONE, how)
        place = _NONE if facts.audited is None else facts.audited.value
        yield _row(
            "measured for",
            _NONE,
            facts.snapshot.head[:16] + "…",
            f"{audit.ledger_head[:16]}…: {place}",
        )


def _reached(audit: Audit, claim: float) -> str:
    """How far up to the claim the audit came, in percent, rounded down."""
    assumed = audit.assumed_lower
    free = f"{math.floor(100.0 * audit.lower / claim):,} %"
    return (
        free
        if assumed is None
        else f"{free}; {math.floor(100.0 * assumed / claim):,} % under the assumption"
    )


def _joined(values: Iterable[str]) -> str:
    """Different values of one thing, few of them."""
    texts = sorted(set(values))
    more = f"; and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    return "; ".join(texts[:_SHOWN]) + more if texts else _NONE
