"""What a ledger is held to: which rule admits its charges, and which claim follows from them.

    LIST        what may be charged is fixed before the first release, and in the row
    FILTER      whatever is chosen from outputs, within a budget that was fixed before the first
                release; its analysis is settled when the first run says what it will take: RENYI
                or GAUSSIAN
    ODOMETER    whatever is chosen from outputs, with no budget: what it cost is stated as it grows

The terms are rows of the ledger, written before the first charge. Everybody who opens the file is
held to them; whether a rule is obeyed is decided by `Rules`, because the ledger itself does not
compute costs.
Proofs: docs/proofs/filters.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from typing import TypeAlias

from discreet import _validate as check
from discreet.errors import ParameterError
from discreet.ledger.events import Step

__all__ = ["Planned", "Rule", "Terms", "planned_steps"]

Planned: TypeAlias = tuple[tuple[Step, int], ...]
"""Kinds of step with the number of times each may be taken; every kind once."""

_OWNER = "Terms"


class Rule(Enum):
    """Which rule admits charges; see the header of this file."""

    LIST = "list"
    FILTER = "filter"
    RENYI_FILTER = "renyi-filter"
    GAUSSIAN_FILTER = "gaussian-filter"
    ODOMETER = "odometer"

    @property
    def is_filter(self) -> bool:
        """Whether charges are admitted by a privacy filter, its analysis settled or not."""
        return self in (Rule.FILTER, Rule.RENYI_FILTER, Rule.GAUSSIAN_FILTER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The terms of one ledger; public.

    Args:
        rule: which rule admits charges.
        epsilon: the budget; None where nothing limits it.
        delta: of the budget, or of the odometer's claims; None for a list without a budget.
        planned: for a list all that may be charged; for an odometer what its first run planned, of
            which the levels are multiples. Empty until the first run begins, unless given before.
        levels: for an odometer, (n, share of delta): the claim for n times what the first run
            planned.
        orders: (order, share of delta): of a Rényi filter one with share 1, of an odometer several.
    """

    rule: Rule
    epsilon: float | None = None
    delta: float | None = None
    planned: Planned = ()
    levels: tuple[tuple[int, float], ...] = ()
    orders: tuple[tuple[float, float], ...] = ()

    def __post_init__(self) -> None:
        check.instance(_OWNER, "rule", self.rule, Rule)

        # The checks return plain numbers, which a frozen dataclass takes in this way only.
        set_ = object.__setattr__
        if self.epsilon is not None:
            set_(self, "epsilon", check.positive(_OWNER, "epsilon", self.epsilon))

        if self.delta is not None:
            set_(self, "delta", check.fraction(_OWNER, "delta", self.delta))

        set_(self, "planned", planned_steps(_OWNER, self.planned))
        set_(self, "levels", _pairs("levels", self.levels))
        set_(self, "orders", _pairs("orders", self.orders))
        self._check_rule()
        self._check_shares()

    def _check_rule(self) -> None:
        # A list may do without a budget: it is valid because it was fixed, whatever it costs.
        needs_delta = self.rule is not Rule.LIST or self.epsilon is not None

        # A filter never plans: it admits whatever comes, as long as it fits.
        wrong = {
            "delta": needs_delta and self.delta is None,
            "epsilon": self.rule.is_filter and self.epsilon is None,
            "planned": self.rule.is_filter and bool(self.planned),
            "levels": bool(self.levels) and self.rule is not Rule.ODOMETER,
            "orders": not self._orders_fit(),
        }

        for name, is_wrong in wrong.items():
            if is_wrong:
                raise ParameterError(
                    owner=_OWNER,
                    name=name,
                    expected=f"what the rule {self.rule.value!r} takes",
                    got=repr(getattr(self, name))[:80],
                )

    def _check_shares(self) -> None:
        # A Rényi divergence of order 1 or less converts to no epsilon.
        low_order = any(order <= 1.0 for order, _ in self.orders)

        if low_order or any(level < 1 for level, _ in self.levels):
            raise ParameterError(
                owner=_OWNER,
                name="orders",
                expected="orders above 1 and levels of at least 1",
                got=f"{self.orders}, {self.levels}"[:80],
            )

        # As fractions: a sum of floats could be rounded down to 1, and delta be spent twice.
        total = sum(Fraction(share) for _, share in (*self.levels, *self.orders))
        if total > 1:
            raise ParameterError(
                owner=_OWNER,
                name="levels",
                expected="shares that add up to at most 1",
                got=f"{float(total)!r}",
            )

    def _orders_fit(self) -> bool:
        match self.rule:
            case Rule.RENYI_FILTER:
                return len(self.orders) == 1

            case Rule.ODOMETER:
                # All three are settled together, by what the first run plans.
                return bool(self.orders) == bool(self.planned) == bool(self.levels)

            case _:
                return not self.orders

    @property
    def complete(self) -> bool:
        """Whether nothing is left to be settled by the first run."""
        # The first plan is the list, or what the levels of an odometer are multiples of.
        if self.rule in (Rule.LIST, Rule.ODOMETER):
            return bool(self.planned)

        return self.rule is not Rule.FILTER


def planned_steps(owner: str, planned: Iterable[tuple[Step, int]]) -> Planned:
    """Check (step, count) pairs, and add up the counts of equal steps."""
    totals: dict[Step, int] = {}
    pairs: object = planned

    if not isinstance(pairs, Iterable):
        raise ParameterError(
            owner=owner, name="planned", expected="(step, count) pairs", got=type(pairs).__name__
        )

    # Equal steps are one kind, whoever names them and how often.
    for pair in pairs:
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise ParameterError(
                owner=owner, name="planned", expected="(step, count) pairs", got=type(pair).__name__
            )

        step, count = pair
        check.member(owner, "planned", step, (Step,))
        totals[step] = totals.get(step, 0) + check.whole(owner, "planned", count, least=1)

    return tuple(totals.items())


def _pairs(name: str, pairs: object) -> tuple[tuple[float, float], ...]:
    """Numbers with their shares, all finite, shares above 0."""
    if not isinstance(pairs, tuple):
        raise ParameterError(
            owner=_OWNER, name=name, expected="a tuple of pairs", got=repr(pairs)[:80]
        )

    checked = []

    # Lists too: that is what pairs become in a file.
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise ParameterError(owner=_OWNER, name=name, expected="pairs", got=repr(pair)[:80])

        number, share = pair

        # A level is a whole number and stays one: the bytes of the row depend on it.
        value = number if type(number) is int else check.real(_OWNER, name, number)
        checked.append((value, check.fraction(_OWNER, name, share, one=True)))

    return tuple(checked)
