"""The record of one audit: what was measured, how, how sure it is, and of which ledger."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, fields
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any

from discreet import _validate as check
from discreet._files import read_file, write_new
from discreet.errors import ParameterError
from discreet.units import Adjacency, Unit

__all__ = ["SCHEMA", "Audit"]

SCHEMA = 2
"""Version of the file. Another one is refused, never guessed at."""

_HEAD = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """A measured lower bound on epsilon. It can refute a claim; it can never prove one.

    Guarantee: none of its own. It says: unless an event happened that has probability at most 1 -
    confidence, what was audited is not (epsilon, delta)-differentially private for any epsilon
    below `lower`, for this unit and adjacency; nor, if what `assumes` says is true, for any below
    `assumed_lower`.

    Args:
        method: how it was measured, in a few words; public.
        lower: the bound on epsilon, at least 0.
        delta: for which the bound holds, in [0, 1).
        confidence: of the bound, in (0, 1), corrected for everything that was tried.
        canaries: records (or units) that were put in or left out at random.
        trials: independent runs that were attacked; 1 if a single run was audited.
        unit, adjacency: between which two data sets the attack told.
        ledger_head: `ledger.head()` of what was audited.
        made: date and time of the audit, ISO 8601 with its offset from UTC.
        assumed_lower: another bound, that holds under an assumption besides; None if there is none.
            The confidence is that of both bounds together.
        assumes: the assumption, in words; empty if there is none.

    >>> audit = Audit(method="one run", lower=0.7, delta=1e-6, confidence=0.95, canaries=1000, trials=1, unit=Unit.EXAMPLE,
    ...     adjacency=Adjacency.ADD_OR_REMOVE, ledger_head="ab" * 32, made="2026-01-31T12:00:00+00:00")
    >>> Audit.from_json(audit.to_json()) == audit
    True
    """

    method: str
    lower: float
    delta: float
    confidence: float
    canaries: int
    trials: int
    unit: Unit
    adjacency: Adjacency
    ledger_head: str
    made: str
    assumed_lower: float | None = None
    assumes: str = ""

    def __post_init__(self) -> None:
        owner = "Audit"
        if bool(self.assumes) != (self.assumed_lower is not None):
            expected = (
                "the words of an assumption where there is a bound under it, and nowhere else"
            )
            raise ParameterError(
                owner=owner, name="assumes", expected=expected, got=f"{self.assumes!r:.80}"
            )
        if not _HEAD.fullmatch(check.label(owner, "ledger_head", self.ledger_head)):
            expected = "the digest that ledger.head() gives: 64 digits of 0-9a-f"
            raise ParameterError(
                owner=owner, name="ledger_head", expected=expected, got=repr(self.ledger_head)
            )
        check.member(owner, "unit", self.unit, (Unit,))
        for name, value in (
            ("method", check.label(owner, "method", self.method)),
            ("lower", _bound("lower", self.lower)),
            (
                "assumed_lower",
                None if self.assumed_lower is None else _bound("assumed_lower", self.assumed_lower),
            ),
            ("assumes", check.label(owner, "assumes", self.assumes, empty=True)),
            ("delta", check.fraction(owner, "delta", self.delta, zero=True)),
            ("confidence", check.fraction(owner, "confidence", self.confidence)),
            ("canaries", check.whole(owner, "canaries", self.canaries, least=1)),
            ("trials", check.whole(owner, "trials", self.trials, least=1)),
            ("adjacency", check.instance(owner, "adjacency", self.adjacency, Adjacency)),
            ("made", _date(self.made)),
        ):
            object.__setattr__(self, name, value)

    def to_json(self) -> str:
        """The audit as JSON; `from_json` gives an equal one."""
        table = {"schema": SCHEMA} | {
            field.name: _plain(getattr(self, field.name)) for field in fields(self)
        }
        return json.dumps(table, indent=2, allow_nan=False, ensure_ascii=True) + "\n"

    @property
    def strongest(self) -> float:
        """The larger of the bounds."""
        return max(self.lower, self.assumed_lower or 0.0)

    @classmethod
    def from_json(cls, text: str) -> Audit:
        """The audit behind `to_json`.

        Raises:
            ParameterError: no JSON, another schema, a field too many or too few, a key twice, a
                value out of its range.
        """
        table = _parsed(text)
        version = table.pop("schema", None)
        if type(version) is not int or version != SCHEMA:
            raise _wrong(
                "schema",
                f"{SCHEMA}, in a file that Audit.save or `discreet audit --output` wrote",
                repr(version)[:80],
            )
        names = {field.name for field in fields(cls)}
        if table.keys() != names:
            unknown, missing = sorted(table.keys() - names), sorted(names - table.keys())
            raise _wrong(
                "fields", ", ".join(sorted(names)), f"unknown {unknown}, missing {missing}"[:200]
            )
        adjacency = next((kind for kind in Adjacency if kind.value == table["adjacency"]), None)
        if adjacency is None:
            raise _wrong(
                "adjacency",
                f"one of {', '.join(kind.value for kind in Adjacency)}",
                repr(table["adjacency"])[:80],
            )
        return cls(**table | {"adjacency": adjacency, "unit": Unit(table["unit"])})

    def save(self, path: str | Path) -> None:
        """Write a new JSON file, whole or not at all. What was measured is never overwritten."""
        write_new("Audit.save", path, self.to_json())

    @classmethod
    def load(cls, path: str | Path) -> Audit:
        """Read a JSON file."""
        return cls.from_json(read_file("Audit.load", path))


def _bound(name: str, value: object) -> float:
    number = check.real("Audit", name, value)
    if number < 0.0:
        raise _wrong(name, "at least 0", repr(number))
    return number


def _date(value: object) -> str:
    text = check.label("Audit", "made", value)
    try:
        known = datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        known = False
    if not known:
        raise _wrong("made", "a date and time such as 2026-01-31T12:00:00+00:00", repr(text)[:80])
    return text


def _plain(value: object) -> object:
    match value:
        case Enum():
            return value.value
        case Unit():
            return value.name
        case _:
            return value


def _parsed(text: object) -> dict[str, Any]:
    if not isinstance(text, str):
        raise _wrong("text", "a text", type(text).__name__)
    try:
        table = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except (ValueError, RecursionError) as wrong:
        raise _wrong("text", "a JSON object", str(wrong)[:200]) from None
    if not isinstance(table, dict):
        raise _wrong("text", "a JSON object", type(table).__name__)
    return table


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError("a key stands twice")
    return table


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} has no place in an audit")


def _wrong(name: str, expected: str, got: str) -> ParameterError:
    return ParameterError(owner="Audit", name=name, expected=expected, got=got)
