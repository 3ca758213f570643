"""Where ledger, plan and audit disagree."""

from __future__ import annotations

from collections.abc import Iterator

from discreet._digits import counted, downward, upward
from discreet.ledger import Charge, Query, Rule
from discreet.ledger.events import Step
from discreet.plan import Plan
from discreet.report.facts.gathered import AuditedHead, Facts
from discreet.report.facts.own_plans import differences
from discreet.report.facts.runs import growth
from discreet.report.formats.document import Deviation
from discreet.report.formats.words import exact, mark_words, measured, named

__all__ = [
    "comparable",
    "contradicted",
    "deviations",
    "of_the_plan",
    "refuted",
    "step_of",
]


def deviations(facts: Facts) -> tuple[Deviation, ...]:
    """All disagreements, the wrong ones first."""
    disagreements = [
        *_marks(facts),
        *_audit(facts),
        *_accountants(facts),
        *_limits(facts),
        *_records(facts),
        *_plan(facts),
        *(_wrong(text) for text in differences(facts.snapshot)),
        *_unsettled(facts),
    ]
    return tuple(sorted(disagreements, key=lambda deviation: deviation.severity != "wrong"))


def contradicted(facts: Facts) -> bool:
    """Whether the audit of this ledger measured more than the claim allows, or one accountant
    refutes the other.
    """
    return refuted(facts) or _disagree(facts)


def comparable(facts: Facts) -> bool:
    """Whether the audit measured what is claimed: this ledger, unit and adjacency, at a delta for
    which there is a claim.
    """
    audit = facts.audit
    return (
        audit is not None
        and facts.audited is not AuditedHead.OTHER
        and (audit.unit, audit.adjacency) == (facts.guarantee.unit, facts.guarantee.adjacency)
        and facts.audited_claim is not None
        and not facts.void
    )


def _wrong(text: str) -> Deviation:
    return Deviation("wrong", text)


def _note(text: str) -> Deviation:
    return Deviation("note", text)


# --- what the ledger says of itself ---


def _marks(facts: Facts) -> Iterator[Deviation]:
    for mark in facts.guarantee.voided_by:
        yield _wrong(f"The ledger is marked {mark_words(mark)}. There is no guarantee.")


def _unsettled(facts: Facts) -> Iterator[Deviation]:
    if facts.snapshot.unsettled:
        steps = f"{counted(facts.snapshot.unsettled, 'step')} of {facts.snapshot.steps:,}"
        yield _note(
            f"{steps} were reserved and never settled: a run is still going, or was killed. They "
            "count in full, so the claim covers them."
        )


def _disagree(facts: Facts) -> bool:
    return facts.second is not None and facts.second.upper < facts.guarantee.lower


def _accountants(facts: Facts) -> Iterator[Deviation]:
    if facts.second is not None and _disagree(facts):
        yield _wrong(
            "The two accountants contradict each other: at least "
            f"{downward(facts.guarantee.lower)} by one, at most {upward(facts.second.upper)} by "
            "the other. This is a bug: do not rely on the claim, and report it."
        )


def _records(facts: Facts) -> Iterator[Deviation]:
    if facts.records is not None and facts.guarantee.delta * facts.records >= 1.0:
        yield _wrong(
            f"Delta {exact(facts.guarantee.delta)} is not below 1/records = "
            f"{downward(1.0 / facts.records)}: publishing one record at random would already meet "
            "it, whatever epsilon is."
        )


def _limits(facts: Facts) -> Iterator[Deviation]:
    for limit in facts.ceilings:
        stated = f"the {limit.name} of epsilon {exact(limit.epsilon)} at delta {exact(limit.delta)}"
        if limit.spent is None:
            yield _note(
                f"What was spent cannot be compared with {stated}: the claim is about another "
                "delta."
            )
        elif not limit.spent <= limit.epsilon:
            yield _wrong(f"Epsilon {upward(limit.spent)} was spent, which is above {stated}.")


# --- plan against ledger ---


def of_the_plan(facts: Facts, plan: Plan | None) -> tuple[Charge, ...]:
    """Charges of the runs that executed a plan: those with its step, and those that bear the same
    name.

    If no run has its step, those of the same groups that belong to no other plan: they were
        executed in its place. If no run
    has the step of any plan, all of them: then something else than what was planned was executed.
    """
    charges = facts.snapshot.charges
    steps = {step_of(each) for each in facts.plans.values()}
    if not any(charge.step in steps for charge in charges):
        return charges
    own = None if plan is None else step_of(plan)
    names = {charge.run.label for charge in charges if charge.step == own}
    if names or own is None:
        return tuple(
            charge
            for charge in charges
            if charge.step == own or (charge.step not in steps and charge.run.label in names)
        )
    taken = {charge.run.label for charge in charges if charge.step in steps}
    return tuple(
        charge
        for charge in charges
        if charge.step not in steps
        and charge.run.label not in taken
        and set(charge.step.groups) == set(own.groups)
    )


def _plan(facts: Facts) -> Iterator[Deviation]:
    if not facts.plans:
        return
    mine: list[Charge] = []
    for name, plan in facts.plans.items():
        own, planned = of_the_plan(facts, plan), step_of(plan)
        yield from _terms(facts, plan, own)
        for charge in own:
            if charge.step != planned and charge.count and charge not in mine:
                yield _wrong(_otherwise(charge, planned))
        alike = [other for other, each in facts.plans.items() if step_of(each) == planned]
        if planned is not None and name == alike[0]:
            yield from _steps([charge for charge in own if charge.step == planned], facts, alike)
        mine += own
    others = [charge for charge in facts.snapshot.charges if charge not in mine and charge.count]
    if others:
        names = ", ".join(sorted({named(charge.run.label) for charge in others}))
        total = counted(sum(charge.count for charge in others), "step")
        whose = "this plan" if len(facts.plans) == 1 else "these plans"
        yield _note(
            f"{total} of runs that are not of {whose} are in the ledger ({names}). The claim "
            "covers them too."
        )


def step_of(plan: Plan) -> Step | None:
    """What every step of a plan asks; None without noise."""
    return plan.step if plan.queries() else None


def _steps(charges: list[Charge], facts: Facts, names: list[str]) -> Iterator[Deviation]:
    """How many steps were charged, of plans that have the same step."""
    steps = sum(facts.plans[name].steps for name in names)
    whose = "the plan" if names == [""] else " and ".join(f"plan {named(name)}" for name in names)
    total, unsettled = (
        sum(values)
        for values in zip(*((c.count, c.unsettled) for c in charges), (0, 0), strict=True)
    )
    snapshot, step = facts.snapshot, step_of(facts.plans[names[0]])
    promised = (
        dict(snapshot.counted()).get(step, 0)
        if step is not None and snapshot.rule is Rule.LIST
        else 0
    )
    grown = sum(count for added, count in growth(snapshot) if added == step)
    most = max(total, promised)
    if steps < most <= steps + unsettled + grown:
        why = f"{unsettled:,} were reserved and never settled" + (
            f", {grown:,} lost for a public reason" if grown else ""
        )
        yield _note(
            f"{counted(most, 'step')} count for the {steps:,} of {whose}. The surplus is no "
            f"more than this: {why}."
        )
    elif total > steps:
        yield _wrong(f"{counted(total, 'step')} were charged; {whose} has {steps:,}.")
    elif promised > steps:
        yield _wrong(
            f"{counted(promised, 'step')} are on the ledger's list, and all count; {whose} "
            f"has {steps:,}."
        )
    elif total < steps and promised < steps:
        why = _reasons(facts) or "The claim is about those charged."
        yield _note(f"{counted(total, 'step')} were charged; {whose} has {steps:,}. {why}")


def _reasons(facts: Facts) -> str:
    """Public reasons that runs declared for ending early, where the claim follows them."""
    if facts.snapshot.rule is not Rule.LIST:
        return ""
    reasons = sorted({run.reason for run in facts.snapshot.runs if run.reason})
    if not reasons:
        return ""
    said = "; ".join(f"“{reason}”" for reason in reasons[:3])
    return f"The claim leaves out what a run left for a public reason, as was declared: {said}."


def _terms(facts: Facts, plan: Plan, own: tuple[Charge, ...]) -> Iterator[Deviation]:
    runs = (
        {charge.run for charge in own}
        if facts.snapshot.charges
        else {run.info for run in facts.snapshot.runs}
    )
    if facts.snapshot.charges and not runs:  # a plan of a programme that did not run
        return
    for name, planned, found in (
        ("unit", str(plan.unit), {str(run.unit) for run in runs}),
        ("adjacency", plan.adjacency.value, {run.adjacency.value for run in runs}),
    ):
        if found != {planned}:
            yield _wrong(
                f"The plan's {name} is {planned}; the ledger has "
                f"{', '.join(sorted(found)) or 'no run'}."
            )
    for run in sorted(runs, key=lambda run: run.label):
        if not run.numerics.serves(plan.numerics):
            yield _wrong(
                f"Run {named(run.label)} was executed with numerics {run.numerics.value}; the plan "
                f"asks for {plan.numerics.value}."
            )


def _otherwise(charge: Charge, planned: Step | None) -> str:
    """How a charge differs from the plan's step."""
    start = f"{counted(charge.count, 'step')} of run {named(charge.run.label)} are not the plan's"
    if planned is None:
        return f"{start}, which charges nothing."
    parts = []
    if charge.step.sampling != planned.sampling:
        parts.append(f"sampling is {charge.step.sampling.phrase}, not {planned.sampling.phrase}")
    asked, expected = (
        {query.group: query for query in step.queries} for step in (charge.step, planned)
    )
    for group in sorted(asked.keys() | expected.keys()):
        if group not in asked:
            parts.append(f"group {group} is missing")
        elif group not in expected:
            parts.append(f"group {group} is not in the plan")
        elif asked[group] != expected[group]:
            parts.append(f"group {group} has {_noise(asked[group])}, not {_noise(expected[group])}")
    return f"{start}: {'; '.join(parts)}."


def _noise(query: Query) -> str:
    if query.sensitivity_and_noise is None:
        return str(query)
    sensitivity, noise = query.sensitivity_and_noise
    return f"sensitivity {exact(sensitivity)} and noise {exact(noise)}"


# --- audit against claim ---


def refuted(facts: Facts) -> bool:
    """Whether the audit of this ledger measured more than the claim allows."""
    return (
        comparable(facts)
        and facts.audit is not None
        and facts.audit.strongest > (facts.audited_claim or 0.0)
    )


def _audit(facts: Facts) -> Iterator[Deviation]:
    audit = facts.audit
    if audit is None:
        return
    if facts.audited is AuditedHead.OTHER:
        yield _wrong(
            f"The audit was made for another ledger (head {audit.ledger_head[:16]}…) and says "
            "nothing about this one."
        )
        return
    if facts.audited is AuditedHead.EARLIER:
        yield _note(
            "The audit was made for an earlier state of this ledger; what was charged since "
            "was not audited."
        )
    if not comparable(facts) and not facts.void:
        what = f"one {audit.unit}, {audit.adjacency.value} adjacency, delta {exact(audit.delta)}"
        yield _note(f"The audit measured something else than what is claimed: {what}.")
    elif refuted(facts):
        claimed = facts.audited_claim or 0.0
        assumed = f", if {audit.assumes}" if audit.lower <= claimed else ""
        yield _wrong(
            "The audit refutes the claim: it measured an epsilon of at least "
            f"{measured(audit.strongest)} at delta {exact(audit.delta)} (confidence "
            f"{exact(audit.confidence)}{assumed}), and at most {upward(claimed)} is claimed. "
            "Either the program does not do what the ledger says, or this is a bug: do not rely "
            "on the claim."
        )
