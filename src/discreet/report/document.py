"""The report as a document: words, tables and charts, from which every format is written.

    facts -> Document -> Markdown | HTML | JSON

A document holds texts and numbers only. Some of the texts are other people's (labels of runs, names of groups): each format
escapes all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from discreet.report.deviations import Deviation

__all__ = ["Bar", "Bars", "Claim", "Document", "Figure", "Item", "Line", "Row", "Status", "Table"]


@dataclass(frozen=True, slots=True)
class Row:
    """Cells of a table; `alarming` marks what must be looked into."""

    cells: tuple[str, ...]
    alarming: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """Header and rows; `numbers` says which columns are set to the right."""

    header: tuple[str, ...]
    rows: tuple[Row, ...]
    numbers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of the headline, with what it is and what is to be said beside it."""

    name: str
    value: str
    note: str


@dataclass(frozen=True, slots=True)
class Status:
    """Whether the claim holds.

    Args:
        key: "holds", "deviates" (it holds, and something differs from plan or budget), "contradicted" or "void".
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
class Line:
    """A line chart: points (x, y), a horizontal limit, one point that is named; `table` says the same in numbers."""

    key: str
    title: str
    words: str
    axes: tuple[str, str]
    points: tuple[tuple[float, float], ...]
    table: Table
    limit: tuple[float, str] | None = None
    named: tuple[float, float, str] | None = None


@dataclass(frozen=True, slots=True)
class Bar:
    """A group: its name, its share in [0, 1] (None where it has none), and what to write beside it."""

    name: str
    share: float | None
    note: str


@dataclass(frozen=True, slots=True)
class Bars:
    """Bars of one kind of step."""

    key: str
    title: str
    words: str
    bars: tuple[Bar, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The guarantee in numbers, for programs. Upper bounds are not rounded; None stands for "no such number"."""

    holds: bool
    epsilon_upper: float
    epsilon_lower: float
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
    ledger_head: str
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
    tradeoff: Line | None
    spending: Line | None
    chart_notes: tuple[str, ...]
    groups: tuple[Bars, ...]
    charges: Table
    runs: Table
    commands: tuple[tuple[str, str], ...]
