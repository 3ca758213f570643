"""From facts to the document: every part in its place."""

from __future__ import annotations

import numpy as np

from discreet._digits import counted, downward, upward
from discreet.ledger import Query, Rule, Step
from discreet.report.facts.curves import FALSE_POSITIVES
from discreet.report.facts.gathered import Facts
from discreet.report.facts.held import held_to, run_table
from discreet.report.formats.document import (
    Bars,
    Deviation,
    Document,
    LineChart,
    ShareBar,
    Table,
    TableRow,
)
from discreet.report.formats.words import exact, moment, multiplier, people, percent
from discreet.report.sections import headline
from discreet.report.sections.checklist import checklist
from discreet.report.sections.comparison import comparison, comparison_notes
from discreet.report.sections.deviations import contradicted
from discreet.report.sections.tables import (
    charges_table,
    commands,
    cost_share,
    executions_table,
    share_words,
)

__all__ = ["REPORT_SCHEMA", "compose_document"]

REPORT_SCHEMA = 2
"""Version of the JSON form."""

# Bars of one chart, and kinds of steps that get a chart of their own: a page must stay readable.
_BARS = 12
_KINDS = 3
# Rates of false positives in the table beside the attacker's curve.
_RATES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


def compose_document(facts: Facts, deviations: tuple[Deviation, ...]) -> Document:
    """The document behind every format."""
    return Document(
        schema=REPORT_SCHEMA,
        made=moment(facts.made),
        version=facts.software,
        ledger=facts.snapshot.ledger,
        ledger_head=facts.snapshot.head,
        stamp=headline.stamp(facts),
        signature=headline.signature(facts),
        status=headline.status(facts, deviations),
        sentence=headline.sentence(facts),
        meaning=headline.meaning(facts),
        figures=headline.figures(facts),
        claim=headline.claim(facts),
        deviations=deviations,
        compared=_compared(facts),
        checklist=checklist(facts),
        comparison=comparison(facts),
        comparison_notes=comparison_notes(facts),
        tradeoff=_tradeoff(facts),
        spending=_spending(facts),
        chart_notes=_chart_notes(facts),
        groups=_groups(facts),
        held_to=held_to(facts),
        charges=charges_table(facts),
        runs=run_table(facts),
        executions=executions_table(facts),
        commands=commands(facts),
    )


def _compared(facts: Facts) -> str:
    # What was not given is named: a comparison that nobody made must not look like one that passed.
    sources = {"plan": facts.plan, "audit": facts.audit}
    missing = [name for name, value in sources.items() if value is None]
    there = [f"the {name}" for name in sources if name not in missing]

    if any(run.plan for run in facts.snapshot.runs):
        there.append("the plans in its own rows")

    words = f"The ledger was compared with {' and '.join(there) or 'nothing but itself'}."
    if missing:
        words += f" Not given: {', '.join(missing)}."

    return words


# --- charts ---


def _tradeoff(facts: Facts) -> LineChart | None:
    # The point that the headline names lies on this line: both are read from one curve.
    hits = headline.hits_at_one_percent(facts)
    if facts.tradeoff is None or hits is None:
        return None

    rates = np.geomspace(1e-3, 1.0, 61)

    # 2^-50 covers the rounding of the subtraction: the line is never below the bound.
    best = np.minimum(1.0, 1.0 - facts.tradeoff.miss_rate(rates) + 2.0**-50)
    rows = tuple(
        TableRow(
            (f"{100.0 * rate:g} %", percent(min(1.0, 1.0 - float(facts.tradeoff.miss_rate(rate)))))
        )
        for rate in _RATES
    )

    return LineChart(
        "tradeoff",
        "What an attacker can do",
        (
            "No attack lies above the line. One that wrongly accuses 1 of 100 finds at most "
            f"{people(hits)} of 100 members."
        ),
        ("wrongly accused (false positives)", "members found (true positives), at most"),
        tuple(zip(rates.tolist(), best.tolist(), strict=True)),
        Table(("wrongly accused", "members found, at most"), rows, numbers=(0, 1)),
        named=(FALSE_POSITIVES, hits, f"at 1 %: {percent(hits)}"),
    )


def _spending(facts: Facts) -> LineChart | None:
    # Fewer than two: nothing was spent, or no claim can be made about a part of the steps.
    points = facts.spending
    if len(points) < 2:
        return None

    # Limits at another delta cannot be drawn on this axis. Of several, the strictest is shown.
    limits = [limit for limit in facts.ceilings if limit.delta == facts.guarantee.delta]
    limit = min(limits, key=lambda limit: limit.epsilon) if limits else None
    return LineChart(
        "spending",
        "How epsilon grew",
        f"After the {counted(points[-1][0], 'step')} that count, in the order of the ledger, "
        f"epsilon is at most {upward(points[-1][1])} at delta {exact(facts.guarantee.delta)}"
        + (f"; the {limit.name} is {exact(limit.epsilon)}." if limit else "."),
        ("steps", "epsilon, at most"),
        tuple((float(steps), epsilon) for steps, epsilon in points),
        Table(
            ("steps", "epsilon, at most"),
            tuple(TableRow((f"{steps:,}", upward(epsilon))) for steps, epsilon in points),
            numbers=(0, 1),
        ),
        limit=None if limit is None else (limit.epsilon, f"{limit.name} {exact(limit.epsilon)}"),
    )


def _chart_notes(facts: Facts) -> tuple[str, ...]:
    # Whatever stands in the place of a curve, or against one, is said beside it.
    notes = []
    if contradicted(facts):
        notes.append(
            "The claim is contradicted. The curves follow from it all the same, and are no "
            "more reliable than it is."
        )

    if facts.void:
        notes.append("There is no guarantee, so no curve is drawn: an attacker might do anything.")
    elif facts.snapshot.rule is Rule.ODOMETER:
        notes.append(
            "An odometer's claim grows in levels, not with every step: no curve of it over steps "
            "is drawn. The attacker's curve is what the claim alone proves."
        )
    elif facts.by_fixed_analysis:
        notes.append(
            "Steps may have been chosen from earlier outputs: the guarantee is the whole budget "
            "from the first step on, and no curve of it over steps is drawn. The attacker's curve "
            "is what the budget alone proves."
        )

    return tuple(notes)


def _groups(facts: Facts) -> tuple[Bars, ...]:
    """One chart for each kind of step, those taken most often first."""
    # Equal steps of different runs are one kind.
    counts: dict[Step, int] = {}
    for charge in facts.snapshot.charges:
        if charge.count:
            counts[charge.step] = counts.get(charge.step, 0) + charge.count

    kinds = sorted(counts.items(), key=lambda kind: -kind[1])
    return tuple(
        _bars(f"groups-{number}", step, count)
        for number, (step, count) in enumerate(kinds[:_KINDS], start=1)
    )


def _bars(key: str, step: Step, count: int) -> Bars:
    # Queries that compose apart have no share, and stand last.
    shares = sorted(
        ((query, cost_share(query, step)) for query in step.queries),
        key=lambda pair: -(pair[1] or 0.0),
    )

    bars = [
        ShareBar(query.group, share, _bar_note(query, share)) for query, share in shares[:_BARS]
    ]
    # Shares add up to the cost of a step because its queries fold into one Gaussian.
    words = (
        "A group's share of the cost is (sensitivity/noise)² over the sum of all groups."
        if len(shares) > 1
        else "One group takes the whole cost of a step."
    )

    if len(shares) > _BARS:
        words += f" {len(shares) - _BARS} more groups are listed under “What was charged”."

    how = f"{counted(count, 'step')}, {step.sampling.phrase}. "
    return Bars(key, "Noise and cost of each group", how + words, tuple(bars))


def _bar_note(query: Query, share: float | None) -> str:
    # Queries without a multiplier are described by their kind.
    ratio = multiplier(query)
    noise = query.phrase if ratio is None else f"noise {downward(ratio)} times the sensitivity"
    return f"{share_words(share)}; {noise}" if share is not None else f"counted apart; {noise}"
