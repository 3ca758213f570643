"""The first screen: does it hold, what is claimed, what does it mean."""

from __future__ import annotations

import math
from collections.abc import Sequence

from discreet.accounting import tier
from discreet.accounting.tiers import TierReading
from discreet.report.curves import FALSE_POSITIVES
from discreet.report.deviations import Deviation, contradicted
from discreet.report.document import Claim, Figure, Status
from discreet.report.facts import Facts
from discreet.report.words import counted, downward, exact, mark_words, people, percent, upward
from discreet.units import Adjacency

__all__ = ["attack", "claim", "figures", "hits_at_one_percent", "meaning", "sentence", "status"]


def status(facts: Facts, deviations: Sequence[Deviation]) -> Status:
    """Whether the claim holds. Fail closed: whatever speaks against it comes first."""
    wrong = sum(deviation.severity == "wrong" for deviation in deviations)
    if facts.guarantee.voided_by:
        marks = "; ".join(map(mark_words, facts.guarantee.voided_by))
        return Status("void", "No guarantee", f"NO GUARANTEE: voided by {marks}.")
    if facts.void:
        return Status("void", "No guarantee", "NO GUARANTEE: no finite epsilon is known for what was released.")
    if contradicted(facts):
        return Status("contradicted", "Contradicted", "The claim is contradicted. Do not rely on it; see the deviations.")
    if wrong:
        text = f"The claim is about what the ledger holds, and it holds. But {counted(wrong, 'deviation')} must be looked into."
        return Status("deviates", counted(wrong, "deviation"), text)
    return Status("holds", "Guarantee holds", "The guarantee holds under the assumptions listed below.")


def sentence(facts: Facts) -> str:
    """The claim in one plain sentence."""
    guarantee = facts.guarantee
    if facts.void:
        return f"There is no guarantee: what was released might tell anything about any one {guarantee.unit} in these data."
    change = _CHANGES[guarantee.adjacency].format(guarantee.unit)
    factor = (
        upward(math.exp(guarantee.upper) * (1.0 + 2.0**-40), 3) if guarantee.upper < 20.0 else f"e^{upward(guarantee.upper)}"
    )
    plain = f"{change} changes the probability of any outcome by at most a factor of {factor}, plus {exact(guarantee.delta)}"
    if contradicted(facts):
        plain = f"The claim of the ledger, which is contradicted, reads: {plain[0].lower()}{plain[1:]}"
    claim = f"({upward(guarantee.upper)}, {exact(guarantee.delta)})-differentially private"
    return f"{plain}: what was released is {claim} for one {guarantee.unit} under {guarantee.adjacency.value} adjacency."


_CHANGES = {
    Adjacency.ADD_OR_REMOVE: "Adding or removing any one {}",
    Adjacency.ZERO_OUT: "Leaving out what any one {} contributes",
    Adjacency.REPLACE_ONE: "Exchanging any one {} for another",
}


def meaning(facts: Facts) -> tuple[str, ...]:
    """What the claim means, in words."""
    reading = tier(facts.guarantee)
    words = (
        f"In the terms of the guide (Ponomareva et al. 2023, section 5.2.1): {reading.tier.value}. {_remarks(reading)}".strip()
    )
    hits = hits_at_one_percent(facts)
    return (words,) if facts.void or hits is None else (attack(hits, str(facts.guarantee.unit)), words)


def _remarks(reading: TierReading) -> str:
    return " ".join(f"{remark[0].upper()}{remark[1:]}." for remark in reading.remarks)


def attack(hits: float, unit: str) -> str:
    """What an attacker can do, in people."""
    return (
        f"Whoever tries to tell from the releases whether one {unit} was in the data, and wrongly accuses 1 of 100 that were "
        f"not, finds at most {people(hits)} of 100 that were. Guessing finds 1."
    )


def hits_at_one_percent(facts: Facts) -> float | None:
    """Most members that any attack finds at 1 % false positives; None where nothing is ruled out."""
    if facts.tradeoff is None:
        return None
    return min(1.0, 1.0 - float(facts.tradeoff.miss_rate(FALSE_POSITIVES)) + 2.0**-50)


def figures(facts: Facts) -> tuple[Figure, ...]:
    """The numbers of the headline."""
    guarantee, reading = facts.guarantee, tier(facts.guarantee)
    name, _, words = reading.tier.value.partition(": ")
    if facts.void:
        return (Figure("epsilon", "none", "no guarantee"), Figure("tier", name.capitalize(), words))
    between = f"at least {downward(guarantee.lower)}" if guarantee.lower else "a bound, nothing smaller is proven impossible"
    found = [
        Figure("epsilon, at most", upward(guarantee.upper), between if facts.second else "the whole budget"),
        Figure("delta", exact(guarantee.delta), f"for one {guarantee.unit}"),
        Figure("tier of the guide", name.removeprefix("tier ").capitalize(), words),
    ]
    if facts.second is not None:
        found.append(Figure("second opinion (RDP)", upward(facts.second.upper), "at most, by another analysis"))
    hits = hits_at_one_percent(facts)
    if hits is not None:
        found.append(Figure("attacker's best", percent(hits), "of members, at 1 % false alarms"))
    return tuple(found)


def claim(facts: Facts) -> Claim:
    """The guarantee in numbers."""
    guarantee = facts.guarantee
    return Claim(
        holds=not facts.void and not contradicted(facts),
        epsilon_upper=guarantee.upper,
        epsilon_lower=guarantee.lower,
        epsilon_rdp=None if facts.second is None else facts.second.upper,
        epsilon_without_amplification=None if facts.unamplified is None else facts.unamplified.upper,
        delta=guarantee.delta,
        unit=str(guarantee.unit),
        adjacency=guarantee.adjacency.value,
        accountant=guarantee.accountant,
        sampling=guarantee.sampling,
        numerics=guarantee.numerics.value,
        assumptions=guarantee.assumptions,
        voided_by=guarantee.voided_by,
        tier=tier(guarantee).tier.value,
        hit_rate_at_1_percent=hits_at_one_percent(facts),
    )
