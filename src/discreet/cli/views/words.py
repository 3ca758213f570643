"""Guarantees and numbers in words, the same in every command."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from discreet.report.facts.curves import FALSE_POSITIVES

if TYPE_CHECKING:
    from discreet.report import Deviation, Report
    from discreet.units import Guarantee

__all__ = ["deviation_words", "guarantee_data", "guarantee_in_words", "report_data"]


def guarantee_data(guarantee: Guarantee) -> dict[str, Any]:
    """A guarantee for scripts. `valid` is false if something voids it; then there is no number."""
    # A script that reads `epsilon` and nothing else must not find a number that does not hold.
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


def report_data(report: Report) -> dict[str, Any]:
    """A report's guarantee and deviations for scripts. `deviates` is true if one is wrong."""
    return {
        "guarantee": guarantee_data(report.guarantee),
        "deviations": [
            {"severity": deviation.severity, "text": deviation.text}
            for deviation in report.deviations
        ],
        "deviates": any(deviation.severity == "wrong" for deviation in report.deviations),
    }


def deviation_words(deviation: Deviation) -> str:
    """A deviation for people, in one line that begins with how bad it is."""
    return f"{'DEVIATION' if deviation.severity == 'wrong' else 'Note'}: {deviation.text}"


def guarantee_in_words(
    guarantee: Guarantee, hits: float | None
) -> tuple[list[str], dict[str, Any]]:
    """What the guarantee means: the guide's tier [Ponomareva2023, section 5.2.1], and what an
    attacker can do.

    Args:
        guarantee: as computed.
        hits: see `attack.attack`; None where it is not known.
    """
    from discreet.accounting import tier

    reading = tier(guarantee)
    lines = ["Meaning: " + "; ".join((reading.tier.value, *reading.remarks)) + "."]
    facts: dict[str, Any] = {
        "tier": reading.tier.value,
        "tier_remarks": reading.remarks,
        "attack": None,
    }
    if hits is None:
        return lines, facts

    facts["attack"] = {"false_positive_rate": FALSE_POSITIVES, "hit_rate": hits}
    if not guarantee.voided_by:
        percent = math.ceil(1000 * hits) / 10  # a bound is rounded up, or it would be none
        lines.append(
            f"Attack: whoever tries to tell from the releases whether one {guarantee.unit} was in "
            f"the data, and is wrong about at most {FALSE_POSITIVES:.0%} of those that were not, "
            f"finds at most {percent:g} % of those that were."
        )

    return lines, facts
