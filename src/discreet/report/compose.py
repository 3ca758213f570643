"""From facts to the document: every part in its place."""

from __future__ import annotations

import numpy as np

from discreet.accounting.sources import phrase
from discreet.ledger import Charge, CorrelatedGaussianSum, GaussianSum, Query, Step
from discreet.ledger.folding import folded_noise_multiplier
from discreet.report import headline
from discreet.report.checklist import checklist
from discreet.report.comparison import comparison, comparison_notes
from discreet.report.curves import FALSE_POSITIVES
from discreet.report.deviations import Deviation, contradicted
from discreet.report.document import Bar, Bars, Document, Line, Row, Table, capped
from discreet.report.facts import Facts
from discreet.report.words import counted, downward, exact, moment, multiplier, noise_of, people, percent, query_words, upward

__all__ = ["SCHEMA", "compose"]

SCHEMA = 1
"""Version of the JSON form."""

_BARS = 12  # of one chart
_KINDS = 3  # of steps that get a chart of their own
_RATES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)  # of false positives, in the table


def compose(facts: Facts, deviations: tuple[Deviation, ...]) -> Document:
    """The document behind every format."""
    return Document(
        schema=SCHEMA,
        made=moment(facts.made),
        version=facts.software,
        ledger_head=facts.snapshot.head,
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
        charges=_charges(facts),
        runs=_runs(facts),
        commands=_commands(facts),
    )


def _compared(facts: Facts) -> str:
    given = {"plan": facts.plan, "audit": facts.audit}
    there = [name for name, value in given.items() if value is not None]
    missing = [name for name, value in given.items() if value is None]
    with_what = f"with the {' and the '.join(there)}" if there else "with nothing but itself"
    return f"The ledger was compared {with_what}." + (f" Not given: {', '.join(missing)}." if missing else "")


# --- charts ---


def _tradeoff(facts: Facts) -> Line | None:
    hits = headline.hits_at_one_percent(facts)
    if facts.tradeoff is None or hits is None:
        return None
    rates = np.geomspace(1e-3, 1.0, 61)
    best = np.minimum(1.0, 1.0 - facts.tradeoff.miss_rate(rates) + 2.0**-50)
    rows = tuple(
        Row((f"{100.0 * rate:g} %", percent(min(1.0, 1.0 - float(facts.tradeoff.miss_rate(rate)))))) for rate in _RATES
    )
    return Line(
        "tradeoff",
        "What an attacker can do",
        f"No attack lies above the line. One that wrongly accuses 1 of 100 finds at most {people(hits)} of 100 members.",
        ("wrongly accused (false positives)", "members found (true positives), at most"),
        tuple(zip(rates.tolist(), best.tolist(), strict=True)),
        Table(("wrongly accused", "members found, at most"), rows, numbers=(0, 1)),
        named=(FALSE_POSITIVES, hits, f"at 1 %: {percent(hits)}"),
    )


def _spending(facts: Facts) -> Line | None:
    points = facts.spending
    if len(points) < 2:
        return None
    limits = [limit for limit in facts.ceilings if limit.delta == facts.guarantee.delta]
    limit = min(limits, key=lambda limit: limit.epsilon) if limits else None
    return Line(
        "spending",
        "How epsilon grew",
        f"After {counted(points[-1][0], 'step')}, in the order of the ledger, epsilon is at most {upward(points[-1][1])} at "
        f"delta {exact(facts.guarantee.delta)}" + (f"; the {limit.name} is {exact(limit.epsilon)}." if limit else "."),
        ("steps", "epsilon, at most"),
        tuple((float(steps), epsilon) for steps, epsilon in points),
        Table(
            ("steps", "epsilon, at most"),
            tuple(Row((f"{steps:,}", upward(epsilon))) for steps, epsilon in points),
            numbers=(0, 1),
        ),
        limit=None if limit is None else (limit.epsilon, f"{limit.name} {exact(limit.epsilon)}"),
    )


def _chart_notes(facts: Facts) -> tuple[str, ...]:
    notes = []
    if contradicted(facts):
        notes.append("The claim is contradicted. The curves follow from it all the same, and are no more reliable than it is.")
    if facts.void:
        notes.append("There is no guarantee, so no curve is drawn: an attacker might do anything.")
    elif facts.by_fixed_analysis:
        notes.append(
            "Steps were chosen from earlier outputs: the guarantee is the whole budget from the first step on, and no curve "
            "of it over steps is drawn. The attacker's curve is what the budget alone proves."
        )
    return tuple(notes)


def _groups(facts: Facts) -> tuple[Bars, ...]:
    """One chart for each kind of step, those taken most often first."""
    counts: dict[Step, int] = {}
    for charge in facts.snapshot.charges:
        if charge.count:
            counts[charge.step] = counts.get(charge.step, 0) + charge.count
    kinds = sorted(counts.items(), key=lambda kind: -kind[1])
    found = [_bars(f"groups-{i + 1}", step, count) for i, (step, count) in enumerate(kinds[:_KINDS])]
    return tuple(found)


def _bars(key: str, step: Step, count: int) -> Bars:
    shares = sorted(((query, _share(query, step)) for query in step.queries), key=lambda pair: -(pair[1] or 0.0))
    bars = [Bar(query.group, share, _bar_note(query, share)) for query, share in shares[:_BARS]]
    words = (
        "A group's share of the cost is (sensitivity/noise)² over the sum of all groups."
        if len(shares) > 1
        else "One group takes the whole cost of a step."
    )
    if len(shares) > _BARS:
        words += f" {len(shares) - _BARS} more groups are listed under “What was charged”."
    how = f"{counted(count, 'step')}, {phrase(step.sampling)}. "
    return Bars(key, "Noise and cost of each group", how + words, tuple(bars))


def _share(query: Query, step: Step) -> float | None:
    """(S_g/noise_g)^2 as a part of the sum over the step's Gaussian groups; None for others, which compose apart."""
    if not isinstance(query, GaussianSum | CorrelatedGaussianSum):
        return None
    gaussians = [other for other in step.queries if isinstance(other, GaussianSum | CorrelatedGaussianSum)]
    return min(1.0, (folded_noise_multiplier(gaussians) / folded_noise_multiplier([query])) ** 2)


def _bar_note(query: Query, share: float | None) -> str:
    ratio = multiplier(query)
    noise = query_words(query) if ratio is None else f"noise {downward(ratio)} times the sensitivity"
    return f"{_short(share)}; {noise}" if share is not None else f"counted apart; {noise}"


def _short(share: float | None) -> str:
    return "—" if share is None else f"{100.0 * share:.3g} %"


# --- tables ---


def _charges(facts: Facts) -> Table:
    header = ("run", "steps", "unsettled", "sampling", "group", "query", "sensitivity", "noise_std", "multiplier", "share")
    rows = [row for charge in facts.snapshot.charges for row in _charge_rows(charge)]
    return Table(header, capped(rows, len(header)), numbers=(1, 2, 6, 7, 8, 9))


def _charge_rows(charge: Charge) -> list[Row]:
    rows = []
    for query in charge.step.queries:
        sensitivity, noise = noise_of(query)
        ratio = multiplier(query)
        rows.append(
            Row(
                (
                    charge.run.label or "unnamed",
                    f"{charge.count:,}",
                    f"{charge.unsettled:,}",
                    phrase(charge.step.sampling),
                    query.group,
                    query_words(query),
                    "—" if sensitivity is None else exact(sensitivity),
                    _noise(query, noise),
                    "—" if ratio is None else downward(ratio, 6),
                    _short(_share(query, charge.step)),
                )
            )
        )
    return rows


def _noise(query: Query, noise: float | None) -> str:
    if noise is None:
        return "—"
    return exact(noise) if isinstance(query, GaussianSum | CorrelatedGaussianSum) else f"scale {exact(noise)}"


def _runs(facts: Facts) -> Table:
    rows = [
        Row(
            (
                run.info.label or "unnamed",
                moment(run.began),
                run.info.parameters.value,
                run.info.numerics.value,
                run.info.randomness.value,
                ", ".join(f"{name} {version}" for name, version in run.software),
            ),
            alarming=run.info.randomness.value.startswith("unsafe_"),
        )
        for run in facts.snapshot.runs
    ]
    return Table(("run", "began", "parameters", "numerics", "randomness", "software"), capped(rows, 6))


def _commands(facts: Facts) -> tuple[tuple[str, str], ...]:
    delta = exact(facts.guarantee.delta)
    return (
        (f"discreet verify LEDGER --head {facts.snapshot.head}", "The file is whole, and has this history."),
        (f"discreet account LEDGER --delta {delta}", "The claim, computed again."),
        (f"discreet account LEDGER --delta {delta} --accountant rdp", "The second opinion."),
    )
