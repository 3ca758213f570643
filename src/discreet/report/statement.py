"""The privacy statement in Markdown: the claim, what it depends on, and every charge it was computed from."""

from __future__ import annotations

import math
from dataclasses import fields

from discreet.accounting import account, hit_rate, profile_of, tier
from discreet.ledger import Charge, Ledger, Query, Sampling
from discreet.units import Guarantee

__all__ = ["statement"]

_FALSE_POSITIVES = 0.01


def statement(ledger: Ledger, *, delta: float) -> str:
    """A page about what happened to the data of one ledger.

    Args:
        ledger: read from its first row and checked before anything is said.
        delta: of the claim.
    """
    ledger.verify()
    guarantee = account(ledger, delta=delta)
    second = account(ledger, delta=delta, accountant="rdp")
    reading = tier(guarantee)
    hits = hit_rate(profile_of(ledger), false_positive_rate=_FALSE_POSITIVES)
    lines = [
        "# Privacy statement",
        "",
        *(f"> {line}" for line in str(guarantee).splitlines()),
        "",
        f"A second analysis of the same steps. {str(second).splitlines()[1]}",
        "",
        "## What it means",
        "",
        f"* {reading.tier.value} [Ponomareva2023, section 5.2.1]" + "".join(f"; {remark}" for remark in reading.remarks),
        f"* {_attack(guarantee, hits)}",
        "",
        "## What was charged",
        "",
        "| run | how often | of these unsettled | sampling | queries |",
        "|---|---|---|---|---|",
        *map(_row, ledger.charges()),
        "",
        "An unsettled step was reserved by a run that is still going or was killed; it counts in full.",
        "",
        "## Runs",
        "",
        *(
            f"* {run.info.label or 'unnamed'}: began {run.began}, parameters {run.info.parameters.value}, randomness "
            f"{run.info.randomness.value}, " + ", ".join(f"{name} {version}" for name, version in run.software)
            for run in ledger.runs()
        ),
        "",
        f"Head of the ledger (keep it elsewhere to notice a rewritten history): `{ledger.head()}`",
        "",
    ]
    return "\n".join(lines)


def _attack(guarantee: Guarantee, hits: float) -> str:
    who = f"Whoever tries to tell from the releases whether one {guarantee.unit} was in the data"
    wrong = f"and is wrong about at most {_FALSE_POSITIVES:.0%} of those that were not"
    return f"{who}, {wrong}, finds at most {math.ceil(1000 * hits) / 10:g} % of those that were."


def _row(charge: Charge) -> str:
    queries = "; ".join(map(_words, charge.step.queries))
    label = charge.run.label or "unnamed"
    return f"| {label} | {charge.count:,} | {charge.unsettled:,} | {_words(charge.step.sampling)} | {queries} |"


def _words(event: Sampling | Query) -> str:
    values = ", ".join(f"{field.name} {getattr(event, field.name)}" for field in fields(event))
    return f"{type(event).__name__}({values})"
