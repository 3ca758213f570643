"""What the claim rests on, and whether it holds: item 3b of the guide's checklist [Ponomareva2023,
section 5.3.3].
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

from discreet._digits import counted
from discreet.ledger import Rule
from discreet.report.facts.gathered import Facts
from discreet.report.facts.runs import run_name
from discreet.report.formats.words import mark_words
from discreet.units import Adjacency, Numerics, Randomness, Unit

__all__ = ["Assumption", "Basis", "assumptions"]


class Basis(Enum):
    """Why an assumption may be taken to hold, or that it does not."""

    CHECKED = "yes, checked"  # read from the ledger while this report was made
    ENGINE = "by the engine"  # ensured by the library's engines, which charge what they execute
    TRUSTED = "relied on"  # somebody outside the library answers for it
    VIOLATED = "NO"


@dataclass(frozen=True, slots=True)
class Assumption:
    """One thing that the claim rests on.

    Args:
        text: what is assumed.
        basis: whether it holds, and by whose word.
        how: in a sentence.
    """

    text: str
    basis: Basis
    how: str


def assumptions(facts: Facts) -> tuple[Assumption, ...]:
    """Everything that the claim rests on, in the order of the report."""
    return (
        *_ledger(facts),
        *_samples(facts),
        *_arithmetic(facts),
        *_randomness(facts),
        *_choice(facts),
        *_records(facts),
    )


def _ledger(facts: Facts) -> Iterator[Assumption]:
    yield Assumption(
        "The ledger is whole",
        Basis.CHECKED,
        "Every row was read again, and its chain of digests checked up to the head. That nobody "
        "rewrote it from the start, only a head that was kept elsewhere can show.",
    )

    # A mark cannot be taken back: one that was written once voids the ledger for good.
    marks = facts.guarantee.voided_by
    if marks:
        yield Assumption(
            "Nothing unsafe happened",
            Basis.VIOLATED,
            f"Marked: {'; '.join(map(mark_words, marks))}.",
        )
    else:
        yield Assumption("Nothing unsafe happened", Basis.CHECKED, "The ledger bears no mark.")

    how = "All reservations are settled: what was charged is what was taken."
    if facts.snapshot.unsettled:
        steps = counted(facts.snapshot.unsettled, "step")
        how = f"{steps} were reserved and not settled; they count in full."

    yield Assumption("Every step that was taken is counted", Basis.CHECKED, how)
    yield Assumption(
        "Everything computed from these data went through this ledger",
        Basis.TRUSTED,
        "Nothing sees what was done with the data elsewhere; item 2a says what is not covered.",
    )


def _samples(facts: Facts) -> Iterator[Assumption]:
    # One assumption for each way of drawing, however many runs used it.
    drawn = {charge.step.sampling for charge in facts.snapshot.charges if charge.count}
    policies = sorted(drawn, key=lambda policy: policy.phrase)

    for policy in policies:
        yield Assumption(
            f"Samples were drawn as accounted for: {policy.phrase}",
            Basis.ENGINE,
            f"{policy.how_drawn} The library's sampler draws the very event that is charged, and "
            "each sample serves once. A program that charges the ledger by hand must do so "
            "itself.",
        )

    # Only where the claim is smaller because samples are secret does their secrecy matter.
    if any(policy.amplifies(facts.guarantee.adjacency) for policy in policies):
        yield Assumption(
            "Nobody learns who was in which sample",
            Basis.TRUSTED,
            "Amplification by sampling counts on it: indices, sizes and times of samples must "
            "not be published. Item 3c also states the guarantee without amplification.",
        )


# Who answers for the arithmetic, and why, at each level of numerics.
_ARITHMETIC = {
    Numerics.EXACT: (Basis.ENGINE, "Integer sums on a grid, and exactly sampled noise."),
    Numerics.CERTIFIED: (
        Basis.ENGINE,
        (
            "Noise is sampled exactly; what rounding adds to sums is proven to lie within the "
            "sensitivity charged, on hardware that follows IEEE 754."
        ),
    ),
    Numerics.IDEALISED: (
        Basis.TRUSTED,
        "Floating-point numbers are taken for real ones, without a proof.",
    ),
}


def _arithmetic(facts: Facts) -> Iterator[Assumption]:
    level = facts.guarantee.numerics
    text = f"Noise and sums are those of the analysis (numerics: {level.value})"
    yield Assumption(text, *_ARITHMETIC[level])


def _randomness(facts: Facts) -> Iterator[Assumption]:
    # One run with a known key is enough: its releases are part of the claim.
    text = "Noise and samples cannot be predicted"
    if any(run.info.randomness is Randomness.UNSAFE_TEST_KEY for run in facts.snapshot.runs):
        yield Assumption(text, Basis.VIOLATED, "A run used a fixed test key.")
    else:
        yield Assumption(
            text,
            Basis.ENGINE,
            "A cryptographic generator keyed by the operating system; keys are used once and "
            "never stored. That the generator is secure is a computational assumption.",
        )


def _choice(facts: Facts) -> Iterator[Assumption]:
    """Who or what decided on the steps, by the rule that the ledger is held to."""
    snapshot = facts.snapshot
    match snapshot.rule:
        case None:
            yield Assumption(
                (
                    "Noise, sampling and number of steps were fixed in advance, or depend on "
                    "public values only"
                ),
                Basis.TRUSTED,
                "This file holds no budget and no list. Every run declared it. It fails if "
                "somebody stopped, or changed the noise, because of what had been released.",
            )
        case Rule.LIST:
            yield from _list(facts)
        case Rule.ODOMETER:
            yield Assumption(
                "What the odometer counts with was fixed before the first release",
                Basis.CHECKED,
                "Levels, orders and their shares of delta are in a row before the first charge, "
                "and nobody changed them. Whatever decided on runs and steps, the claim holds.",
            )
        case _:
            yield Assumption(
                "Every charge fits a filter that was fixed before the first release",
                Basis.CHECKED,
                f"Budget and analysis ({facts.guarantee.accountant}) are in a row before the "
                "first charge, and all charges were added up again. Whatever decided on runs and "
                "steps, the claim holds.",
            )


def _list(facts: Facts) -> Iterator[Assumption]:
    """A list that was fixed in advance, and what somebody declared about it."""
    snapshot = facts.snapshot
    yield Assumption(
        "Noise, sampling and number of steps were fixed in advance: they are a list",
        Basis.CHECKED,
        "The list is in the rows before the first charge, and every charge is in it. All of it "
        "counts, whether it was taken or not: when a run ended may depend on what it had "
        "released.",
    )

    for run in snapshot.runs:
        if run.reason:
            yield Assumption(
                f"Run {run.number} (“{run_name(run)}”) ended early for a public reason",
                Basis.TRUSTED,
                f"Declared: “{run.reason}”. What it left of its plan is not counted. It fails if "
                "what had been released had a part in it.",
            )

    for before, after in pairwise(snapshot.history):
        # Until a list is complete, its rows settle it: that is no growth.
        if before.terms.complete and after.terms.planned != before.terms.planned:
            yield Assumption(
                "The list grew for a public reason",
                Basis.TRUSTED,
                f"Declared: “{after.reason}”. It fails if what had been released had a part in it.",
            )


def _records(facts: Facts) -> Iterator[Assumption]:
    unit = facts.guarantee.unit
    yield Assumption(
        "What a record contributes depends on that record and on public or released values alone",
        Basis.TRUSTED,
        "The PyTorch engine tests it in the first step and refuses layers that mix records; with "
        "the NumPy engine the caller answers for it, as for everything done to the data before.",
    )

    # The engine answers for the grouping only if every plan draws owners; else somebody else does.
    owners = [getattr(plan.sampler, "owners", None) for plan in facts.plans.values()]

    if owners and None not in owners:
        yield Assumption(
            f"Each record holds everything of one {unit}",
            Basis.ENGINE,
            "The plan's sampler draws owners of rows.",
        )
    elif unit == Unit.EXAMPLE:
        yield Assumption(
            "Each record is one example",
            Basis.TRUSTED,
            (
                "A copy, or another example of the same person, is another record: someone with "
                "several is protected less."
            ),
        )
    else:
        yield Assumption(
            f"Each record holds everything of one {unit}",
            Basis.TRUSTED,
            "Whoever grouped the data answers for it.",
        )

    # Neighbours of equal size do not differ in the number of records, so that it is not protected.
    if facts.guarantee.adjacency is not Adjacency.ADD_OR_REMOVE:
        yield Assumption(
            "The number of records is public",
            Basis.TRUSTED,
            f"So says {facts.guarantee.adjacency.value} adjacency.",
        )
    elif any(charge.step.sampling.stated_records is not None for charge in facts.snapshot.charges):
        yield Assumption(
            "The number of records that the sampling names may be published",
            Basis.TRUSTED,
            "The ledger holds it in clear.",
        )
