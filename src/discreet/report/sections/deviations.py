"""Where ledger, plan and audit disagree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from discreet._digits import counted, downward, upward
from discreet.ledger import Charge, Query, Rule
from discreet.ledger.events import Step
from discreet.plan import Plan
from discreet.report.facts.gathered import AuditedHead, Facts
from discreet.report.facts.own_plans import differences
from discreet.report.facts.runs import growth
from discreet.report.formats.document import Deviation
from discreet.report.formats.words import exact, label_words, mark_words, measured

__all__ = [
    "alike",
    "charges_of_plan",
    "comparable",
    "contradicted",
    "deviations",
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
    # An audit of an earlier state is compared, too: the releases that it measured are still part of
    # what is claimed.
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
    # A note: the claim is right, it may only be larger than what was really taken.
    if facts.snapshot.unsettled:
        steps = f"{counted(facts.snapshot.unsettled, 'step')} of {facts.snapshot.steps:,}"
        yield _note(
            f"{steps} were reserved and never settled: a run is still going, or was killed. They "
            "count in full, so the claim covers them."
        )


def _disagree(facts: Facts) -> bool:
    # An upper bound below a lower bound on the same epsilon: one of the two is wrong.
    return facts.second is not None and facts.second.upper < facts.guarantee.lower


def _accountants(facts: Facts) -> Iterator[Deviation]:
    if facts.second is not None and _disagree(facts):
        yield _wrong(
            "The two accountants contradict each other: at least "
            f"{downward(facts.guarantee.lower)} by one, at most {upward(facts.second.upper)} by "
            "the other. This is a bug: do not rely on the claim, and report it."
        )


def _records(facts: Facts) -> Iterator[Deviation]:
    # At delta = 1/records, publishing one record at random is private with epsilon 0.
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

        # Written so that what is no number counts as too much.
        elif not limit.spent <= limit.epsilon:
            yield _wrong(f"Epsilon {upward(limit.spent)} was spent, which is above {stated}.")


# --- plan against ledger ---


def charges_of_plan(facts: Facts, plan: Plan | None) -> tuple[Charge, ...]:
    """Charges of the runs that executed a plan: those with its step, and those of the same name.

    If no run has its step, those of the same groups that belong to no other plan: they were
    executed in its place. If no run has the step of any plan, all of them: then something else
    than what was planned was executed.
    """
    charges = facts.snapshot.charges
    steps = set(map(step_of, facts.plans.values()))
    taken = _labels(charges, steps)

    # No plan at all, or none that ran as it was written: everything is compared with everything.
    if not taken:
        return charges

    # A charge with the step of another plan is never this plan's, whatever its run is called.
    planned = None if plan is None else step_of(plan)
    names = _labels(charges, {planned})

    if names or planned is None:
        theirs = steps - {planned}
        return tuple(
            charge for charge in charges if charge.run.label in names and charge.step not in theirs
        )

    # Nothing has this plan's step: runs that no plan claims stand in for it, if their groups fit.
    groups = set(planned.groups)
    return tuple(
        charge
        for charge in charges
        if charge.run.label not in taken and set(charge.step.groups) == groups
    )


def _labels(charges: Iterable[Charge], steps: set[Step | None]) -> set[str]:
    """Names of the runs that were charged with one of these steps."""
    return {charge.run.label for charge in charges if charge.step in steps}


def _plan(facts: Facts) -> Iterator[Deviation]:
    # Charges that belong to some plan; what is left over in the end was planned by nobody.
    compared: list[Charge] = []

    for name, plan in facts.plans.items():
        charges, planned = charges_of_plan(facts, plan), step_of(plan)
        yield from _terms(facts, plan, charges)

        # A charge that stands in for several plans is reported once.
        for charge in charges:
            if charge.step != planned and charge.count and charge not in compared:
                yield _wrong(_otherwise(charge, planned))

        # Charges do not tell plans with equal steps apart: the first of them speaks for all.
        names = alike(facts, plan)
        if planned is not None and name == names[0]:
            as_planned = [charge for charge in charges if charge.step == planned]
            yield from _steps(planned, as_planned, facts, names)

        # Only now, since the loop above skips what an earlier plan was compared with.
        compared += charges

    if facts.plans:
        yield from _unplanned(facts, compared)


def _unplanned(facts: Facts, compared: list[Charge]) -> Iterator[Deviation]:
    """Steps of runs that belong to none of the plans."""
    charges = [
        charge for charge in facts.snapshot.charges if charge not in compared and charge.count
    ]

    # A note, since a ledger belongs to a data set and may serve other work than these plans.
    if charges:
        names = ", ".join(sorted({label_words(charge.run.label) for charge in charges}))
        total = counted(sum(charge.count for charge in charges), "step")
        whose = "this plan" if len(facts.plans) == 1 else "these plans"
        yield _note(
            f"{total} of runs that are not of {whose} are in the ledger ({names}). The claim "
            "covers them too."
        )


def alike(facts: Facts, plan: Plan) -> list[str]:
    """Names of the plans that have the same step as this one, which is among them."""
    return [name for name, each in facts.plans.items() if step_of(each) == step_of(plan)]


def step_of(plan: Plan) -> Step | None:
    """What every step of a plan asks; None without noise."""
    return plan.step if plan.queries() else None


def _steps(
    step: Step, charges: list[Charge], facts: Facts, names: list[str]
) -> Iterator[Deviation]:
    """How many steps were charged, of plans that have the same step."""
    # One plan that was given alone has no name.
    whose = "the plan"
    if names != [""]:
        whose = " and ".join(f"plan {label_words(name)}" for name in names)

    steps = sum(facts.plans[name].steps for name in names)

    total = sum(charge.count for charge in charges)
    unsettled = sum(charge.unsettled for charge in charges)

    # All of a list that was fixed in advance counts, whether it was taken or not.
    listed = facts.snapshot.counted() if facts.snapshot.rule is Rule.LIST else ()
    promised = dict(listed).get(step, 0)
    grown = dict(growth(facts.snapshot)).get(step, 0)

    # A killed run leaves reserved steps behind, which count in full, and a list may grow by steps
    # that were lost: such a surplus is explained, and no fault.
    charged_or_promised = max(total, promised)

    if steps < charged_or_promised <= steps + unsettled + grown:
        lost = f", {grown:,} lost for a public reason" if grown else ""
        yield _note(
            f"{counted(charged_or_promised, 'step')} count for the {steps:,} of {whose}. The "
            f"surplus is no more than this: {unsettled:,} were reserved and never settled{lost}."
        )
    elif total > steps:
        yield _wrong(f"{counted(total, 'step')} were charged; {whose} has {steps:,}.")

    # What is only promised costs as much as what was taken: the claim counts it.
    elif promised > steps:
        yield _wrong(
            f"{counted(promised, 'step')} are on the ledger's list, and all count; {whose} "
            f"has {steps:,}."
        )

    # Fewer steps cost less, so that this is no fault.
    elif charged_or_promised < steps:
        charged = f"{counted(total, 'step')} were charged; {whose} has {steps:,}."
        yield _note(f"{charged} {_reasons(facts)}")


def _reasons(facts: Facts) -> str:
    """Public reasons that runs declared for ending early, where the claim follows them."""
    reasons = sorted({run.reason for run in facts.snapshot.runs} - {""})
    if not reasons or facts.snapshot.rule is not Rule.LIST:
        return "The claim is about those charged."

    # Three of them are enough for a sentence; the assumptions list every one.
    said = "; ".join(f"“{reason}”" for reason in reasons[:3])
    return f"The claim leaves out what a run left for a public reason, as was declared: {said}."


def _terms(facts: Facts, plan: Plan, charges: tuple[Charge, ...]) -> Iterator[Deviation]:
    runs = {charge.run for charge in charges}

    # Runs that have charged nothing yet say what they protect all the same. Where others have, a
    # plan of a programme without a charge is one that did not run.
    if not facts.snapshot.charges:
        runs = {run.info for run in facts.snapshot.runs}
    elif not runs:
        return

    for name, planned, charged in (
        ("unit", str(plan.unit), {str(run.unit) for run in runs}),
        ("adjacency", plan.adjacency.value, {run.adjacency.value for run in runs}),
    ):
        if charged != {planned}:
            ledger = ", ".join(sorted(charged)) or "no run"
            yield _wrong(f"The plan's {name} is {planned}; the ledger has {ledger}.")

    # A set has no order of its own, and a report must not change from one reading to the next.
    for run in sorted(runs, key=lambda run: run.label):
        if not run.numerics.serves(plan.numerics):
            yield _wrong(
                f"Run {label_words(run.label)} was executed with numerics {run.numerics.value}; "
                f"the plan asks for {plan.numerics.value}."
            )


def _otherwise(charge: Charge, planned: Step | None) -> str:
    """How a charge differs from the plan's step."""
    start = (
        f"{counted(charge.count, 'step')} of run {label_words(charge.run.label)} are not the plan's"
    )

    if planned is None:
        return f"{start}, which charges nothing."

    parts = []
    if charge.step.sampling != planned.sampling:
        parts.append(f"sampling is {charge.step.sampling.phrase}, not {planned.sampling.phrase}")

    # Groups are compared by name: a group that was renamed is one missing and one too many.
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
        # Said only where the bound that assumes nothing would not have been enough.
        assumed = f", if {audit.assumes}" if audit.lower <= claimed else ""
        yield _wrong(
            "The audit refutes the claim: it measured an epsilon of at least "
            f"{measured(audit.strongest)} at delta {exact(audit.delta)} (confidence "
            f"{exact(audit.confidence)}{assumed}), and at most {upward(claimed)} is claimed. "
            "Either the program does not do what the ledger says, or this is a bug: do not rely "
            "on the claim."
        )
