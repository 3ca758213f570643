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
    successors = (later for later in snapshot.runs if later.continues == run.number)

    # The ledger lets one run at most take the place of another.
    return next(successors, None)


def run_state(snapshot: Snapshot, run: RunRecord) -> str:
    """Whether a run is over, in a few words."""
    successor = continued_by(snapshot, run)
    number = None if successor is None else successor.number

    # Reserved steps may not have been taken yet: they count, and say nothing about the end.
    unsettled = sum(count for _, count in run.unsettled)
    all_charged = run.steps >= run.planned_steps > 0

    # The first that applies is said, so the order of these states is part of the text.
    states = (
        (snapshot.schema == OLDEST, "not recorded"),
        (successor is not None, f"continued by run {number}"),
        (bool(run.reason), "ended early"),
        (run.over, "over"),
        (all_charged and not unsettled, "all steps taken"),
        (True, "going, or killed"),
    )
    return next(words for applies, words in states if applies)


def counted_steps(snapshot: Snapshot, run: RunRecord) -> Planned:
    """What counts of one run: all that it planned where a list is fixed in advance, else what it
    was charged.

    What a run left for a public reason, or to the run that took its place, is not its own.
    """
    charged = dict(run.charged)
    counts_whole = (
        snapshot.rule is Rule.LIST and not run.reason and continued_by(snapshot, run) is None
    )

    # A run may have been charged more of a step than it planned: then the charge counts.
    planned = dict(run.planned) if counts_whole else {}
    return tuple(
        (step, max(planned.get(step, 0), charged.get(step, 0))) for step in {**planned, **charged}
    )


def growth(snapshot: Snapshot) -> Planned:
    """The steps by which the list grew after the first release, for declared public reasons."""
    # Until a list is complete, its rows settle it: only what comes after that is growth.
    lists = [
        entry.terms.planned
        for entry in snapshot.history
        if entry.terms.rule is Rule.LIST and entry.terms.complete
    ]

    if not lists:
        return ()

    # Lists only grow, so that the first and the last say all that happened between them.
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

    # Runs with equal steps cost the same and are computed once; None is a run that has no analysis.
    known: dict[object, float | None] = {}
    epsilons: dict[int, float] = {}

    for run in snapshot.runs:
        steps = counted_steps(snapshot, run)
        key = frozenset(steps)

        # A run without steps has no epsilon, and a new kind of run none once the time is up.
        charged_nothing = not any(count for _, count in steps)
        too_many = key not in known and len(known) == _MOST
        if charged_nothing or too_many:
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
