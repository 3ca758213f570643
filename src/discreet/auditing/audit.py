"""The record of one audit: what was measured, how, how sure it is, and of which ledger."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

from discreet import _strict_json
from discreet import _validate as check
from discreet._files import read_file, write_new
from discreet.errors import ParameterError
from discreet.units import Adjacency, Unit

__all__ = ["AUDIT_SCHEMA", "Audit"]

AUDIT_SCHEMA = 2
"""Version of the file. Another one is refused, never guessed at."""


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

    >>> audit = Audit(
    ...     method="one run",
    ...     lower=0.7,
    ...     delta=1e-6,
    ...     confidence=0.95,
    ...     canaries=1000,
    ...     trials=1,
    ...     unit=Unit.EXAMPLE,
    ...     adjacency=Adjacency.ADD_OR_REMOVE,
    ...     ledger_head="ab" * 32,
    ...     made="2026-01-31T12:00:00+00:00",
    ... )
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

        # A bound whose assumption is not named would be read as one without.
        assumed_lower = self.assumed_lower
        if bool(self.assumes) != (assumed_lower is not None):
            raise ParameterError(
                owner=owner,
                name="assumes",
                expected=(
                    "the words of an assumption where there is a bound under it, and nowhere else"
                ),
                got=f"{self.assumes!r:.80}",
            )

        if assumed_lower is not None:
            assumed_lower = check.not_negative(owner, "assumed_lower", assumed_lower)

        # Between which data sets the attack told: without it a bound cannot be compared with a
        # claim.
        check.member(owner, "unit", self.unit, (Unit,))
        check.instance(owner, "adjacency", self.adjacency, Adjacency)

        # Stored as checked: equal numbers make equal records, whatever type they came in.
        for name, value in (
            ("method", check.label(owner, "method", self.method)),
            ("lower", check.not_negative(owner, "lower", self.lower)),
            ("delta", check.fraction(owner, "delta", self.delta, zero=True)),
            ("confidence", check.fraction(owner, "confidence", self.confidence)),
            ("canaries", check.whole(owner, "canaries", self.canaries, least=1)),
            ("trials", check.whole(owner, "trials", self.trials, least=1)),
            ("ledger_head", check.digest(owner, "ledger_head", self.ledger_head)),
            ("made", check.timestamp(owner, "made", self.made)),
            ("assumed_lower", assumed_lower),
            ("assumes", check.label(owner, "assumes", self.assumes, empty=True)),
        ):
            object.__setattr__(self, name, value)

    @property
    def strongest(self) -> float:
        """The larger of the two bounds."""
        # Epsilon is never below 0, so that 0 is what a missing bound says.
        return max(self.lower, self.assumed_lower or 0.0)

    def to_json(self) -> str:
        """Write the audit as JSON; `from_json` gives an equal one."""
        # Fields go by their own names; those that are no numbers or texts are replaced.
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        texts = {"unit": self.unit.name, "adjacency": self.adjacency.value}
        return _strict_json.to_text({"schema": AUDIT_SCHEMA} | values | texts)

    @classmethod
    def from_json(cls, text: str) -> Audit:
        """Read an audit from what `to_json` wrote.

        Raises:
            ParameterError: no JSON, another schema, a field too many or too few, a key twice, a
                value out of its range.
        """
        table = _strict_json.read_version(
            "Audit",
            text,
            schema=AUDIT_SCHEMA,
            names=[field.name for field in fields(cls)],
            writer="Audit.save or `discreet audit --output`",
        )

        # What is left is checked by the constructor, as if it had been typed in.
        table["unit"] = Unit(table["unit"])
        table["adjacency"] = _strict_json.member_named(
            "Audit", "adjacency", Adjacency, table["adjacency"]
        )
        return cls(**table)

    def save(self, path: str | Path) -> None:
        """Write a new JSON file, whole or not at all. What was measured is never overwritten."""
        write_new("Audit.save", path, self.to_json())

    @classmethod
    def load(cls, path: str | Path) -> Audit:
        """Read a JSON file that `save` wrote."""
        return cls.from_json(read_file("Audit.load", path))
