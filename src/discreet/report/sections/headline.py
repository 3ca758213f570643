"""The first screen: does it hold, what is claimed, what does it mean."""

from __future__ import annotations

import math
from collections.abc import Sequence

from discreet._digits import counted, downward, upward
from discreet.accounting import tier
from discreet.accounting.meaning.tiers import TierReading
from discreet.ledger import Rule
from discreet.report.facts.curves import FALSE_POSITIVES
from discreet.report.facts.gathered import Facts
from discreet.report.formats.document import Claim, Deviation, Figure, SignatureBlock, Status
from discreet.report.formats.stamp import Stamp
from discreet.report.formats.words import exact, mark_words, moment, people, percent
from discreet.report.sections.deviations import comparable, contradicted, refuted
from discreet.units import Adjacency, Guarantee

__all__ = [
    "claim",
    "figures",
    "hits_at_one_percent",
    "meaning",
    "sentence",
    "signature",
    "stamp",
    "status",
]


def status(facts: Facts, deviations: Sequence[Deviation]) -> Status:
    """Whether the claim holds. Fail closed: whatever speaks against it comes first."""
    if facts.guarantee.voided_by:
        marks = "; ".join(map(mark_words, facts.guarantee.voided_by))
        return Status("void", "No guarantee", f"NO GUARANTEE: voided by {marks}.")

    if facts.void:
        return Status(
            "void",
            "No guarantee",
            "NO GUARANTEE: no finite epsilon is known for what was released.",
        )

    # A contradiction weighs more than any deviation: the number itself cannot be relied on.
    if contradicted(facts):
        return Status(
            "contradicted",
            "Contradicted",
            "The claim is contradicted. Do not rely on it; see the deviations.",
        )

    # Notes are worth knowing and change nothing; only what is wrong takes the clean word away.
    wrong = sum(deviation.severity == "wrong" for deviation in deviations)
    if wrong:
        text = (
            "The claim is about what the ledger holds, and it holds. But "
            f"{counted(wrong, 'deviation')} must be looked into."
        )

        return Status("deviates", counted(wrong, "deviation"), text)

    audited = f" {_audit_words(facts)}" if facts.audit is not None else ""
    return Status(
        "holds",
        "Guarantee holds",
        f"The guarantee holds under the assumptions listed below.{audited}",
    )


def _audit_words(facts: Facts) -> str:
    """What the audit adds to the headline."""
    if not comparable(facts):
        return "The audit that was given measured something else."

    return f"The audit passes, and reached {_share(facts)} of the claim."


def _share(facts: Facts) -> str:
    """How far up to the claim the audit came, rounded down."""
    # Of a claim of 0 there is no share that could be reached.
    if facts.audit is None or not facts.audited_claim:
        return "no share"

    return f"{math.floor(100.0 * facts.audit.strongest / facts.audited_claim):,} %"


def sentence(facts: Facts) -> str:
    """The claim in one plain sentence."""
    guarantee = facts.guarantee
    if facts.void:
        return (
            "There is no guarantee: what was released might tell anything about any one "
            f"{guarantee.unit} in these data."
        )

    change = _CHANGES[guarantee.adjacency].format(guarantee.unit)

    # The factor is rounded up, past the error of exp. From e^20 on, its exponent says more.
    factor = (
        upward(math.exp(guarantee.upper) * (1.0 + 2.0**-40), 3)
        if guarantee.upper < 20.0
        else f"e^{upward(guarantee.upper)}"
    )

    plain = (
        f"{change} changes the probability of any outcome by at most a factor of {factor}, plus "
        f"{exact(guarantee.delta)}"
    )

    if contradicted(facts):
        plain = (
            f"The claim of the ledger, which is contradicted, reads: {plain[0].lower()}{plain[1:]}"
        )

    claim = f"({upward(guarantee.upper)}, {exact(guarantee.delta)})-differentially private"
    return (
        f"{plain}: what was released is {claim} for one {guarantee.unit} under "
        f"{guarantee.adjacency.value} adjacency."
    )


# What one change of the data is, by adjacency; the unit stands in the gap.
_CHANGES = {
    Adjacency.ADD_OR_REMOVE: "Adding or removing any one {}",
    Adjacency.ZERO_OUT: "Leaving out what any one {} contributes",
    Adjacency.REPLACE_ONE: "Exchanging any one {} for another",
}


def meaning(facts: Facts) -> tuple[str, ...]:
    """What the claim means, in words. Of a void ledger nothing more is said than that there is no
    guarantee.
    """
    if facts.void:
        return ()

    # What stands beside the claim comes first: it says on which condition a smaller one holds.
    reading = tier(facts.guarantee)
    guide = "In the terms of the guide (Ponomareva et al. 2023, section 5.2.1)"
    words = f"{guide}: {reading.tier.value}. {_remarks(reading)}".strip()
    hits = hits_at_one_percent(facts)
    attack = () if hits is None else (_attack(hits, facts.guarantee),)

    return (*_beside(facts), *attack, words)


def _beside(facts: Facts) -> tuple[str, ...]:
    """What stands beside the claim of an odometer, and on which condition."""
    fixed = facts.guarantee.if_fixed
    if fixed is None:
        return ()

    condition = "If all runs had been fixed before the first release, epsilon would be at most"
    doubt = "whether they were, the ledger does not show"
    return (
        f"This holds whatever decided on runs and steps. {condition} {upward(fixed)}; {doubt}.",
    )


def _remarks(reading: TierReading) -> str:
    # Remarks are written to follow a semicolon; here each is a sentence.
    return " ".join(f"{remark[0].upper()}{remark[1:]}." for remark in reading.remarks)


def _attack(hits: float, guarantee: Guarantee) -> str:
    """What an attacker can do, in people."""
    # Under replace-one the attacker tells two candidates apart, and not presence from absence.
    what = f"whether one {guarantee.unit} was in the data"
    if guarantee.adjacency is Adjacency.REPLACE_ONE:
        what = f"whether it was one {guarantee.unit} that was in the data, or another in its place"

    return (
        f"Whoever tries to tell from the releases {what}, and wrongly accuses 1 of 100 that were "
        f"not, finds at most {people(hits)} of 100 that were. Guessing finds 1."
    )


def hits_at_one_percent(facts: Facts) -> float | None:
    """The largest share of members that any attack finds at 1 % false positives; None where nothing
    is ruled out.
    """
    if facts.tradeoff is None:
        return None

    # 2^-50 covers the rounding of the subtraction, so that the share is never too small.
    return min(1.0, 1.0 - float(facts.tradeoff.miss_rate(FALSE_POSITIVES)) + 2.0**-50)


def figures(facts: Facts) -> tuple[Figure, ...]:
    """The numbers of the headline."""
    # The value of a tier is its name, a colon, and what it means.
    guarantee, reading = facts.guarantee, tier(facts.guarantee)
    name, _, words = reading.tier.value.partition(": ")

    if facts.void:
        return (Figure("epsilon", "none", "no guarantee"), Figure("tier", name.capitalize(), words))

    shown = [
        Figure("epsilon, at most", upward(guarantee.upper), _beside_epsilon(facts)),
        Figure("delta", exact(guarantee.delta), f"for one {guarantee.unit}"),
        Figure("tier of the guide", name.removeprefix("tier ").capitalize(), words),
    ]

    if guarantee.if_fixed is not None:
        shown.append(
            Figure(
                "if all was fixed in advance",
                upward(guarantee.if_fixed),
                "only if no run was chosen by looking",
            )
        )

    # A filter or an odometer has one analysis only.
    if facts.second is not None:
        shown.append(
            Figure(
                "second opinion (RDP)", upward(facts.second.upper), "at most, by another analysis"
            )
        )

    hits = hits_at_one_percent(facts)
    if hits is not None:
        shown.append(Figure("attacker's best", percent(hits), "of members, at 1 % false alarms"))

    if facts.audit is not None:
        shown.append(_audit_figure(facts))

    return tuple(shown)


def _beside_epsilon(facts: Facts) -> str:
    if facts.snapshot.rule is Rule.ODOMETER:
        return "whatever decided on the runs"

    if facts.by_fixed_analysis:
        return "the whole budget"

    # Some analyses bound epsilon from above alone: then nothing is known to lie below it.
    lower = facts.guarantee.lower
    if not lower:
        return "a bound, nothing smaller is proven impossible"

    return f"at least {downward(lower)}"


def _audit_figure(facts: Facts) -> Figure:
    # FAIL is said of the audit's own finding alone, not of accountants that disagree.
    if refuted(facts):
        return Figure("audit", "FAIL", "measured more than is claimed")

    if not comparable(facts):
        return Figure("audit", "none", "the one given is of something else")

    return Figure("audit", "PASS", f"{_share(facts)} of the claim reached")


def claim(facts: Facts) -> Claim:
    """The numbers of the guarantee, unrounded, for programs that read the JSON form."""
    guarantee = facts.guarantee

    # A program that reads `epsilon_upper` alone must find it empty where the claim fails.
    holds = not facts.void and not contradicted(facts)
    return Claim(
        holds=holds,
        epsilon_upper=guarantee.upper if holds else None,
        epsilon_accounted=None if facts.void else guarantee.upper,
        epsilon_lower=None if facts.void else guarantee.lower,
        epsilon_if_fixed=guarantee.if_fixed,
        epsilon_rdp=None if facts.second is None else facts.second.upper,
        epsilon_without_amplification=None
        if facts.unamplified is None
        else facts.unamplified.upper,
        delta=guarantee.delta,
        unit=str(guarantee.unit),
        adjacency=guarantee.adjacency.value,
        accountant=guarantee.accountant,
        sampling=guarantee.sampling,
        numerics=guarantee.numerics.value,
        assumptions=guarantee.assumptions,
        voided_by=guarantee.voided_by,
        tier=tier(guarantee).tier.value,
        hit_rate_at_1_percent=hits_at_one_percent(facts) if holds else None,
    )


def stamp(facts: Facts) -> Stamp:
    """Which rows the report is about, and what it claims, for `discreet verify --report`."""
    # The limit is part of it: near a limit the claim is computed more closely, and whoever computes
    # it again must do the same.
    guarantee = facts.guarantee
    return Stamp(
        ledger=facts.snapshot.ledger,
        head=facts.snapshot.head,
        epsilon=None if facts.void else guarantee.upper,
        delta=guarantee.delta,
        limit=facts.limit,
        unit=str(guarantee.unit),
        adjacency=guarantee.adjacency.value,
        voided_by=", ".join(guarantee.voided_by),
    )


def signature(facts: Facts) -> SignatureBlock:
    """What is signed, and places for who signs."""
    subject, guarantee = facts.subject, facts.guarantee
    stated = (
        "no guarantee"
        if facts.void
        else f"epsilon {upward(guarantee.upper)} at delta {exact(guarantee.delta)}"
    )

    return SignatureBlock(
        "Names are on the word of whoever gave them: the ledger knows none. Whoever signs has "
        "read the deviations and the assumptions, and compared the head above with a copy that "
        "was kept elsewhere.",
        (
            ("data set", subject.data_set),
            ("model", subject.model),
            ("purpose", subject.purpose),
            ("run by", subject.who),
        ),
        (
            (
                "statement",
                f"{stated}, for one {guarantee.unit} under {guarantee.adjacency.value} adjacency",
            ),
            ("ledger", facts.snapshot.ledger),
            ("head", facts.snapshot.head),
            ("report made", moment(facts.made)),
        ),
        ("responsible for the training", "privacy officer"),
    )
