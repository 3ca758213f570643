"""The ledger of a run: the user's own, or one that the run opens and closes; and its terms."""

from __future__ import annotations

import os

from discreet.errors import BudgetExceeded, LedgerMisuse, ParameterError
from discreet.ledger import Ledger, Rule
from discreet.ledger.rules import HasTerms
from discreet.plan import Plan
from discreet.units import Parameters

__all__ = ["check_terms", "opened_ledger"]


def opened_ledger(
    ledger: Ledger | str | os.PathLike[str], budget: HasTerms | None
) -> tuple[bool, Ledger]:
    """Open the ledger of a run; say whether the run is to close it, and return it."""
    # A path: the run opens the ledger, and closes it when it is over.
    if not isinstance(ledger, Ledger):
        return True, Ledger.open(ledger, budget=budget)

    # An open ledger is held to its own terms, which nobody may change from here.
    if budget is not None:
        raise ParameterError(
            owner="PrivateRun",
            name="budget",
            expected="given with the path of a ledger",
            got="given with a ledger that is open",
            do="Open that one with budget=...: Ledger.open(path, budget=...).",
        )

    return False, ledger


def check_terms(plan: Plan, ledger: Ledger, parameters: Parameters) -> None:
    """Refuse a ledger whose terms do not cover this plan, or how it was chosen."""
    terms = ledger.terms

    # Without noise a release has no finite epsilon, and no budget admits it.
    if not plan.private and terms is not None and terms.epsilon is not None:
        raise BudgetExceeded(
            expected="a private plan on a ledger with a budget",
            got=f"groups without noise: {', '.join(plan.open_groups())}",
            do="No budget covers them. Run a baseline on another ledger, without a budget.",
        )

    # A list is fixed before the first run: it covers no plan that came of what was released.
    listed = terms is None or terms.rule is Rule.LIST
    if parameters is Parameters.CHOSEN_FROM_OUTPUTS and listed:
        raise LedgerMisuse(
            expected="a filter or an odometer, for a run that is chosen from outputs",
            got="a ledger "
            + ("for what its first run plans" if terms is None else "that is held to a list"),
            do=(
                "Open it with budget=dp.Filter(epsilon=..., delta=...) or "
                "dp.Odometer(delta=...) before its first run."
            ),
        )
