"""`discreet account`: what a ledger, an export, a plan, or several of them cost together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

import discreet as dp
from discreet._digits import upward
from discreet.cli.answer import NO, YES, Answer, answer_table
from discreet.cli.files import read_ledger_or_plan
from discreet.cli.options import AsJson, Delta, number_option
from discreet.cli.views.attack import attack
from discreet.cli.views.words import guarantee_data, guarantee_in_words
from discreet.errors import AccountingError, DiscreetError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from discreet.ledger import Snapshot

__all__ = ["ACCOUNT_EXAMPLES", "Accountants", "account"]

ACCOUNT_EXAMPLES = """Examples

  discreet account train.ledger
  discreet account plan.toml --delta 1e-6 --accountant both
  discreet account train.ledger --epsilon 3
  discreet account train.ledger --delta 1e-6 --at-most 3 --json
  discreet account statistics.ledger train.ledger --delta 1e-6
"""


class Accountants(Enum):
    """Which analysis states the cost: one of the two, or each of them."""

    TIGHT = "tight"
    RDP = "rdp"
    BOTH = "both"


_ANALYSES: dict[Accountants, tuple[Literal["tight", "rdp"], ...]] = {
    Accountants.TIGHT: ("tight",),
    Accountants.RDP: ("rdp",),
    Accountants.BOTH: ("tight", "rdp"),
}


@dataclass(frozen=True, slots=True)
class _Source:
    """One of the files: its kind, what it holds, and what it costs alone (None where nothing can be
    stated).
    """

    path: Path
    kind: str
    snapshot: Snapshot
    epsilon: float | None = None

    @property
    def steps(self) -> int:
        return sum(count for _, count in self.snapshot.counted())

    def data(self) -> dict[str, Any]:
        return {
            "source": str(self.path),
            "kind": self.kind,
            "identity": self.snapshot.ledger or None,
            "head": self.snapshot.head or None,
            "runs": len(self.snapshot.runs),
            "steps": self.steps,
            "epsilon": self.epsilon,
        }


def account(
    source: Annotated[
        list[Path],
        typer.Argument(
            metavar="SOURCE...",
            help=(
                "A ledger, a JSON Lines export, or a plan; told apart by content. Several of one "
                "data set are added up."
            ),
            show_default=False,
        ),
    ],
    delta: Delta = None,
    epsilon: Annotated[
        float | None,
        number_option("EPSILON", "Instead of --delta: find delta at this epsilon."),
    ] = None,
    accountant: Annotated[
        Accountants, typer.Option(help="Which analysis; both are valid.")
    ] = Accountants.TIGHT,
    at_most: Annotated[
        float | None,
        number_option("EPSILON", "Exit with 1 if epsilon at --delta may be above this."),
    ] = None,
    as_json: AsJson = False,
) -> Answer:
    """State what a ledger, an export or a plan costs: epsilon at a delta, or delta at an epsilon.

    Nothing is written; a ledger is only read, and checked from its first row to its last. --delta
    can be left out where the ledger names one. Of several ledgers of one data set the cost of all
    of them together is stated. Exits with 1 if there is no guarantee.
    """
    _check_levels(delta, epsilon, at_most)
    sources = list(map(_read, source))

    # A delta that nobody gave is taken from the ledgers, if they agree on one.
    if delta is None and epsilon is None:
        delta = _common_delta(sources)

    # Several ledgers of one data set are one composition: their steps are accounted for together.
    # What that costs is not the sum of what each costs alone.
    snapshots = [entry.snapshot for entry in sources]
    together = snapshots[0] if len(snapshots) == 1 else snapshots
    guarantees = [
        dp.account(together, delta=delta, epsilon=epsilon, accountant=name)
        for name in _ANALYSES[accountant]
    ]
    lines, facts = guarantee_in_words(guarantees[0], attack(together, guarantees[0]))
    shown: list[RenderableType] = [_heading(sources), *_statement(guarantees, epsilon, lines)]

    # Of one source its cost alone is the claim itself, and is not computed a second time.
    data: dict[str, Any] = {"source": str(source[0]), "kind": sources[0].kind}
    if len(sources) > 1:
        data = {"source": None, "kind": "several"}
        sources = [_alone(entry, delta, guarantees[0]) for entry in sources]
        shown += ["", _sources_table(sources)]

    data["sources"] = [entry.data() for entry in sources]
    data["guarantees"] = list(map(guarantee_data, guarantees))

    # Without a guarantee the answer is no, whether or not there is a limit.
    code = NO if guarantees[0].voided_by else YES
    if at_most is not None:
        code, words = _within(guarantees, at_most)
        shown += words
        facts |= {"at_most": at_most, "within": code == YES}

    return Answer(data=data | facts, shown=shown, code=code, as_json=as_json)


def _check_levels(delta: float | None, epsilon: float | None, at_most: float | None) -> None:
    if delta is not None and epsilon is not None:
        raise DiscreetError(
            expected="--delta, or --epsilon, but not both",
            got="both",
            do="Give one: the other is computed.",
        )

    # A limit on epsilon can only be compared with an epsilon that is computed, at some delta.
    if at_most is not None and (epsilon is not None or at_most <= 0.0):
        got = f"--at-most {at_most!r}"
        if epsilon is not None:
            got += " with --epsilon"

        raise DiscreetError(
            expected="--at-most above 0, at a delta",
            got=got,
            do="Give both, or leave it out.",
        )


def _read(path: Path) -> _Source:
    source = read_ledger_or_plan(path)
    if not isinstance(source, dp.Ledger):
        kind = "plan" if isinstance(source, dp.Plan) else "programme"
        return _Source(path, kind, source.snapshot())

    # The snapshot is all that is needed: nobody who writes to the ledger has to wait for us.
    with source:
        return _Source(path, "ledger", source.snapshot())


def _common_delta(sources: Sequence[_Source]) -> float:
    """The delta that the ledgers name, where all name the same."""
    from discreet.report.facts.own_plans import known_delta

    deltas = {known_delta(source.snapshot) for source in sources}
    delta = deltas.pop() if len(deltas) == 1 else None

    # A single None was popped above: then no source names a delta, and nothing is left.
    if delta is None:
        raise DiscreetError(
            expected="--delta, or --epsilon, where the ledger names no delta",
            got="sources that name different ones, or none" if deltas else "neither",
            do="Give one: the other is computed.",
        )

    return delta


def _alone(source: _Source, delta: float | None, together: dp.Guarantee) -> _Source:
    """The source with what it costs by itself, where that can be stated at this delta."""
    if together.voided_by or delta is None:
        return source

    # Nothing can be stated where nothing was charged, or of a filter with another delta.
    try:
        return replace(source, epsilon=dp.account(source.snapshot, delta=delta).upper)
    except AccountingError:
        return source


def _statement(
    guarantees: Sequence[dp.Guarantee], epsilon: float | None, meaning_lines: Sequence[str]
) -> list[str]:
    """The claim in words; beside one that is void there is nothing to say."""
    first, *further = guarantees
    if first.voided_by:
        return [str(first)]

    second = [
        f"A second analysis of the same steps. {_accountant_line(guarantee)}"
        for guarantee in further
    ]
    lines = [str(first), *second, *meaning_lines]
    if epsilon is not None:
        deltas = [
            f"{epsilon!r} by {guarantee.accountant}: at most {upward(guarantee.delta)}"
            for guarantee in guarantees
        ]
        lines.append("Delta at epsilon " + "; ".join(deltas))

    return lines


def _within(guarantees: Sequence[dp.Guarantee], at_most: float) -> tuple[int, list[str]]:
    """The exit code of a claim that must not be above a limit, and the comparison in words."""
    if guarantees[0].voided_by:
        return NO, []

    # Each analysis is an upper bound on the same cost, so that the smallest one counts.
    upper = min(guarantee.upper for guarantee in guarantees)
    code, word = (YES, "Within") if upper <= at_most else (NO, "ABOVE")
    return code, [f"{word} the limit: epsilon {upward(upper)}, at most {at_most!r} is allowed."]


def _heading(sources: Sequence[_Source]) -> str:
    if len(sources) > 1:
        return f"What these {len(sources)} sources cost together, if they are about one data set:"

    # An export is a ledger, too; a plan or a programme has cost nothing yet.
    return "What the ledger says:" if sources[0].kind == "ledger" else "If executed as planned:"


def _accountant_line(guarantee: dp.Guarantee) -> str:
    # The sentence of a guarantee names its accountant in a line of its own.
    return next(line for line in str(guarantee).splitlines() if line.startswith("Accountant: "))


def _sources_table(sources: Sequence[_Source]) -> RenderableType:
    rows = answer_table("source", "kind", "identity", "runs", "steps", "epsilon alone", texts=3)

    # A plan has no identity: it is not a file that remembers what was charged.
    for source in sources:
        snapshot = source.snapshot
        rows.add_row(
            str(source.path),
            source.kind,
            f"{snapshot.ledger[:16]}..." if snapshot.ledger else "-",
            str(len(snapshot.runs)),
            str(source.steps),
            "none" if source.epsilon is None else upward(source.epsilon),
        )

    return rows
