"""The report as a document: words, tables and charts, from which every format is written.

    facts -> Document -> Markdown | HTML | JSON

A document holds texts and numbers only. Some of the texts are other people's (labels of runs, names
of groups): each format escapes all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from discreet.report.formats.stamp import Stamp

__all__ = [
    "Bars",
    "Claim",
    "Deviation",
    "Document",
    "Figure",
    "Item",
    "LineChart",
    "Section",
    "ShareBar",
    "SignatureBlock",
    "Status",
    "Table",
    "TableRow",
    "capped",
]


@dataclass(frozen=True, slots=True)
class Deviation:
    """One disagreement between ledger, plan, budget and audit.

    Args:
        severity: "wrong" for what somebody must look into, "note" for what is allowed and worth
            knowing.
        text: one or two sentences.
    """

    severity: Literal["wrong", "note"]
    text: str


@dataclass(frozen=True, slots=True)
class TableRow:
    """Cells of a table; `alarming` marks what must be looked into."""

    cells: tuple[str, ...]
    alarming: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """Header and rows; `numbers` says which columns are set to the right."""

    header: tuple[str, ...]
    rows: tuple[TableRow, ...]
    numbers: tuple[int, ...] = ()


def capped(rows: Sequence[TableRow], columns: int, limit: int = 300) -> tuple[TableRow, ...]:
    """So many rows that a page stays readable, alarming ones before others; a last row says how
    many are missing.

    >>> [row.cells for row in capped([TableRow(("a", "b"))] * 5, 2, limit=2)]
    [('a', 'b'), ('a', 'b'), ('and 3 more, in the ledger', '')]
    """
    if len(rows) <= limit:
        return tuple(rows)

    # Alarming rows must not fall off the end. Those shown keep the order of the ledger.
    alarming_first = sorted(range(len(rows)), key=lambda i: not rows[i].alarming)
    shown = sorted(alarming_first[:limit])

    missing = TableRow((f"and {len(rows) - limit:,} more, in the ledger", *[""] * (columns - 1)))

    return (*(rows[i] for i in shown), missing)


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of the headline, with what it is and what is to be said beside it."""

    name: str
    value: str
    note: str


@dataclass(frozen=True, slots=True)
class Status:
    """Whether the claim holds, in a word and in a sentence.

    Args:
        key: "holds", "deviates" (it holds, and something differs from plan or budget),
            "contradicted" or "void".
        badge: in two or three words.
        text: in a sentence.
    """

    key: Literal["holds", "deviates", "contradicted", "void"]
    badge: str
    text: str


@dataclass(frozen=True, slots=True)
class Item:
    """One item of the checklist: paragraphs, then points, then a table."""

    number: str
    title: str
    paragraphs: tuple[str, ...]
    points: tuple[str, ...] = ()
    table: Table | None = None


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page with a title: paragraphs, then points, then a table."""

    title: str
    paragraphs: tuple[str, ...]
    points: tuple[str, ...] = ()
    table: Table | None = None


@dataclass(frozen=True, slots=True)
class SignatureBlock:
    """What is signed, and by whom.

    Args:
        words: what a signature says.
        subject: (name, value) pairs, on the word of whoever gave them; a value that nobody gave is
            empty.
        identity: (name, value) pairs that name the ledger and its state, whole.
        roles: who signs; each has a place for name, date and signature.
    """

    words: str
    subject: tuple[tuple[str, str], ...]
    identity: tuple[tuple[str, str], ...]
    roles: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LineChart:
    """A line chart: points (x, y), a horizontal limit, one point that is named; `table` says the
    same in numbers.
    """

    key: str
    title: str
    words: str
    axes: tuple[str, str]
    points: tuple[tuple[float, float], ...]
    table: Table
    limit: tuple[float, str] | None = None
    named: tuple[float, float, str] | None = None


@dataclass(frozen=True, slots=True)
class ShareBar:
    """A group: its name, its share in [0, 1] or None, and what to write beside it."""

    name: str
    share: float | None
    note: str


@dataclass(frozen=True, slots=True)
class Bars:
    """Bars of one kind of step."""

    key: str
    title: str
    words: str
    bars: tuple[ShareBar, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The guarantee in numbers, for programs. Bounds are not rounded; None stands for "no such
    number".

    `epsilon_upper` is the claim, and None where it does not hold; `epsilon_accounted` is what the
    accountant computed, and None where there is no guarantee at all. `epsilon_if_fixed` stands
    beside the claim of an odometer.
    """

    holds: bool
    epsilon_upper: float | None
    epsilon_accounted: float | None
    epsilon_lower: float | None
    epsilon_if_fixed: float | None
    epsilon_rdp: float | None
    epsilon_without_amplification: float | None
    delta: float
    unit: str
    adjacency: str
    accountant: str
    sampling: tuple[str, ...]
    numerics: str
    assumptions: tuple[str, ...]
    voided_by: tuple[str, ...]
    tier: str
    hit_rate_at_1_percent: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """Everything that a report says, in the order in which it says it."""

    schema: int
    made: str
    version: str
    ledger: str
    ledger_head: str
    stamp: Stamp
    signature: SignatureBlock
    status: Status
    sentence: str
    meaning: tuple[str, ...]
    figures: tuple[Figure, ...]
    claim: Claim
    deviations: tuple[Deviation, ...]
    compared: str
    checklist: tuple[Item, ...]
    comparison: Table
    comparison_notes: tuple[str, ...]
    tradeoff: LineChart | None
    spending: LineChart | None
    chart_notes: tuple[str, ...]
    groups: tuple[Bars, ...]
    held_to: Section
    charges: Table
    runs: Table
    executions: Table
    commands: tuple[tuple[str, str], ...]
