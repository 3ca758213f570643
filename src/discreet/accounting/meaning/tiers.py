"""The three tiers of [Ponomareva2023, section 5.2.1]: how strong a guarantee is, in a word."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from discreet import _validate as check
from discreet.units import Adjacency, Guarantee, Unit

__all__ = ["Tier", "TierReading", "tier"]


class Tier(Enum):
    """STRONG: epsilon <= 1. REASONABLE: epsilon <= 10. WEAK: above. NONE: no finite or no valid
    guarantee.
    """

    STRONG = "tier 1: strong formal privacy guarantee"
    REASONABLE = "tier 2: reasonable privacy guarantee"
    WEAK = "tier 3: weak to no formal privacy guarantee"
    NONE = "no guarantee"


@dataclass(frozen=True, slots=True)
class TierReading:
    """A tier and what must be said beside it.

    Args:
        tier: of the upper bound, never of the estimate.
        remarks: conditions under which the guide's tiers apply and that the guarantee alone does
            not show.
    """

    tier: Tier
    remarks: tuple[str, ...]


def tier(guarantee: Guarantee) -> TierReading:
    """The tier of a guarantee. Exactly 1 and exactly 10 belong to the stronger tier."""
    check.instance("tier", "guarantee", guarantee, Guarantee)
    remarks = []

    # A user with many examples is protected less than each of the examples.
    if guarantee.unit == Unit.EXAMPLE:
        remarks.append(
            "the tiers are meant for users: they apply if no user has more than one example"
        )

    if guarantee.adjacency is Adjacency.REPLACE_ONE:
        remarks.append(
            "the tiers are meant for add-or-remove and zero-out; under replace-one the same "
            "release has a larger epsilon"
        )

    # A guarantee that was voided has no tier, whatever its number.
    if guarantee.voided_by:
        return TierReading(Tier.NONE, (f"voided by {', '.join(guarantee.voided_by)}", *remarks))

    # The upper bound decides: a tier is a claim, and the estimate is none.
    if guarantee.upper <= 1.0:
        strength = Tier.STRONG
    elif guarantee.upper <= 10.0:
        strength = Tier.REASONABLE
    elif guarantee.upper < float("inf"):
        strength = Tier.WEAK
        remarks.append(
            "epsilon alone is no evidence of anonymisation here: add an audit or other "
            "measures before release"
        )
    else:
        strength = Tier.NONE

    return TierReading(strength, tuple(remarks))
