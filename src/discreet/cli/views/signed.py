"""A report against the ledger that it is about: does the ledger still say what was signed?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from discreet._digits import upward
from discreet.errors import DiscreetError

if TYPE_CHECKING:
    from discreet.ledger import Snapshot
    from discreet.ledger.storage.store import Line
    from discreet.report.formats.stamp import Stamp
    from discreet.units import Guarantee

__all__ = ["Comparison", "compare"]

_SAME = 1e-4  # relative: the last digits of an epsilon depend on the processor


@dataclass(frozen=True, slots=True)
class Comparison:
    """What was found.

    Args:
        stamp: what the report says.
        problems: why the ledger does not say what the report says; none if it does.
        recomputed: epsilon from the rows up to the report's head; None where that has none.
        added: rows that were added since.
    """

    stamp: Stamp
    problems: tuple[str, ...]
    recomputed: float | None
    added: int | None

    @property
    def agrees(self) -> bool:
        """Whether the ledger says what the report says."""
        return not self.problems

    def data(self, name: str) -> dict[str, Any]:
        """For scripts."""
        return {
            "report": name,
            "agrees": self.agrees,
            "problems": self.problems,
            "head": self.stamp.head,
            "epsilon_stated": self.stamp.epsilon,
            "epsilon_recomputed": self.recomputed,
            "delta": self.stamp.delta,
            "rows_added_since": self.added,
        }

    def shown(self, name: str) -> list[str]:
        """For people."""
        lines = [f"DEVIATION: {problem}" for problem in self.problems]
        if self.added:
            rows = "1 row was" if self.added == 1 else f"{self.added} rows were"
            lines.append(
                f"{rows} added to the ledger since {name} was made; the claim was computed "
                "from the rows before them."
            )
        if self.agrees:
            claim = (
                "no guarantee"
                if self.recomputed is None
                else f"epsilon {upward(self.recomputed)} at delta {self.stamp.delta!r}"
            )
            lines.append(f"The ledger contains the head of {name} and says what it says: {claim}.")
            lines.append("Names, and what was written on it by hand, no ledger can confirm.")
        else:
            lines.append(f"The ledger does NOT say what {name} says.")
        return lines


def compare(page: str, lines: list[Line]) -> Comparison:
    """Compare a report with the rows of a ledger that was checked before.

    Raises:
        DiscreetError: the page is no report.
    """
    from discreet.report.formats.stamp import read_stamp

    stamp = read_stamp(page)
    problems = list(stamp.contradictions(page))
    before, after = _until(lines, stamp.head), _until(lines, lines[-1][1].hex())
    if before is None:
        problems.append(
            f"The head of the report, {stamp.head[:16]}..., is not in this ledger: another "
            "one, or rewritten."
        )
        return Comparison(stamp, tuple(problems), None, None)
    then, rows = before
    try:
        claim = _claim(then, stamp)
    except DiscreetError as refused:  # such as a delta that the ledger's filter does not have
        problems.append(f"What the report says cannot be computed from the rows: {refused}")
        return Comparison(stamp, tuple(problems), None, len(lines) - rows)
    problems += _differences(stamp, then, claim)
    if after is not None and set(after[0].marks) > set(then.marks):
        marks = ", ".join(sorted(set(after[0].marks) - set(then.marks)))
        problems.append(
            f"Since the report was made the ledger was marked {marks}: there is no guarantee "
            "any more."
        )
    epsilon = None if claim.voided_by or math.isinf(claim.upper) else claim.upper
    return Comparison(stamp, tuple(problems), epsilon, len(lines) - rows)


def _until(lines: list[Line], head: str) -> tuple[Snapshot, int] | None:
    """What the ledger held when this was its head, and in how many rows; None if it never was."""
    from discreet.ledger.storage.book import Book

    book = Book()
    for body, digest in lines:
        book.read(body, digest)
        if digest.hex() == head:
            return book.snapshot(), book.rows
    return None


def _claim(snapshot: Snapshot, stamp: Stamp) -> Guarantee:
    import discreet as dp

    return dp.account(snapshot, delta=stamp.delta, limit=stamp.limit)


def _differences(stamp: Stamp, snapshot: Snapshot, claim: Guarantee) -> list[str]:
    """Where the claim that was computed again is not the one that is stated."""
    epsilon = math.inf if stamp.epsilon is None else stamp.epsilon
    same = epsilon == claim.upper or (
        math.isfinite(claim.upper) and math.isclose(epsilon, claim.upper, rel_tol=_SAME)
    )
    pairs = (
        ("epsilon", _epsilon(epsilon), _epsilon(claim.upper), same),
        ("unit", stamp.unit, claim.unit.name, stamp.unit == claim.unit.name),
        (
            "adjacency",
            stamp.adjacency,
            claim.adjacency.value,
            stamp.adjacency == claim.adjacency.value,
        ),
        ("ledger", stamp.ledger, snapshot.ledger, stamp.ledger == snapshot.ledger),
        (
            "marks",
            stamp.voided_by,
            ", ".join(claim.voided_by),
            stamp.voided_by == ", ".join(claim.voided_by),
        ),
    )
    return [
        f"The report says {name} {stated}; the rows say {found}."
        for name, stated, found, equal in pairs
        if not equal
    ]


def _epsilon(value: float) -> str:
    return "none" if math.isinf(value) else upward(value)
