"""Plan against ledger against audit, side by side."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from discreet._digits import counted, downward, upward
from discreet.auditing import Audit
from discreet.ledger import Charge, Query, RunInfo, Step
from discreet.ledger.folding import folded_noise_multiplier
from discreet.plan import Plan
from discreet.report.facts.gathered import Facts
from discreet.report.facts.own_plans import agreement
from discreet.report.formats.document import Table, TableRow, capped
from discreet.report.formats.words import EMPTY_CELL, cell_text, exact, measured, moment, multiplier
from discreet.report.sections.deviations import (
    alike,
    charges_of_plan,
    comparable,
    contradicted,
    step_of,
)

__all__ = ["comparison", "comparison_notes"]

# Different values in one cell.
_SHOWN = 3


def comparison(facts: Facts) -> Table:
    """One row for each thing that can differ; alarming where it does."""
    # Without a plan the ledger is shown all the same, beside an empty column.
    plans: Mapping[str, Plan | None] = facts.plans or {"": None}
    parts = [row for name, plan in plans.items() for row in _part(facts, name, plan)]

    return Table(
        ("", "plan", "ledger", "audit"), (*_terms(facts), *parts, *_others(facts), *_epsilon(facts))
    )


def _part(facts: Facts, name: str, plan: Plan | None) -> Iterator[TableRow]:
    """One plan against the charges of its runs; without a plan, all charges."""
    charges = [charge for charge in charges_of_plan(facts, plan) if charge.count]
    rows = (*_steps(facts, plan, charges), *capped(list(_groups(plan, charges)), 4))

    # Plans of a programme have names, by which their rows are told apart.
    prefix = f"{name}: " if name else ""
    for row in rows:
        yield replace(row, cells=(prefix + row.cells[0], *row.cells[1:]))


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
    name: str, plan: str, ledger: str, audit: str = EMPTY_CELL, *, alarming: bool = False
) -> TableRow:
    return TableRow((name, plan, ledger, audit), alarming)


def _terms(facts: Facts) -> Iterator[TableRow]:
    runs = [run.info for run in facts.snapshot.runs]

    # Unit and adjacency are the same in all plans of a programme: the first speaks for them.
    plan = next(iter(facts.plans.values()), None)

    # Runs, plans and audits name what they protect by the same words.
    words: dict[str, Callable[[RunInfo | Plan | Audit], str]] = {
        "unit": lambda source: str(source.unit),
        "adjacency": lambda source: source.adjacency.value,
    }
    for name, read in words.items():
        charged = set(map(read, runs))
        yield _row(
            name,
            cell_text(plan, read),
            _joined(charged),
            cell_text(facts.audit, read),
            alarming=plan is not None and charged != {read(plan)},
        )

    yield from _execution(facts)


def _execution(facts: Facts) -> Iterator[TableRow]:
    """How runs were executed: with which numerics, and by whose choice of parameters."""
    runs = [run.info for run in facts.snapshot.runs]

    # A plan asks for a least level: whatever serves it, or is better, is as planned.
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

    yield _row("parameters", EMPTY_CELL, _joined(run.parameters.value for run in runs))


def _others(facts: Facts) -> Iterator[TableRow]:
    # Whatever belongs to no plan is still part of the claim, so it is shown.
    planned = {charge for plan in facts.plans.values() for charge in charges_of_plan(facts, plan)}
    steps = sum(charge.count for charge in facts.snapshot.charges if charge not in planned)

    # Without a plan there are no others: all charges stand in the rows above.
    if facts.plans and steps:
        yield _row("steps of other runs", "0", f"{steps:,}")


def _steps(facts: Facts, plan: Plan | None, charges: list[Charge]) -> Iterator[TableRow]:
    yield _sampling(None if plan is None else step_of(plan), charges)

    # Steps that are reserved and not settled count; a run gives back those that it did not take.
    total = sum(charge.count for charge in charges)
    unsettled = sum(charge.unsettled for charge in charges)
    charged = f"{total:,}"
    if unsettled:
        charged += f", {unsettled:,} of them unsettled"

    # Charges do not tell plans with equal steps apart: each is held to the sum of them.
    steps = 0 if plan is None else sum(facts.plans[name].steps for name in alike(facts, plan))
    yield _row(
        "steps",
        cell_text(plan, lambda _: f"{steps:,}"),
        charged,
        alarming=plan is not None and total - unsettled > steps,
    )

    yield _multiplier(plan, charges)


def _sampling(step: Step | None, charges: list[Charge]) -> TableRow:
    policies = {charge.step.sampling for charge in charges}
    return _row(
        "sampling",
        cell_text(step, lambda step: step.sampling.phrase),
        _joined(policy.phrase for policy in policies),
        # That nothing was charged yet is no deviation.
        alarming=step is not None and not policies <= {step.sampling},
    )


def _multiplier(plan: Plan | None, charges: list[Charge]) -> TableRow:
    """The noise multiplier of all groups together; alarming if any charge is not as planned."""
    return _row(
        "noise multiplier, folded",
        cell_text(plan, lambda plan: downward(plan.noise_multiplier, 6)),
        _joined(map(_folded, charges)),
        alarming=plan is not None
        and plan.private
        and any(charge.step != plan.step for charge in charges),
    )


def _folded(charge: Charge) -> str:
    # Equation 1 of the paper folds Gaussian queries; others compose apart from it.
    gaussians = charge.step.gaussians
    return downward(folded_noise_multiplier(gaussians), 6) if gaussians else "not Gaussian"


def _groups(plan: Plan | None, charges: list[Charge]) -> Iterator[TableRow]:
    queries = () if plan is None else plan.queries()
    planned: dict[str, Query] = {query.group: query for query in queries}
    taken: dict[str, set[Query]] = {}

    # A group may have been charged with different noise at different times: all of it is shown.
    for charge in charges:
        for query in charge.step.queries:
            taken.setdefault(query.group, set()).add(query)

    for group in sorted(planned.keys() | taken.keys()):
        charged = taken.get(group, set())
        yield _row(
            f"group {group}",
            cell_text(planned.get(group), _noise),
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
    # Written so that what is no number counts as too much.
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
        claimed = cell_text(facts.audited_claim, lambda claim: f"at most {upward(claim)}")
        yield _row(
            f"epsilon at delta {exact(audit.delta)}, measured",
            EMPTY_CELL,
            claimed if not facts.void else "no guarantee",
            f"at least {measured(audit.lower)} (confidence {exact(audit.confidence)})",
            alarming=contradicted(facts),
        )

        # A bound that rests on an assumption stands in a row of its own, with the assumption.
        if audit.assumed_lower is not None:
            under = f"at least {measured(audit.assumed_lower)}, if {audit.assumes}"
            yield _row(
                "measured, under an assumption",
                EMPTY_CELL,
                EMPTY_CELL,
                under,
                alarming=contradicted(facts),
            )

        if comparable(facts) and facts.audited_claim:
            yield _row(
                "share of the claim reached",
                EMPTY_CELL,
                EMPTY_CELL,
                _reached(audit, facts.audited_claim),
            )

        how = (
            f"{audit.method}; {counted(audit.canaries, 'canary')}, "
            f"{counted(audit.trials, 'trial')}; {moment(audit.made)}"
        )

        yield _row("measured how", EMPTY_CELL, EMPTY_CELL, how)
        place = cell_text(facts.audited, lambda audited: audited.value)
        yield _row(
            "measured for",
            EMPTY_CELL,
            facts.snapshot.head[:16] + "…",
            f"{audit.ledger_head[:16]}…: {place}",
        )


def _reached(audit: Audit, claim: float) -> str:
    """How far up to the claim the audit came, in percent, rounded down."""
    words = f"{math.floor(100.0 * audit.lower / claim):,} %"
    if audit.assumed_lower is not None:
        share = math.floor(100.0 * audit.assumed_lower / claim)
        words += f"; {share:,} % under the assumption"

    return words


def _joined(values: Iterable[str]) -> str:
    """Different values of one thing, few of them."""
    texts = sorted(set(values))
    more = f"; and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    return "; ".join(texts[:_SHOWN]) + more if texts else EMPTY_CELL
