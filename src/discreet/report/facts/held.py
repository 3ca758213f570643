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
from discreet.report.formats.words import EMPTY_CELL, cell_text, exact, moment

__all__ = ["held_to", "list_length", "rule_words", "run_table", "stops", "terms_words"]

# Runs whose end is told in a sentence; the table has all of them.
_LISTED = 20

_OLDEST = (
    "This file holds no budget: it is of schema 1, which knew none. Nothing in it limited what was "
    "charged."
)
# Every rule that a ledger can be held to, as a noun.
_RULES = {
    Rule.LIST: "list fixed in advance",
    Rule.FILTER: "filter, its analysis left to the first run",
    Rule.RENYI_FILTER: "Rényi filter",
    Rule.GAUSSIAN_FILTER: "Gaussian filter",
    Rule.ODOMETER: "odometer",
}


def rule_words(terms: Terms) -> str:
    """The rule that admits charges, in a few words."""
    if terms.rule is not Rule.RENYI_FILTER:
        return _RULES[terms.rule]

    # The orders are public and part of the rule: they were fixed before the first release.
    orders = ", ".join(f"{order:.4g}" for order, _ in terms.orders)
    return f"{_RULES[terms.rule]} of order {orders}"


def list_length(terms: Terms) -> int:
    """How many steps are on the list; 0 where there is none."""
    return sum(count for _, count in terms.planned)


def terms_words(terms: Terms | None, *, oldest: bool = False) -> str:
    """What a ledger is held to, in a sentence."""
    if terms is None:
        return _OLDEST if oldest else "Nothing yet: the first run settles it."

    # A list may be limited in steps alone; a filter always has an epsilon and a delta.
    delta = exact(terms.delta or 0.0)
    epsilon = cell_text(terms.epsilon, exact, "")
    has_epsilon = terms.epsilon is not None

    if terms.rule is Rule.LIST:
        # A budget that is opened before the first run holds a list that is still to be settled.
        steps = list_length(terms)
        fixed = "What its first run plans"
        if steps:
            fixed = f"A list of {counted(steps, 'step')} that was fixed before the first release"

        within = (
            f", and never more than ({epsilon}, {delta})."
            if has_epsilon
            else ". No epsilon limits it."
        )
        return fixed + within

    if terms.rule.is_filter:
        return (
            f"Whatever is chosen by looking at outputs, within ({epsilon}, {delta}) in all "
            f"({rule_words(terms)})."
        )

    within = f", and never more than epsilon {epsilon}" if has_epsilon else ""
    return (
        f"Whatever is chosen by looking at outputs; its epsilon at delta {delta} is stated as it "
        f"grows (odometer){within}."
    )


def held_to(facts: Facts) -> Section:
    """What the ledger is held to, and every row that said so."""
    # Only what was charged is reported on, and a charge settles the terms: none means schema 1.
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
    # Rows after the first have a reason, but for the one by which the first run settled the list.
    terms = entry.terms
    unexplained = EMPTY_CELL if first else "settled by what the first run planned"
    steps = list_length(terms)

    return TableRow(
        (
            moment(entry.since),
            rule_words(terms),
            cell_text(terms.epsilon, exact, "no limit"),
            cell_text(terms.delta, exact),
            f"{steps:,}" if terms.rule is Rule.LIST and steps else EMPTY_CELL,
            entry.reason or unexplained,
        )
    )


def stops(facts: Facts) -> tuple[str, ...]:
    """How runs ended and went on, and how the list grew, in words."""
    # Of a run that took all its steps there is nothing to tell: its sentence is empty.
    sentences = list(filter(None, (_stop(facts, run) for run in facts.snapshot.runs)))
    shown = sentences[:_LISTED]
    more = len(sentences) - len(shown)
    if more:
        shown.append(f"And {more:,} more runs like these.")

    return (*shown, *_growth(facts))


def _stop(facts: Facts, run: RunRecord) -> str:
    """What is to be told of how a run ended; empty if it just took its steps."""
    snapshot = facts.snapshot
    taken = (
        f"Run {run.number} (“{run_name(run)}”) was charged {run.steps:,} of "
        f"{counted(run.planned_steps, 'planned step')}"
    )

    # Only a list counts what was planned; under other rules what was left never counted.
    lost, counts = "", "What was charged counts"
    if snapshot.rule is Rule.LIST:
        lost, counts = " What it left does not count.", "All that it planned counts"

    state = "over, without a public reason" if run.over else "still going, or was killed"
    resumed = "" if run.continues is None else f" It took the place of run {run.continues}."
    successor = continued_by(snapshot, run)
    number = None if successor is None else successor.number

    # The first that applies is told. What took the place of another run is told in any case.
    endings = (
        (
            bool(run.reason),
            f"{taken} and ended for a public reason, as was declared: “{run.reason}”.{lost}",
        ),
        (successor is not None, f"{taken}, then run {number} took its place."),
        (run.steps < run.planned_steps, f"{taken} and is {state}. {counts}."),
        (bool(resumed), f"{taken}."),
    )
    return next((words for applies, words in endings if applies), "") + resumed


def _growth(facts: Facts) -> Iterator[str]:
    """A sentence for each row by which a list that was complete became longer."""
    for before, after in pairwise(facts.snapshot.history):
        more = list_length(after.terms) - list_length(before.terms)

        # Until a list is complete, its rows settle it: that is no growth.
        if before.terms.rule is Rule.LIST and before.terms.complete and more > 0:
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
                f"{run.planned_steps:,}" if run.planned else EMPTY_CELL,
                f"{run.steps:,}",
                run_state(facts.snapshot, run),
                run.reason or EMPTY_CELL,
                cell_text(facts.alone.get(run.number), upward),
            )
        )
        for run in facts.snapshot.runs
    ]

    # Accounted for together, which is not the sum of the column. It stays where rows are left out.
    total = EMPTY_CELL if facts.void else upward(facts.guarantee.upper)
    last = TableRow(("all", "together", "", EMPTY_CELL, f"{facts.snapshot.steps:,}", "", "", total))

    return Table(header, (*capped(rows, len(header)), last), numbers=(3, 4, 7))
