"""`discreet account`: what a ledger, an export or a plan costs."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

import discreet as dp
from discreet.cli.answer import NO, YES, Answer
from discreet.cli.files import read_source
from discreet.cli.options import AsJson, Delta, finite
from discreet.cli.words import attack, guarantee_data, meaning, up
from discreet.errors import DiscreetError

__all__ = ["EXAMPLES", "Accountants", "account"]

EXAMPLES = """[bold]Examples[/bold]

\b
  discreet account train.ledger --delta 1e-6
  discreet account plan.toml --delta 1e-6 --accountant both
  discreet account train.ledger --epsilon 3              # delta at this epsilon
  discreet account train.ledger --delta 1e-6 --at-most 3 --json   # exits with 1 if it is more
"""


class Accountants(Enum):
    """Which analysis."""

    TIGHT = "tight"
    RDP = "rdp"
    BOTH = "both"


def account(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SOURCE", help="A ledger, a JSON Lines export, or a plan; told apart by content.", show_default=False
        ),
    ],
    delta: Delta = None,
    epsilon: Annotated[
        float | None, typer.Option(parser=finite, metavar="EPSILON", help="Instead of --delta: find delta at this epsilon.")
    ] = None,
    accountant: Annotated[Accountants, typer.Option(help="Which analysis; both are valid.")] = Accountants.TIGHT,
    at_most: Annotated[
        float | None,
        typer.Option(parser=finite, metavar="EPSILON", help="Exit with 1 if epsilon at --delta may be above this."),
    ] = None,
    as_json: AsJson = False,
) -> Answer:
    """State what a ledger, an export or a plan costs: epsilon at a delta, or delta at an epsilon.

    Nothing is written; a ledger is only read, and checked from its first row to its last.
    """
    if (delta is None) == (epsilon is None):
        got = "neither" if delta is None else "both"
        raise DiscreetError(expected="--delta, or --epsilon, but not both", got=got, do="Give one: the other is computed.")
    if at_most is not None and (delta is None or at_most <= 0.0):
        expected = "--at-most above 0, together with --delta"
        raise DiscreetError(
            expected=expected, got=f"--at-most {at_most!r}" + (" without --delta" if delta is None else ""), do="Give both."
        )
    read = read_source(source)
    names = ("tight", "rdp") if accountant is Accountants.BOTH else (accountant.value,)
    found = [dp.account(read, delta=delta, epsilon=epsilon, accountant=name) for name in names]  # type: ignore[arg-type]
    kind = "ledger" if isinstance(read, dp.Ledger) else "plan" if isinstance(read, dp.Plan) else "programme"
    lines, data = meaning(found[0], attack(read))
    shown = [f"{'What the ledger says:' if kind == 'ledger' else 'If executed as planned:'}", str(found[0])]
    shown += [f"A second analysis of the same steps. {str(other).splitlines()[-2]}" for other in found[1:]]
    shown += lines
    if epsilon is not None:
        shown.append(
            "Delta at epsilon " + "; ".join(f"{epsilon!r} by {one.accountant}: at most {up(one.delta)}" for one in found)
        )
    result: dict[str, Any] = {"source": str(source), "kind": kind, "guarantees": [guarantee_data(one) for one in found], **data}
    code = YES
    if at_most is not None:
        best = min(one.upper for one in found)
        within = best <= at_most and not found[0].voided_by
        code = YES if within else NO
        shown.append(f"{'Within' if within else 'ABOVE'} the limit: epsilon {up(best)}, at most {at_most!r} is allowed.")
        result |= {"at_most": at_most, "within": within}
    return Answer(data=result, shown=shown, code=code, as_json=as_json)
