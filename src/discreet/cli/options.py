"""Options that several commands share, and how numbers are read."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from discreet.errors import DiscreetError

__all__ = [
    "AsJson",
    "BudgetDelta",
    "BudgetEpsilon",
    "Delta",
    "Force",
    "LedgerFile",
    "PlanFile",
    "SavedPlan",
    "count_option",
    "finite_option",
    "flag",
    "number_option",
    "refuse_budget",
    "whole_option",
]


def finite_option(text: str | float) -> float:
    """Read a finite number from the command line.

    >>> finite_option("1e-6")
    1e-06
    """
    # "nan" and "inf" are numbers to Python; to an option they are mistakes.
    try:
        number = float(text)
    except ValueError:
        number = math.nan

    # Typer hands over a default as well, which is a number already: `float` takes both.
    if not math.isfinite(number):
        raise typer.BadParameter(f"Expected a finite number. Got {str(text)[:80]!r}.")

    return number


def whole_option(text: str | int) -> int:
    """Read a whole number from the command line.

    >>> whole_option("60_000")
    60000
    """
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(f"Expected a whole number. Got {str(text)[:80]!r}.") from None


def flag(name: str, text: str) -> Any:
    """An option without a value.

    Newer typers show the type of every option, of a flag too (`--json <bool>`), as if it took one;
    an empty metavar says that it takes none.
    """
    return typer.Option(name, help=text, metavar="")


def number_option(metavar: str, text: str, *, panel: str | None = None) -> Any:
    """An option that takes a finite number.

    Args:
        metavar: what the help shows in the place of the number.
        text: what the help says about it.
        panel: title of the part of the help in which it stands; left out, among the others.
    """
    return typer.Option(
        parser=finite_option,
        metavar=metavar,
        help=text,
        rich_help_panel=panel,
    )


def count_option(text: str, *, panel: str | None = None) -> Any:
    """An option that takes a whole number; for `text` and `panel` see `number_option`."""
    return typer.Option(
        parser=whole_option,
        metavar="N",
        help=text,
        rich_help_panel=panel,
    )


AsJson: TypeAlias = Annotated[
    bool, flag("--json", "One JSON object on stdout, numbers not rounded.")
]
Delta: TypeAlias = Annotated[
    float | None,
    number_option("DELTA", "Delta of the claim, in (0, 1); by default the ledger's own."),
]
Force: TypeAlias = Annotated[bool, flag("--force", "Replace output files that exist.")]
SavedPlan: TypeAlias = Annotated[
    Path | None,
    typer.Option("--save", metavar="FILE", help="Write the plan to a .toml or .json file."),
]
LedgerFile: TypeAlias = Annotated[
    Path,
    typer.Argument(
        metavar="LEDGER",
        help="A ledger, or a JSON Lines export of one. It is only read.",
        show_default=False,
    ),
]
PlanFile: TypeAlias = Annotated[
    Path | None,
    typer.Option("--plan", metavar="FILE", help="The plan (TOML or JSON) that was to be executed."),
]
# Options of earlier versions, refused with an explanation; see `refuse_budget`.
BudgetEpsilon: TypeAlias = Annotated[str | None, typer.Option("--budget-epsilon", hidden=True)]
BudgetDelta: TypeAlias = Annotated[str | None, typer.Option("--budget-delta", hidden=True)]


def refuse_budget(epsilon: str | None, delta: str | None) -> None:
    """Refuse a budget that is named afterwards, whatever it is."""
    if epsilon is None and delta is None:
        return

    raise DiscreetError(
        expected="the budget that the ledger itself is held to",
        got="one named afterwards, by --budget-epsilon or --budget-delta, which proves nothing",
        do="A budget is a row of the ledger, written before its first charge: leave the option "
        "out. `discreet ledger show` says what the ledger is held to.",
    )
