"""The ledger of a run: the user's own, or one that the run opens and closes."""

from __future__ import annotations

import os

from discreet.errors import ParameterError
from discreet.ledger import Ledger
from discreet.ledger.rules import HasTerms

__all__ = ["opened_ledger"]


def opened_ledger(
    ledger: Ledger | str | os.PathLike[str], budget: HasTerms | None
) -> tuple[bool, Ledger]:
    """Whether the ledger is the run's own to close, and the ledger."""
    if not isinstance(ledger, Ledger):
        return True, Ledger.open(ledger, budget=budget)
    if budget is not None:
        expected, got = "given with the path of a ledger", "given with a ledger that is open"
        do = "Open that one with budget=...: Ledger.open(path, budget=...)."
        raise ParameterError(owner="PrivateRun", name="budget", expected=expected, got=got, do=do)
    return False, ledger
