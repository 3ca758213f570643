"""Options that several commands share, and how numbers are read."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

__all__ = ["AsJson", "Delta", "Force", "LedgerFile", "PlanFile", "finite", "whole"]


def finite(text: str | float) -> float:
    """A finite number.

    >>> finite("1e-6")
    1e-06
    """
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise typer.BadParameter(f"Expected a finite number. Got {str(text)[:80]!r}.")
    return number


def whole(text: str | int) -> int:
    """A whole number.

    >>> whole("60_000")
    60000
    """
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(f"Expected a whole number. Got {str(text)[:80]!r}.") from None


AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="One JSON object on stdout, numbers not rounded.")]
Delta: TypeAlias = Annotated[
    float | None, typer.Option("--delta", parser=finite, metavar="DELTA", help="Delta of the claim, in (0, 1).")
]
Force: TypeAlias = Annotated[bool, typer.Option("--force", help="Replace output files that exist.")]
LedgerFile: TypeAlias = Annotated[
    Path, typer.Argument(metavar="LEDGER", help="A ledger, or a JSON Lines export of one. It is only read.", show_default=False)
]
PlanFile: TypeAlias = Annotated[
    Path | None, typer.Option("--plan", metavar="FILE", help="The plan (TOML or JSON) that was to be executed.")
]
