"""The runs of a ledger, each by itself: its name, how it ended, what it would cost alone."""

from __future__ import annotations

from discreet.accounting import account
from discreet.errors import AccountingError
from discreet.ledger import Rule, RunRecord, Snapshot
from discreet.ledger.storage.codec import OLDEST
from discreet.ledger.terms import Planned

__all__ = ["continued_by", "counted_steps", "epsilon_of_each", "growth", "run_name", "run_state"]

# Different runs whose epsilon is computed alone; each of them costs time.
_MOST = 20


def run_name(run: RunRecord) -> str:
    """The label of a run, or its number where it has none."""
    return run.info.label or f"run {run.number}"


def continued_by(snapshot: Snapshot, run: RunRecord) -> RunRecord | None:
    """The run that took the place of this one."""
    return next(
        (successor for successor in snapshot.runs if successor.continues == run.number), None
    )


def run_state(snapshot: Snapshot, run: RunRecord) -> str:
    """Whether a run is over, in a few words."""
    # The first that applies is said, so the order of these questions is part of the text.
    successor = continued_by(snapshot, run)
    if snapshot.schema == OLDEST:
        return "not recorded"

    if successor is not None:
        return f"continued by run {successor.number}"

    if run.reason:
        return "ended early"

    if run.over:
        return "over"

    taken = (
        run.planned_steps
        and run.steps >= run.planned_steps
        and not sum(count for _, count in run.unsettled)
    )

    return "all steps taken" if taken else "going, or killed"


def counted_steps(snapshot: Snapshot, run: RunRecord) -> Planned:
    """What counts of one run: all that it planned where a list is fixed in advance, else what it
    was charged.

    What a run left for a public reason, or to the run that took its place, is not its own.
    """
    charged = dict(run.charged)
    whole = snapshot.rule is Rule.LIST and not run.reason and continued_by(snapshot, run) is None
    planned = dict(run.planned) if whole else {}

    return tuple(
        (step, max(planned.get(step, 0), charged.get(step, 0))) for step in {**planned, **charged}
    )


def growth(snapshot: Snapshot) -> Planned:
    """The steps by which the list grew after the first release, for declared public reasons."""
    lists = [
        entry.terms.planned
        for entry in snapshot.history
        if entry.terms.rule is Rule.LIST and entry.terms.complete
    ]

    if len(lists) < 2:
        return ()

    first, last = dict(lists[0]), dict(lists[-1])
    return tuple(
        (step, count - first.get(step, 0))
        for step, count in last.items()
        if count > first.get(step, 0)
    )


def epsilon_of_each(snapshot: Snapshot, delta: float) -> dict[int, float]:
    """Epsilon of each run alone at this delta, by its number, as if it had been fixed before its
    first release.

    These are for comparison and no claims: who sees several runs sees what they cost together. A
    void ledger has none, and neither has a run that was charged nothing. Of many different runs
    only the first few are computed.
    """
    if snapshot.marks:
        return {}

    # Runs with equal steps cost the same and are computed once.
    known: dict[object, float | None] = {}
    epsilons: dict[int, float] = {}

    for run in snapshot.runs:
        steps = counted_steps(snapshot, run)
        key = frozenset(steps)

        if not any(count for _, count in steps) or (key not in known and len(known) == _MOST):
            continue

        if key not in known:
            known[key] = _alone(steps, delta, run)

        alone = known[key]
        if alone is not None:
            epsilons[run.number] = alone

    return epsilons


def _alone(steps: Planned, delta: float, run: RunRecord) -> float | None:
    """Epsilon of these steps; None where the tight accountant has no analysis for them, which a
    filter may have.
    """
    try:
        return account(steps, delta=delta, adjacency=run.info.adjacency).upper
    except AccountingError:
        return None
