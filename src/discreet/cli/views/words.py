"""Guarantees and numbers in words, the same in every command."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from typing import TYPE_CHECKING, Any

from discreet.cli.views.attack import FALSE_POSITIVES

if TYPE_CHECKING:
    from discreet.units import Guarantee

__all__ = ["down", "guarantee_data", "meaning", "number", "up"]


def number(value: float) -> str:
    """Six digits; whole numbers without a point.

    >>> number(512.0), number(0.94925707003)
    ('512', '0.949257')
    """
    return f"{value:.6g}"


def up(value: float) -> str:
    """An upper bound in four digits, rounded up.

    >>> up(2.99931), up(0.00012341), up(float("inf"))
    ('3', '0.0001235', 'infinity')
    """
    return _short(value, ROUND_CEILING)


def down(value: float) -> str:
    """A lower bound in four digits, rounded down.

    >>> down(2.99931)
    '2.999'
    """
    return _short(value, ROUND_FLOOR)


def _short(value: float, direction: str) -> str:
    if math.isinf(value):
        return "infinity"
    short = Context(prec=4, rounding=direction).create_decimal(value).normalize()
    return f"{short:f}" if 1e-4 <= value < 1e9 or not value else f"{short:e}"


def guarantee_data(guarantee: Guarantee) -> dict[str, Any]:
    """A guarantee for scripts. `valid` is false if something voids it; then there is no number."""
    return {
        "valid": not guarantee.voided_by,
        "epsilon": None if guarantee.voided_by else guarantee.upper,
        "epsilon_lower": None if guarantee.voided_by else guarantee.lower,
        "epsilon_if_fixed": guarantee.if_fixed,
        "estimate": guarantee.estimate,
        "delta": guarantee.delta,
        "delta_lower": guarantee.delta_lower,
        "unit": guarantee.unit.name,
        "adjacency": guarantee.adjacency.value,
        "accountant": guarantee.accountant,
        "sampling": guarantee.sampling,
        "numerics": guarantee.numerics.value,
        "basis": guarantee.basis,
        "assumptions": guarantee.assumptions,
        "voided_by": guarantee.voided_by,
        "statement": str(guarantee),
    }


def meaning(guarantee: Guarantee, hits: float | None) -> tuple[list[str], dict[str, Any]]:
    """What the guarantee means: the guide's tier [Ponomareva2023, section 5.2.1], and what an
    attacker can do.

    Args:
        guarantee: as computed.
        hits: see `attack.attack`; None where it is not known.
    """
    from discreet.accounting import tier

    reading = tier(guarantee)
    lines = ["Meaning: " + "; ".join((reading.tier.value, *reading.remarks)) + "."]
    if hits is not None and not guarantee.voided_by:
        lines.append(
            f"Attack: whoever tries to tell from the releases whether one {guarantee.unit} was in the data, and is wrong about "
            f"at most {FALSE_POSITIVES:.0%} of those that were not, finds at most {math.ceil(1000 * hits) / 10:g} % of those "
            "that were."
        )
    data = {
        "tier": reading.tier.value,
        "tier_remarks": reading.remarks,
        "attack": None
        if hits is None
        else {"false_positive_rate": FALSE_POSITIVES, "hit_rate": hits},
    }
    return lines, data
