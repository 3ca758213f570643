"""The guide's checklist for reporting a guarantee [Ponomareva2023, section 5.3.3]: each item with
its own answer (P48).
"""

from __future__ import annotations

from collections.abc import Callable

from discreet._digits import counted, downward, upward
from discreet.ledger import Charge, Rule
from discreet.report.facts.gathered import Facts
from discreet.report.formats.document import Item, Table, TableRow
from discreet.report.formats.words import adjacency_words, exact, label_words
from discreet.report.sections.assumptions import Basis, assumptions
from discreet.report.sections.tuned import tuned
from discreet.units import Unit

__all__ = ["CHECKLIST", "checklist"]


def checklist(facts: Facts) -> tuple[Item, ...]:
    """All items, in the guide's order."""
    return tuple(make(facts) for make in CHECKLIST)


def _setting(facts: Facts) -> Item:
    return Item(
        "1",
        "Setting",
        (
            (
                "Central differential privacy. Whoever ran the training held the raw data and is "
                "trusted: to run the library unchanged, to charge this ledger and no other, and "
                "to publish nothing but what was released."
            ),
            (
                f"A guarantee of this kind protects each {facts.guarantee.unit} against everyone "
                "who sees what was released, whatever else they know. It protects nobody against "
                "those who hold the data."
            ),
        ),
    )


def _run_words(charge: Charge) -> str:
    return f"run {label_words(charge.run.label)}" if charge.run.label else f"run {charge.number}"


# Charges that are spelled out; the table at the end of the report has all of them.
_LISTED = 20
# What a ledger cannot see. The guide asks for it by name: silence would be read as "covered".
_NOT_COVERED = (
    (
        "looking at the data outside the ledger: exploring and cleaning them, statistics for "
        "scaling, a vocabulary"
    ),
    "tuning runs that charged another ledger, or nothing",
    "the choice of architecture and parameters after looking at these data",
    "losses, accuracies and norms that were read off without noise",
    (
        "validation and test sets that were read without a charge, if their records are to be "
        "protected too"
    ),
)


def _covered(charge: Charge) -> str:
    words = f"Covered: {_run_words(charge)}, {counted(charge.count, 'step')}"
    if charge.unsettled:
        words += f", of which {charge.unsettled:,} are reserved and not settled"

    return f"{words}."


def _accesses(facts: Facts) -> Item:
    # A charge of which all steps were given back covers nothing.
    snapshot = facts.snapshot
    charges = [charge for charge in snapshot.charges if charge.count]
    covered = list(map(_covered, charges[:_LISTED]))

    if len(charges) > _LISTED:
        covered.append(
            f"Covered: {len(charges) - _LISTED:,} more, listed under “What was charged”."
        )

    runs = counted(len(snapshot.runs), "run")
    everything = f"{counted(snapshot.steps, 'step')} of {runs}: everything charged to this ledger."
    total = sum(count for _, count in snapshot.counted())

    # All of a list that was fixed in advance counts, whether it was taken or not.
    if total > snapshot.steps:
        everything += f" The claim counts {total:,}: all of the list that was fixed in advance."

    tuning = (
        "Tuning runs that charged it are covered with the rest, and choosing among their results "
        "costs nothing more."
    )

    return Item(
        "2a",
        "Data accesses covered",
        (f"{everything} {tuning}",),
        (*covered, *(f"Not covered: {access}." for access in _NOT_COVERED), *tuned(facts)),
    )


def _output(facts: Facts) -> Item:
    charges = [charge for charge in facts.snapshot.charges if charge.count]
    kinds = sorted({query.phrase for charge in charges for query in charge.step.queries})

    # A step over several batches answers each of its queries once per batch.
    releases = sum(
        charge.count * len(charge.step.queries) * charge.step.sampling.batches_per_step
        for charge in charges
    )

    if not charges:
        first = "Nothing was charged, so nothing that was released is covered."
    else:
        first = (
            f"The output is the full sequence of noised answers of all steps, {releases:,} in all "
            f"({'; '.join(kinds)}), not only the final model."
        )

    return Item(
        "2b",
        "What the output is",
        (
            first,
            (
                "Whatever is computed from these answers without the data is covered too: every "
                "checkpoint, the final model, states of optimizers, clip norms that adapt, "
                "private metrics. Who was in a sample, and how many, is not part of the output."
            ),
        ),
    )


def _unit(facts: Facts) -> Item:
    # Group privacy: for k records of one person, epsilon grows k-fold and delta even faster.
    unit = facts.guarantee.unit
    if unit == Unit.EXAMPLE:
        several = (
            "A person with several examples is protected less: epsilon and delta grow with their "
            "number."
        )
    else:
        several = (
            f"All records of one {unit} are protected together, if the data were grouped by {unit}."
        )

    return Item(
        "2c",
        "Unit of privacy",
        (
            f"One {unit}. {several}",
            "The full data of the unit are protected: features and labels alike.",
        ),
    )


def _adjacency(facts: Facts) -> Item:
    guarantee = facts.guarantee
    return Item(
        "2d",
        "Adjacency",
        (
            (
                f"{guarantee.adjacency.value.capitalize()}. "
                f"{adjacency_words(guarantee.adjacency, guarantee.unit)}"
            ),
        ),
    )


def _accounting(facts: Facts) -> Item:
    # The rule decides which analysis states the claim, and whether there is a second one.
    guarantee = facts.guarantee
    words: tuple[str, ...]

    if guarantee.voided_by:
        words = ("None: there is no guarantee, and no number.",)
    elif facts.snapshot.rule is Rule.ODOMETER:
        words = (
            (
                "An odometer: delta was divided among the rules of analysis before the first "
                "release, and the claim is the smallest epsilon that any of them gives for what "
                "was charged. It holds whatever decided on runs and steps. There is no second "
                "analysis."
            ),
        )
    elif facts.by_fixed_analysis:
        words = (
            (
                f"A privacy filter ({guarantee.accountant}), because steps may be chosen from "
                "earlier outputs. The claim is the whole budget, wherever the process stopped: "
                "what was spent of it is no smaller guarantee. There is no second analysis."
            ),
        )
    elif facts.second is None:
        words = ("None: there is no guarantee.",)
    else:
        words = (
            (
                f"Accountant “{guarantee.accountant}”: numerical composition of privacy loss "
                "distributions (PLD), with errors of rounding and discretisation bounded in both "
                f"directions. Epsilon is at least {downward(guarantee.lower)} and at most "
                f"{upward(guarantee.upper)}; the upper end is the claim."
            ),
            (
                "Second opinion, by Rényi differential privacy (RDP), an analysis of its own: at "
                f"most {upward(facts.second.upper)}. It is never below the truth, and usually "
                "somewhat above the first."
            ),
        )

    sampling = f"Sampling: {'; '.join(guarantee.sampling)}."
    return Item("3a", "Type of accounting", (*words, sampling))


def _assumptions(facts: Facts) -> Item:
    rows = tuple(
        TableRow(
            (assumption.text, assumption.basis.value, assumption.how),
            assumption.basis is Basis.VIOLATED,
        )
        for assumption in assumptions(facts)
    )

    return Item(
        "3b",
        "Assumptions, and whether they hold",
        (
            (
                "“Checked” was read off the ledger while this report was made. “By the engine” is "
                "ensured by the library's code, with proofs in its documentation, if one of its "
                "engines charged the ledger. “Relied on” is on somebody's word."
            ),
        ),
        table=Table(("assumption", "holds", "how"), rows),
    )


def _statement(facts: Facts) -> Item:
    guarantee = facts.guarantee
    if guarantee.voided_by:
        return Item("3c", "Formal statement", (str(guarantee),))

    points = [_against_records(facts)]
    if facts.unamplified is not None:
        points.append(
            "Without amplification by sampling, that is if an attacker knew every sample and the "
            f"record had been in each: epsilon at most {upward(facts.unamplified.upper)} at delta "
            f"{exact(guarantee.delta)}."
        )
    elif facts.second is not None:
        points.append(
            "No amplification by sampling is claimed; the guarantee is the same if every "
            "sample is known."
        )
    elif facts.snapshot.rule is Rule.ODOMETER:
        points.append("Under an odometer no guarantee without amplification is stated.")
    else:
        points.append(
            "Under a filter no guarantee without amplification is stated: the claim is the "
            "budget, as analysed."
        )

    # An upper bound on all of it is one on each part: parts are post-processing of the whole.
    if not facts.void:
        points.append(
            "The statement is about all runs of the ledger together, the final model and its "
            "tuning alike; each of them alone has at most this epsilon."
        )

    rows = tuple(
        TableRow(
            (
                exact(guarantee_there.delta),
                upward(guarantee_there.upper),
                downward(guarantee_there.lower),
            )
        )
        for guarantee_there in facts.at_deltas
    )

    table = Table(("delta", "epsilon, at most", "at least"), rows, numbers=(0, 1, 2))
    return Item(
        "3c",
        "Formal statement",
        tuple(str(guarantee).splitlines()),
        tuple(points),
        None if facts.void else table,
    )


def _against_records(facts: Facts) -> str:
    delta = facts.guarantee.delta
    if facts.records is None:
        return (
            f"Delta {exact(delta)} should be well below 1/records, as publishing one record at "
            "random would meet delta = 1/records. Neither plan nor ledger say how many records "
            "there are."
        )

    # Publishing one record at random satisfies delta = 1/records with epsilon 0.
    limit = 1.0 / facts.records
    verdict = (
        "which it is"
        if delta < limit
        else "WHICH IT IS NOT: publishing one record at random would already meet it"
    )

    return (
        f"Delta {exact(delta)} should be below 1/records = {downward(limit)} ({facts.records:,} "
        f"records), {verdict}."
    )


def _transparency(facts: Facts) -> Item:
    # Whoever wants to run it again needs the versions; runs of different ones are all named.
    software = sorted(
        {f"{name} {version}" for run in facts.snapshot.runs for name, version in run.software}
    )

    return Item(
        "4",
        "Transparency and verification",
        (
            (
                f"Everything here was computed by discreet {facts.software} from the ledger alone "
                "and can be computed again by anyone who has the file; no data, model or key is "
                "needed. Code and proofs are open."
            ),
            (
                f"Ledger {facts.snapshot.ledger}, head {facts.snapshot.head}. Keep the head "
                "elsewhere: it is the fingerprint of the whole history."
            ),
        ),
        (f"Software of the runs: {', '.join(software) or 'none'}.",),
    )


CHECKLIST: tuple[Callable[[Facts], Item], ...] = (
    _setting,
    _accesses,
    _output,
    _unit,
    _adjacency,
    _accounting,
    _assumptions,
    _statement,
    _transparency,
)
"""What makes each item, in the guide's order."""
