"""A budget for a ledger: it refuses the reservation that would exceed it, before anything is released.

    ledger = Ledger.open("train.ledger", guard=Budget(epsilon=3.0, delta=1e-6))

A budget is a function of charges. The ledger calls it inside the transaction of a reservation, with the proposed charge
included; it returns if all of them together fit, and raises `BudgetExceeded` if not.

* Every run declared its parameters as fixed in advance: the certified upper bound of the accountant decides.
* Any run chooses parameters from outputs: a privacy filter decides (P39), chosen once, from the first charge of the
  ledger, which nothing that was released could influence. The guarantee is then the budget itself, and says so.

Exactly the budget fits; anything above does not (P38).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from discreet import _validate as check
from discreet.accounting.accountant import Accountant, account
from discreet.accounting.filters import Filter, RenyiFilter, choose_filter
from discreet.accounting.normalise import normalise
from discreet.accounting.sources import read
from discreet.errors import AccountingError, BudgetExceeded, ParameterError
from discreet.units import Guarantee, Parameters

if TYPE_CHECKING:
    from collections.abc import Sequence

    from discreet.ledger.rows import Charge

__all__ = ["Budget"]

_FINEST = 1e-5  # relative width at which a bracket that still holds the budget counts as exceeded


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """(epsilon, delta) for everything that a ledger records.

    Args:
        epsilon: most that may be spent, above 0.
        delta: in (0, 1).
        accountant: for parameters fixed in advance: "tight" or "rdp".
        filter_order: order of the Rényi filter for parameters chosen from outputs. Left out, it is the order (or the Gaussian
            filter) that allows the first charge most often. Fix it before the first release and never change it.

    >>> budget = Budget(epsilon=1.0, delta=1e-6)
    >>> budget(())
    """

    epsilon: float
    delta: float
    accountant: Accountant = "tight"
    filter_order: float | None = None

    def __post_init__(self) -> None:
        check.positive("Budget", "epsilon", self.epsilon)
        check.fraction("Budget", "delta", self.delta)
        if self.accountant not in ("tight", "rdp"):
            raise ParameterError(owner="Budget", name="accountant", expected="'tight' or 'rdp'", got=repr(self.accountant))
        if self.filter_order is not None:
            RenyiFilter(self.epsilon, self.delta, self.filter_order)

    def __call__(self, charges: Sequence[Charge]) -> None:
        """Return if all these charges together fit; raise `BudgetExceeded` if not."""
        if not charges:
            return
        if _adaptive(charges):
            self._filtered(charges)
            return
        found = self._accounted(charges)
        if not found.upper <= self.epsilon:
            raise BudgetExceeded(
                expected=f"charges within ({self.epsilon!r}, {self.delta!r})",
                got=f"({found.upper:.6g}, {self.delta!r}) with this reservation, by the {found.accountant} accountant",
                do="Reserve fewer steps, or steps with more noise. Nothing was charged.",
            )

    def guarantee(self, charges: Sequence[Charge], *, marks: Sequence[str]) -> Guarantee:
        """What can be stated of these charges, all of which this budget admitted.

        Under a filter it is the budget in full: how much of it was spent depends on the outputs and is no guarantee.

        Args:
            charges: all of a ledger, `ledger.charges()`.
            marks: of the same ledger, `ledger.marks()`: what voids the guarantee. Not to be left out.
        """
        if not charges:
            raise AccountingError(expected="at least one charge", got="none", do="Ask after the first reservation.")
        if not _adaptive(charges):
            return self._accounted(charges, marks)
        used = self._filtered(charges)
        found = read(_Charges(tuple(charges), tuple(marks)), None, None)
        rule = f"every reservation was admitted by this budget ({used.name}, fixed before the first release) before its release"
        return Guarantee(
            lower=0.0,
            upper=self.epsilon,
            delta=self.delta,
            unit=found.unit,
            adjacency=found.adjacency,
            accountant=used.name,
            sampling=found.sampling,
            numerics=found.numerics,
            assumptions=(*found.assumptions, rule),
            voided_by=found.voided_by,
        )

    def _accounted(self, charges: Sequence[Charge], marks: Sequence[str] = ()) -> Guarantee:
        """The accountant's bracket, narrowed while it holds the budget inside."""
        source = _Charges(tuple(charges), tuple(marks))
        tolerance = 1e-3
        found = account(source, delta=self.delta, accountant=self.accountant, tolerance=tolerance)
        while self.accountant == "tight" and found.lower <= self.epsilon < found.upper and tolerance > _FINEST:
            tolerance /= 10.0
            finer = account(source, delta=self.delta, accountant=self.accountant, tolerance=tolerance)
            found = finer if finer.upper < found.upper else found
        return found

    def _filtered(self, charges: Sequence[Charge]) -> Filter:
        """The filter after all charges; raises if they do not fit."""
        found = read(_Charges(tuple(charges), ()), None, None)
        first = normalise([(charges[0].step, 1)], found.adjacency)
        chosen: Filter
        if self.filter_order is None:
            chosen = choose_filter(first, epsilon=self.epsilon, delta=self.delta)
        else:
            chosen = RenyiFilter(self.epsilon, self.delta, self.filter_order)
        return chosen.spend(normalise(found.steps, found.adjacency))


@dataclass(frozen=True, slots=True)
class _Charges:
    """Charges and marks as a source for the accountant."""

    held: tuple[Charge, ...]
    named: tuple[str, ...]

    def charges(self) -> tuple[Charge, ...]:
        return self.held

    def marks(self) -> tuple[str, ...]:
        return self.named


def _adaptive(charges: Sequence[Charge]) -> bool:
    return any(charge.run.parameters is Parameters.CHOSEN_FROM_OUTPUTS for charge in charges)
