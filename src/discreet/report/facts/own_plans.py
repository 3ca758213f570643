"""The plans that a ledger holds in its own rows, and whether its runs kept to them.

A run writes its plan before its first charge, so that nobody needs the plan's file to compare the
two.
"""

from __future__ import annotations

from contextlib import suppress

from discreet._digits import counted
from discreet.errors import DiscreetError
from discreet.ledger import RunRecord, Snapshot
from discreet.plan import Plan
from discreet.plan.programme import from_text
from discreet.report.facts.runs import run_name

__all__ = ["agreement", "differences", "known_delta", "own_plan", "own_plans"]


def own_plan(run: RunRecord) -> Plan | None:
    """The plan in the row of a run; None where it holds none.

    Raises:
        DiscreetError: there is a text, and it is no plan.
    """
    if not run.plan:
        return None

    declared = from_text(run.plan)
    if not isinstance(declared, Plan):
        raise DiscreetError(
            expected=f"one plan in the row of run {run.number}",
            got=f"a programme of {len(declared.plans)}",
            do="This row was not written by this library.",
        )

    return declared


def own_plans(snapshot: Snapshot) -> tuple[Plan, ...]:
    """The plans in the rows that can be read, in the order of the runs."""
    plans = []

    # A text that is no plan is passed over here; `differences` names it.
    for run in snapshot.runs:
        with suppress(DiscreetError):
            plans.append(own_plan(run))

    return tuple(filter(None, plans))


def differences(snapshot: Snapshot) -> tuple[str, ...]:
    """Where the commitment or the charges of a run are not those of the plan in its own row; one
    sentence each.
    """
    return tuple(filter(None, map(_difference, snapshot.runs)))


def _difference(run: RunRecord) -> str:
    """The first difference of a run, in a sentence; empty if there is none."""
    name = f"Run {run.number} (“{run_name(run)}”)"

    # A plan without noise charges nothing, so that every step would be one too many.
    try:
        plan = own_plan(run)
        if plan is None:
            return ""

        allowed = {plan.step: plan.steps} if plan.queries() else {}
    except DiscreetError as unreadable:
        return (
            f"{name} holds a text in the place of its plan that cannot be read: {unreadable.got}."
        )

    # What a run committed to comes first: a charge that exceeds the plan may follow from it.
    for verb, steps in (("committed to", run.planned), ("was charged", run.charged)):
        for step, count in steps:
            if step not in allowed:
                return (
                    f"{name} {verb} {counted(count, 'step')} of another kind than the plan in its "
                    "own row has."
                )

            if count > allowed[step]:
                return (
                    f"{name} {verb} {counted(count, 'step')}; the plan in its own row has "
                    f"{allowed[step]:,}."
                )

    return ""


def agreement(snapshot: Snapshot) -> str:
    """What comparing each run with the plan in its own row showed, in a sentence or two."""
    without = [str(run.number) for run in snapshot.runs if not run.plan]
    with_plan = len(snapshot.runs) - len(without)

    if not snapshot.runs:
        return "No run has begun, so there is no plan to compare with."

    if not with_plan:
        return "The rows hold no plan: the runs can only be compared with a plan's file."

    # Only a run with a plan can differ from it, and each that does has one sentence.
    agreeing = with_plan - len(differences(snapshot))
    words = (
        f"{counted(agreeing, 'run')} of {with_plan:,} kept to the plan in the ledger's own rows."
    )
    if without:
        words += f" No plan is in the rows of run {', '.join(without[:10])}."

    return words


def known_delta(snapshot: Snapshot) -> float | None:
    """The delta that the ledger itself names: of its terms, or of the target that all of its plans
    share.
    """
    # A list may be held to steps alone: then it has terms, and no delta in them.
    if snapshot.terms is not None and snapshot.terms.delta is not None:
        return snapshot.terms.delta

    # A plan without a target, or a run without a plan, leaves the delta open for the whole ledger.
    plans = own_plans(snapshot)
    deltas = {None if plan.target is None else plan.target.delta for plan in plans}
    agreed = len(deltas) == 1 and len(plans) == len(snapshot.runs)
    return deltas.pop() if agreed else None
