"""Whoever decides, for a ledger, what a rule means: the one door through which costs come in.

The ledger needs the standard library only and computes no cost. `discreet.budget`, which knows
ledger and accountants, installs its rules here when `discreet` is imported, which importing any
part of it does. Without them a ledger with a budget admits nothing.
"""

from __future__ import annotations

from typing import Protocol

from discreet.errors import LedgerMisuse, ParameterError
from discreet.ledger.snapshot import Snapshot
from discreet.ledger.terms import Planned, Terms
from discreet.units import Adjacency

__all__ = ["HasTerms", "Rules", "check_budget", "install", "installed"]


class HasTerms(Protocol):
    """What a ledger can be opened with: a budget, a filter, an odometer."""

    def terms(self) -> Terms:
        """What the ledger is to be held to."""


def check_budget(owner: str, budget: HasTerms | None) -> None:
    """Refuse what is neither None nor has terms; a class has none."""
    # A forgotten pair of brackets, `budget=dp.Odometer`, passes a class, which has `terms` too;
    # called without an instance, it would only fail later, after the file was made.
    is_budget = not isinstance(budget, type) and callable(getattr(budget, "terms", None))
    if budget is not None and not is_budget:
        raise ParameterError(
            owner=owner,
            name="budget",
            expected="a Budget, a Filter, an Odometer, or None",
            got=repr(budget)[:80],
        )


class Rules(Protocol):
    """Decides what the terms of a ledger admit, for all ledgers of a process."""

    def completed(self, terms: Terms, planned: Planned, adjacency: Adjacency) -> Terms:
        """The terms with everything settled that is left to the first run, from what it plans."""

    def admit(self, snapshot: Snapshot) -> None:
        """Return if all that is committed is within the budget; raise `BudgetExceeded` if not."""


# At most one entry; a list, so that `install` needs no global statement.
_rules: list[Rules] = []


def install(rules: Rules) -> None:
    """Make these the rules of every ledger of this process."""
    _rules[:] = [rules]


def installed() -> Rules:
    """The rules of this process.

    Raises:
        LedgerMisuse: there are none.
    """
    if not _rules:
        raise LedgerMisuse(
            expected="the rules of budgets, which `import discreet` installs",
            got="none",
            do="Import discreet as a whole. Nothing was charged.",
        )

    return _rules[0]
