"""Which rows may follow what a ledger holds: pure functions from a snapshot to rows, or an error.

The ledger calls them inside the transaction that writes their rows, so that no other process comes
between the decision and the row. Every error here means that nothing was written.
"""

from __future__ import annotations

from dataclasses import replace

from discreet.errors import BudgetExceeded, LedgerMisuse, ParameterError
from discreet.ledger._provenance import now
from discreet.ledger.events import Step
from discreet.ledger.rules import installed
from discreet.ledger.snapshot import RunRecord, Snapshot
from discreet.ledger.storage.codec import LEDGER_SCHEMA
from discreet.ledger.storage.rows import Began, Ended, Held, Marked, Reserved, Row
from discreet.ledger.terms import Planned, Rule, Terms
from discreet.units import Adjacency, Parameters

__all__ = [
    "another_budget",
    "beginning",
    "check_writable",
    "ending",
    "first_terms",
    "fitting",
    "longer_list",
    "marking",
    "reservation",
]


def check_writable(snapshot: Snapshot) -> None:
    """Refuse to write to a file of an older schema."""
    # Rows of two schemas in one file would leave it open which rule its first charges obeyed.
    if snapshot.schema != LEDGER_SCHEMA:
        raise LedgerMisuse(
            expected=f"a ledger of schema {LEDGER_SCHEMA} to write to",
            got=f"one of schema {snapshot.schema}, which holds no budget and is read only",
            do="Begin a new ledger, and account for both: discreet account OLD NEW.",
        )


def first_terms(snapshot: Snapshot, wanted: Terms) -> list[Row]:
    """The terms that a handle was opened with: written where there are none, else compared with
    those that are there.
    """
    if snapshot.terms is None:
        return [Held(wanted, "", now())]

    # Never in silence: whoever names another budget believes in another guarantee.
    if not _same(snapshot.terms, wanted):
        raise LedgerMisuse(
            expected=f"what the ledger is held to: {_words(snapshot.terms)}",
            got=_words(wanted),
            do=(
                "Leave the budget out: the ledger has its own. `change_budget` makes it another "
                "one, in a row."
            ),
        )

    return []


def beginning(snapshot: Snapshot, row: Began) -> list[Row]:
    """The rows that begin a run, if the terms admit what it plans.

    Raises:
        BudgetExceeded: they do not.
        LedgerMisuse: a run that is chosen from outputs, on a list that was fixed in advance.
    """
    _refuse_another_kind(snapshot, row)

    # The first run settles the terms that it is then judged by.
    after, completing = _completed(snapshot, row.planned, row.info.adjacency)

    # Two runs in the place of one would take its steps twice.
    if row.continues is not None and row.continues not in _open_numbers(snapshot):
        raise ParameterError(
            owner="Ledger.begin",
            name="continues",
            expected=(
                "the number of a run that did not end for a public reason, and that nobody "
                "continued yet"
            ),
            got=repr(row.continues),
        )

    # A list is valid because nothing in it was chosen by looking.
    if row.info.parameters is Parameters.CHOSEN_FROM_OUTPUTS and after.rule in (None, Rule.LIST):
        raise LedgerMisuse(
            expected="a filter or an odometer, for a run that is chosen from outputs",
            got="a ledger that is held to a list fixed in advance",
            do=(
                "Open it with budget=dp.Filter(epsilon=..., delta=...) or dp.Odometer(delta=...) "
                "before its first run."
            ),
        )

    # All that the run plans is admitted now, so that it is not refused half way.
    proposed = RunRecord(info=row.info, planned=row.planned, continues=row.continues)
    _admit(after.proposing(proposed))
    return [*completing, row]


def _open_numbers(snapshot: Snapshot) -> set[int]:
    """Numbers of the runs of which nobody said yet what becomes of the steps that are left.

    A public reason frees them, a run that continues takes them over; each is final.
    """
    # An end without a reason is not final: a reason or a successor may still follow.
    continued = {run.continues for run in snapshot.runs}
    return {run.number for run in snapshot.runs if not run.reason and run.number not in continued}


def fitting(snapshot: Snapshot, row: Began) -> int:
    """How many of the steps of its one kind that the row plans a run could begin with; by
    bisection.
    """
    ((step, count),) = row.planned

    # `low` fits, `high` does not. All of them are tried first: that is the usual answer.
    low, high, probe = 0, count + 1, count

    while high - low > 1:
        # Nothing is written: the rows that would begin the run are thrown away.
        try:
            beginning(snapshot, replace(row, planned=((step, probe),)))
            low = probe
        except BudgetExceeded:
            high = probe

        probe = (low + high) // 2

    return low


def _refuse_another_kind(snapshot: Snapshot, row: Began) -> None:
    """Refuse a run that protects something else than those before it: no one statement would cover
    both.
    """
    for run in snapshot.runs:
        for name in ("unit", "adjacency"):
            before, now_ = getattr(run.info, name), getattr(row.info, name)

            if before != now_:
                raise LedgerMisuse(
                    expected=f"one {name} in all runs of a ledger: {_shown(before)}",
                    got=_shown(now_),
                    do=(
                        "One statement protects one thing against one change of the data. Use "
                        "another ledger."
                    ),
                )


def _shown(value: object) -> str:
    return value.value if isinstance(value, Adjacency) else str(value)


def reservation(snapshot: Snapshot, row: Reserved, step: Step) -> list[Row]:
    """The rows that charge a step to a run, `step` being the one that the row names.

    Raises:
        BudgetExceeded: it is more than the run planned, and the terms do not admit it.
        LedgerMisuse: the run is over.
    """
    run = _run(snapshot, row.run)

    # What it left may be promised to another run by now.
    if run.over:
        raise LedgerMisuse(
            expected="a run that is not over",
            got=f"run {row.run}, which ended or was continued by another",
            do="Begin another run. Nothing was charged.",
        )

    # Within the commitment nothing is asked again: it was admitted as a whole.
    charged = dict(run.charged)
    total = charged.get(step, 0) + row.count

    if total <= dict(run.planned).get(step, 0):
        return [row]

    # Beyond it the terms decide, on the ledger as it would be afterwards.
    after, completing = _completed(snapshot, ((step, total),), run.info.adjacency)

    # Only a filter or an odometer admits more than was planned, or a list that has it left.
    more = replace(run, charged=tuple({**charged, step: total}.items()))
    _admit(replace(after, runs=tuple(more if record is run else record for record in after.runs)))
    return [*completing, row]


def ending(snapshot: Snapshot, row: Ended) -> list[Row]:
    """The row that ends a run, or that adds a public reason to an end without one.

    None for a run that is over already: it ended before, or another one took its place meanwhile. A
    reason is left out where there is nothing that it could free.
    """
    run = {record.number: record for record in snapshot.runs}.get(row.run)

    if run is None:
        raise _not_going(row.run)

    # A reason frees what was planned and not charged. Where that is nothing, it would only make
    # the guarantee look as if it rested on somebody's word.
    if row.reason and not run.left() and not run.reason:
        row = Ended(row.run, "")

    # Ending twice does no harm; a second reason, or one after a successor began, would.
    if run.over and not row.reason:
        return []

    if row.run not in _open_numbers(snapshot):
        raise _not_going(row.run)

    # What its predecessor did not take may have been left by looking, whatever ends this one.
    if row.reason and run.continues is not None:
        raise LedgerMisuse(
            expected="a public reason of a run that took nobody's place",
            got=f"run {row.run}, which took that of run {run.continues}",
            do=(
                "What the other run left may have been left by looking: all that was planned "
                "counts. End it without a reason."
            ),
        )

    return [row]


def _not_going(number: int) -> LedgerMisuse:
    return LedgerMisuse(
        expected="the number of a run that is not over",
        got=f"{number!r}",
        do=(
            "`discreet ledger show` lists the runs. A reason can be added once, and not to a run "
            "that was continued."
        ),
    )


def marking(snapshot: Snapshot, row: Marked) -> list[Row]:
    """The row that voids a run."""
    # Refuses a run that never began: its mark would void the others' claims by mistake.
    _run(snapshot, row.run)
    return [row]


def _run(snapshot: Snapshot, number: int) -> RunRecord:
    for run in snapshot.runs:
        if run.number == number:
            return run

    raise LedgerMisuse(
        expected="the number of a run that began",
        got=f"{number!r}",
        do="Begin a run first: run = ledger.begin(...). Nothing was written.",
    )


def another_budget(
    snapshot: Snapshot, epsilon: float, delta: float | None, reason: str
) -> list[Row]:
    """The row that holds the ledger to another epsilon."""
    before = snapshot.terms

    # A Rényi filter may be raised, the Gaussian one may not: docs/proofs/filters.md, "Changes".
    if before is None or (
        before.rule is Rule.GAUSSIAN_FILTER and epsilon > (before.epsilon or 0.0)
    ):
        raise LedgerMisuse(
            expected="a ledger whose budget can be changed",
            got=(
                "one that is not held to anything yet"
                if before is None
                else "a Gaussian filter, to be raised"
            ),
            do=(
                "Open the ledger with budget=..., or plan further runs on another one and account "
                "for both."
            ),
        )

    # Only a list that had no budget gets its delta late: nothing was claimed with another.
    if delta not in (None, before.delta) and (
        before.rule is not Rule.LIST or before.delta is not None
    ):
        raise ParameterError(
            owner="Ledger.change_budget",
            name="delta",
            expected=f"left out, or {before.delta!r}: delta is fixed before the first charge",
            got=repr(delta),
        )

    # Lowered below what is committed it is refused as well: charges cannot be taken back.
    after = replace(before, epsilon=epsilon, delta=before.delta if delta is None else delta)
    return _held_to(snapshot, after, reason)


def longer_list(snapshot: Snapshot, planned: Planned, reason: str) -> list[Row]:
    """The row that lets a list grow, for a public reason."""
    before = snapshot.terms

    # Before the first run settles it there is no list that could grow.
    if before is None or before.rule is not Rule.LIST or not before.complete:
        raise LedgerMisuse(
            expected="a ledger that is held to a list",
            got="one that is not",
            do="Other rules admit further runs as they are.",
        )

    return _held_to(snapshot, replace(before, planned=(*before.planned, *planned)), reason)


def _held_to(snapshot: Snapshot, terms: Terms, reason: str) -> list[Row]:
    # What is charged or promised already must fit the new terms, too.
    row = Held(terms, reason, now())
    _admit(replace(snapshot, history=(*snapshot.history, row)))
    return [row]


def _completed(
    snapshot: Snapshot, planned: Planned, adjacency: Adjacency
) -> tuple[Snapshot, list[Row]]:
    """The snapshot with complete terms, and the row that completes them, if one is needed."""
    before = snapshot.terms

    # A run that plans nothing settles nothing: the next one may still be the first.
    if not planned or (before is not None and before.complete):
        return snapshot, []

    # Without a word about terms, a ledger is for what its first run plans and for nothing else.
    if before is None or before.rule is Rule.LIST:
        after = replace(before or Terms(rule=Rule.LIST), planned=planned)
    else:
        after = installed().completed(before, planned, adjacency)

    # Not written yet, but part of the snapshot that the run is judged by.
    row = Held(after, "", now())
    return replace(snapshot, history=(*snapshot.history, row)), [row]


def _admit(snapshot: Snapshot) -> None:
    """Refuse what the terms of the snapshot do not admit."""
    # Whether or not there is a budget: a list is a promise of its own.
    snapshot.check_list()

    # A list without a budget and an odometer admit whatever it costs.
    terms = snapshot.terms
    if terms is not None and terms.complete and terms.epsilon is not None:
        installed().admit(snapshot)


def _same(present: Terms, wanted: Terms) -> bool:
    """Whether what is wanted is what a ledger is held to; what is left open in `wanted` fits
    anything.
    """
    # Which analysis a filter gets is settled by the first run, not by whoever opens the file.
    same_rule = present.rule is wanted.rule or (
        wanted.rule is Rule.FILTER and present.rule.is_filter
    )

    # A budget for a list need not name the list: the first run does.
    same_orders = not wanted.orders or wanted.orders == present.orders
    same_list = (
        wanted.rule is not Rule.LIST
        or not wanted.planned
        or dict(wanted.planned) == dict(present.planned)
    )

    same_budget = (present.epsilon, present.delta) == (wanted.epsilon, wanted.delta)
    return same_rule and same_orders and same_list and same_budget


def _words(terms: Terms) -> str:
    # A list may have no budget, and an odometer never has one.
    limit = (
        "no budget"
        if terms.epsilon is None
        else f"epsilon {terms.epsilon!r} at delta {terms.delta!r}"
    )
    return f"{limit}, by the rule {terms.rule.value!r}"
