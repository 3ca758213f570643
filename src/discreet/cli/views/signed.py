"""A report against the ledger that it is about: does the ledger still say what was signed?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from discreet._digits import upward
from discreet.cli.answer import NO, YES, Answer
from discreet.errors import DiscreetError

if TYPE_CHECKING:
    from discreet.ledger import Snapshot
    from discreet.ledger.storage.store import StoredLine
    from discreet.report.formats.stamp import Stamp
    from discreet.units import Guarantee

__all__ = ["Comparison", "compare"]

# Relative: the last digits of an epsilon depend on the processor that computed it.
_SAME = 1e-4


@dataclass(frozen=True, slots=True)
class Comparison:
    """What comparing a report with its ledger showed.

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

    def answer(self, name: str) -> Answer:
        """Whether the ledger says what the report says, for people and for scripts.

        Args:
            name: of the report's file.
        """
        # Both epsilons are there for scripts: that they agree is said up to `_SAME` only.
        agrees = not self.problems
        data = {
            "report": name,
            "agrees": agrees,
            "problems": self.problems,
            "head": self.stamp.head,
            "epsilon_stated": self.stamp.epsilon,
            "epsilon_recomputed": self.recomputed,
            "delta": self.stamp.delta,
            "rows_added_since": self.added,
        }
        code = YES if agrees else NO
        return Answer(data={"report": data}, shown=self._sentences(name), code=code)

    def _sentences(self, name: str) -> list[str]:
        lines = [f"DEVIATION: {problem}" for problem in self.problems]
        if self.added:
            rows = "1 row was" if self.added == 1 else f"{self.added} rows were"
            lines.append(
                f"{rows} added to the ledger since {name} was made; the claim was computed "
                "from the rows before them."
            )

        if self.problems:
            return [*lines, f"The ledger does NOT say what {name} says."]

        claim = "no guarantee"
        if self.recomputed is not None:
            claim = f"epsilon {upward(self.recomputed)} at delta {self.stamp.delta!r}"

        return [
            *lines,
            f"The ledger contains the head of {name} and says what it says: {claim}.",
            "Names, and what was written on it by hand, no ledger can confirm.",
        ]


def compare(page: str, lines: list[StoredLine]) -> Comparison:
    """Compare a report with the rows of a ledger that was checked before.

    Raises:
        DiscreetError: the page is no report.
    """
    import discreet as dp
    from discreet.report.formats.stamp import read_stamp

    stamp = read_stamp(page)
    problems = list(stamp.contradictions(page))

    # The claim is computed again from the rows that the report was made of: later rows are no
    # contradiction, unless they take the guarantee away.
    before, after = _until(lines, stamp.head), _until(lines, lines[-1][1].hex())
    if before is None:
        problems.append(
            f"The head of the report, {stamp.head[:16]}..., is not in this ledger: another "
            "one, or rewritten."
        )
        return Comparison(stamp, tuple(problems), None, None)

    snapshot, rows = before
    added = len(lines) - rows
    try:
        claim = dp.account(snapshot, delta=stamp.delta, limit=stamp.limit)
    except DiscreetError as refused:  # such as a delta that the ledger's filter does not have
        problems.append(f"What the report says cannot be computed from the rows: {refused}")
        return Comparison(stamp, tuple(problems), None, added)

    problems += _differences(stamp, snapshot, claim)
    new_marks = set(() if after is None else after[0].marks) - set(snapshot.marks)
    if new_marks:
        problems.append(
            f"Since the report was made the ledger was marked {', '.join(sorted(new_marks))}: "
            "there is no guarantee any more."
        )

    epsilon = None if claim.voided_by or math.isinf(claim.upper) else claim.upper
    return Comparison(stamp, tuple(problems), epsilon, added)


def _until(lines: list[StoredLine], head: str) -> tuple[Snapshot, int] | None:
    """What the ledger held when this was its head, and in how many rows; None if it never was."""
    from discreet.ledger.storage.book import Book

    # Read as when the ledger was opened, row by row: the book is right at every head on the way.
    book = Book()
    for body, digest in lines:
        book.read(body, digest)
        if digest.hex() == head:
            return book.snapshot(), book.rows

    return None


def _differences(stamp: Stamp, snapshot: Snapshot, claim: Guarantee) -> list[str]:
    """Where the claim that was computed again is not the one that is stated."""
    stated = math.inf if stamp.epsilon is None else stamp.epsilon
    pairs = {
        "unit": (stamp.unit, claim.unit.name),
        "adjacency": (stamp.adjacency, claim.adjacency.value),
        "ledger": (stamp.ledger, snapshot.ledger),
        "marks": (stamp.voided_by, ", ".join(claim.voided_by)),
    }

    # `isclose` calls two infinities equal, and an infinity and a number different.
    if not math.isclose(stated, claim.upper, rel_tol=_SAME):
        pairs = {"epsilon": (_epsilon(stated), _epsilon(claim.upper))} | pairs

    return [
        f"The report says {name} {in_report}; the rows say {in_rows}."
        for name, (in_report, in_rows) in pairs.items()
        if name == "epsilon" or in_report != in_rows
    ]


def _epsilon(value: float) -> str:
    return "none" if math.isinf(value) else upward(value)
