"""What the ledger is held to, how that came about, and how its runs ended."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from discreet._digits import counted, upward
from discreet.ledger import Rule, RunRecord, Terms
from discreet.ledger.storage.rows import Held
from discreet.report.facts.gathered import Facts
from discreet.report.facts.runs import continued_by, run_name, run_state
from discreet.report.formats.document import Section, Table, TableRow, capped
from discreet.report.formats.words import exact, moment

__all__ = ["held_to", "rule_words", "run_table", "stops", "terms_words"]

_NONE = "—"
# Runs whose end is told in a sentence; the table has all of them.
_LISTED = 20

_RULES = {
    Rule.LIST: "list fixed in advance",
    Rule.FILTER: "filter, its analysis left to the first run",
    Rule.RENYI_FILTER: "Rényi filter",
    Rule.GAUSSIAN_FILTER: "Gaussian filter",
    Rule.ODOMETER: "odometer",
}


def rule_words(terms: Terms) -> str:
    """The rule that admits charges, in a few words."""
    orders = ", ".join(f"{order:.4g}" for order, _ in terms.orders)
    return (
        f"{_RULES[terms.rule]} of order {orders}"
        if terms.rule is Rule.RENYI_FILTER
        else _RULES[terms.rule]
    )


def terms_words(terms: Terms | None, *, oldest: bool = False) -> str:
    """What a ledger is held to, in a sentence."""
    if terms is None:
        return (
            (
                "This file holds no budget: it is of schema 1, which knew none. Nothing in it "
                "limited what was charged."
            )
            if oldest
            else "Nothing yet: the first run settles it."
        )

    limit = (
        "" if terms.epsilon is None else f"({exact(terms.epsilon)}, {exact(terms.delta or 0.0)})"
    )

    if terms.rule is Rule.LIST:
        steps = sum(count for _, count in terms.planned)
        fixed = (
            f"A list of {counted(steps, 'step')} that was fixed before the first release"
            if steps
            else "What its first run plans"
        )

        return (
            f"{fixed}, and never more than {limit}." if limit else f"{fixed}. No epsilon limits it."
        )

    if terms.rule.is_filter:
        return (
            f"Whatever is chosen by looking at outputs, within {limit} in all "
            f"({rule_words(terms)})."
        )

    within = (
        f", and never more than epsilon {exact(terms.epsilon)}" if terms.epsilon is not None else ""
    )

    delta = exact(terms.delta or 0.0)
    return (
        f"Whatever is chosen by looking at outputs; its epsilon at delta {delta} is stated as it "
        f"grows (odometer){within}."
    )


def held_to(facts: Facts) -> Section:
    """What the ledger is held to, and every row that said so."""
    snapshot = facts.snapshot
    paragraphs = [terms_words(snapshot.terms, oldest=snapshot.terms is None)]

    if snapshot.history:
        paragraphs.append(
            "It is a row of the file, written before the first charge, and holds whoever opens "
            "the file. Each later row is listed here; nothing else can change it."
        )

    table = Table(
        ("since", "rule", "epsilon", "delta", "steps on the list", "reason"),
        capped(
            [_held_row(entry, first=entry is snapshot.history[0]) for entry in snapshot.history], 6
        ),
        numbers=(2, 3, 4),
    )

    return Section(
        "What the ledger is held to",
        tuple(paragraphs),
        stops(facts),
        table if snapshot.history else None,
    )


def _held_row(entry: Held, *, first: bool) -> TableRow:
    terms = entry.terms
    reason = entry.reason or (_NONE if first else "settled by what the first run planned")
    steps = sum(count for _, count in terms.planned)

    return TableRow(
        (
            moment(entry.since),
            rule_words(terms),
            "no limit" if terms.epsilon is None else exact(terms.epsilon),
            _NONE if terms.delta is None else exact(terms.delta),
            f"{steps:,}" if terms.rule is Rule.LIST and steps else _NONE,
            reason,
        )
    )


def stops(facts: Facts) -> tuple[str, ...]:
    """How runs ended and went on, and how the list grew, in words."""
    sentences = [text for run in facts.snapshot.runs if (text := _stop(facts, run))]
    more = len(sentences) - _LISTED
    shown = (
        (*sentences[:_LISTED], f"And {more:,} more runs like these.")
        if more > 0
        else tuple(sentences)
    )

    return (*shown, *_growth(facts))


def _stop(facts: Facts, run: RunRecord) -> str:
    snapshot = facts.snapshot
    taken = (
        f"Run {run.number} (“{run_name(run)}”) was charged {run.steps:,} of "
        f"{counted(run.planned_steps, 'planned step')}"
    )

    resumed = "" if run.continues is None else f" It took the place of run {run.continues}."
    successor = continued_by(snapshot, run)

    if run.reason:
        counts = " What it left does not count." if snapshot.rule is Rule.LIST else ""
        return (
            f"{taken} and ended for a public reason, as was declared: "
            f"“{run.reason}”.{counts}{resumed}"
        )

    if successor is not None:
        return f"{taken}, then run {successor.number} took its place.{resumed}"

    if run.planned and run.steps < run.planned_steps:
        state = (
            "and is over, without a public reason"
            if run.over
            else "and is still going, or was killed"
        )

        counts = (
            "All that it planned counts"
            if snapshot.rule is Rule.LIST
            else "What was charged counts"
        )

        return f"{taken} {state}. {counts}.{resumed}"

    return f"{taken}.{resumed}" if resumed else ""


def _growth(facts: Facts) -> Iterator[str]:
    history = facts.snapshot.history
    for before, after in pairwise(history):
        if before.terms.rule is not Rule.LIST or not before.terms.complete:
            continue

        more = sum(count for _, count in after.terms.planned) - sum(
            count for _, count in before.terms.planned
        )

        if more > 0:
            yield (
                f"The list grew by {counted(more, 'step')} for a public reason, as was declared: "
                f"“{after.reason}”."
            )


def run_table(facts: Facts) -> Table:
    """One row for each run, what each would cost alone, and what all cost together."""
    header = (
        "number",
        "run",
        "began",
        "planned",
        "charged",
        "state",
        "public reason",
        "epsilon alone",
    )

    rows = [
        TableRow(
            (
                str(run.number),
                run_name(run),
                moment(run.began),
                f"{run.planned_steps:,}" if run.planned else _NONE,
                f"{run.steps:,}",
                run_state(facts.snapshot, run),
                run.reason or _NONE,
                upward(facts.alone[run.number]) if run.number in facts.alone else _NONE,
            )
        )
        for run in facts.snapshot.runs
    ]

    total = _NONE if facts.void else upward(facts.guarantee.upper)
    last = TableRow(("all", "together", "", _NONE, f"{facts.snapshot.steps:,}", "", "", total))

    return Table(header, (*capped(rows, len(header)), last), numbers=(3, 4, 7))
