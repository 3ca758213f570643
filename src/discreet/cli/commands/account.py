"""`discreet account`: what a ledger, an export, a plan, or several of them cost together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import discreet as dp
from discreet._digits import upward
from discreet.cli.answer import NO, YES, Answer, table
from discreet.cli.files import read_source
from discreet.cli.options import AsJson, Delta, finite
from discreet.cli.views.attack import attack
from discreet.cli.views.words import guarantee_data, meaning
from discreet.errors import AccountingError, DiscreetError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from discreet.ledger import Snapshot

__all__ = ["EXAMPLES", "Accountants", "account"]

EXAMPLES = """Examples

  discreet account train.ledger
  discreet account plan.toml --delta 1e-6 --accountant both
  discreet account train.ledger --epsilon 3
  discreet account train.ledger --delta 1e-6 --at-most 3 --json
  discreet account statistics.ledger train.ledger --delta 1e-6
"""


class Accountants(Enum):
    """Which analysis."""

    TIGHT = "tight"
    RDP = "rdp"
    BOTH = "both"


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
        typer.Option(
            parser=finite, metavar="EPSILON", help="Instead of --delta: find delta at this epsilon."
        ),
    ] = None,
    accountant: Annotated[
        Accountants, typer.Option(help="Which analysis; both are valid.")
    ] = Accountants.TIGHT,
    at_most: Annotated[
        float | None,
        typer.Option(
            parser=finite,
            metavar="EPSILON",
            help="Exit with 1 if epsilon at --delta may be above this.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> Answer:
    """State what a ledger, an export or a plan costs: epsilon at a delta, or delta at an epsilon.

    Nothing is written; a ledger is only read, and checked from its first row to its last. --delta
    can be left out where the ledger names one. Of several ledgers of one data set the cost of all
    of them together is stated. Exits with 1 if there is no guarantee.
    """
    _check_levels(delta, epsilon, at_most)
    sources = [_read(path) for path in source]
    level = delta if delta is not None or epsilon is not None else _common_delta(sources)
    snapshots = [one.snapshot for one in sources]
    together = snapshots[0] if len(snapshots) == 1 else snapshots
    names = ("tight", "rdp") if accountant is Accountants.BOTH else (accountant.value,)
    found = [dp.account(together, delta=level, epsilon=epsilon, accountant=name) for name in names]  # type: ignore[arg-type]
    void = bool(found[0].voided_by)
    lines, data = meaning(found[0], attack(together, found[0]))
    shown: list[RenderableType] = [_heading(sources), str(found[0])]
    shown += [
        f"A second analysis of the same steps. {_accountant_line(other)}"
        for other in found[1:]
        if not void
    ]
    shown += [] if void else lines
    if epsilon is not None and not void:
        shown.append(
            "Delta at epsilon "
            + "; ".join(
                f"{epsilon!r} by {one.accountant}: at most {upward(one.delta)}" for one in found
            )
        )
    if len(sources) > 1:
        sources = [_alone(one, level, void=void) for one in sources]
        shown += ["", _sources_table(sources)]
    result: dict[str, Any] = {
        "source": str(source[0]) if len(source) == 1 else None,
        "kind": sources[0].kind if len(source) == 1 else "several",
        "sources": [one.data() for one in sources],
        "guarantees": [guarantee_data(one) for one in found],
        **data,
    }
    code = NO if void else YES
    if at_most is not None:
        best = min(one.upper for one in found)
        within = best <= at_most and not void
        code = YES if within else NO
        verdict = (
            f"{'Within' if within else 'ABOVE'} the limit: epsilon {upward(best)}, at most "
            f"{at_most!r} is allowed."
        )
        shown += [] if void else [verdict]
        result |= {"at_most": at_most, "within": within}
    return Answer(data=result, shown=shown, code=code, as_json=as_json)


def _check_levels(delta: float | None, epsilon: float | None, at_most: float | None) -> None:
    if delta is not None and epsilon is not None:
        do = "Give one: the other is computed."
        raise DiscreetError(expected="--delta, or --epsilon, but not both", got="both", do=do)
    if at_most is not None and (epsilon is not None or at_most <= 0.0):
        got = f"--at-most {at_most!r}" + (" with --epsilon" if epsilon is not None else "")
        raise DiscreetError(
            expected="--at-most above 0, at a delta", got=got, do="Give both, or leave it out."
        )


def _read(path: Path) -> _Source:
    found = read_source(path)
    kind = (
        "ledger"
        if isinstance(found, dp.Ledger)
        else "plan"
        if isinstance(found, dp.Plan)
        else "programme"
    )
    snapshot = found.snapshot()
    if isinstance(found, dp.Ledger):
        found.close()
    return _Source(path, kind, snapshot)


def _common_delta(sources: Sequence[_Source]) -> float:
    """The delta that the ledgers name, where all name the same."""
    from discreet.report.facts.own_plans import known_delta

    deltas = {known_delta(one.snapshot) for one in sources}
    level = deltas.pop() if len(deltas) == 1 else None
    if level is None:
        raise DiscreetError(
            expected="--delta, or --epsilon, where the ledger names no delta",
            got="neither" if not deltas else "sources that name different ones, or none",
            do="Give one: the other is computed.",
        )
    return level


def _alone(one: _Source, delta: float | None, *, void: bool) -> _Source:
    """The source with what it costs by itself, where that can be stated at this delta."""
    if void or delta is None:
        return one
    try:
        return _Source(
            one.path, one.kind, one.snapshot, dp.account(one.snapshot, delta=delta).upper
        )
    except AccountingError:  # nothing was charged, or a filter with another delta
        return one


def _heading(sources: Sequence[_Source]) -> str:
    if len(sources) > 1:
        return f"What these {len(sources)} sources cost together, if they are about one data set:"
    return "What the ledger says:" if sources[0].kind == "ledger" else "If executed as planned:"


def _accountant_line(guarantee: dp.Guarantee) -> str:
    return next(line for line in str(guarantee).splitlines() if line.startswith("Accountant: "))


def _sources_table(sources: Sequence[_Source]) -> RenderableType:
    made = table("source", "kind", "identity", "runs", "steps", "epsilon alone", texts=3)
    for one in sources:
        alone = "none" if one.epsilon is None else upward(one.epsilon)
        identity = f"{one.snapshot.ledger[:16]}..." if one.snapshot.ledger else "-"
        made.add_row(
            str(one.path), one.kind, identity, str(len(one.snapshot.runs)), str(one.steps), alone
        )
    return made
