"""The tables at the end of a report: every charge, how runs were executed, how to check it."""

from __future__ import annotations

from discreet._digits import downward
from discreet.ledger import Charge, Query, Step
from discreet.ledger.folding import folded_noise_multiplier
from discreet.report.facts.gathered import Facts
from discreet.report.facts.runs import run_name
from discreet.report.formats.document import Table, TableRow, capped
from discreet.report.formats.words import EMPTY_CELL, cell_text, exact, multiplier

__all__ = ["charges_table", "commands", "cost_share", "executions_table", "share_words"]


def cost_share(query: Query, step: Step) -> float | None:
    """(S_g/noise_g)^2 as a part of the sum over the step's Gaussian groups; None for others, which
    compose apart.
    """
    if query.gaussian_cost is None:
        return None

    # With z the folded multiplier, 1/z^2 is the sum of all (S_g/noise_g)^2. Each is rounded by
    # itself, so that the share of a single group could come out above 1.
    ratio = folded_noise_multiplier(step.gaussians) / folded_noise_multiplier([query])
    return min(1.0, ratio**2)


def share_words(share: float | None) -> str:
    """A share in percent, for people."""
    return cell_text(share, lambda share: f"{100.0 * share:.3g} %")


def charges_table(facts: Facts) -> Table:
    """Every charge with its noise."""
    header = (
        "run",
        "steps",
        "unsettled",
        "sampling",
        "group",
        "query",
        "sensitivity",
        "noise_std",
        "multiplier",
        "share",
    )

    rows = [row for charge in facts.snapshot.charges for row in _charge_rows(charge)]
    return Table(header, capped(rows, len(header)), numbers=(1, 2, 6, 7, 8, 9))


def _charge_rows(charge: Charge) -> list[TableRow]:
    # One row for each query: groups of one step may have noise of their own.
    rows = []
    for query in charge.step.queries:
        numbers = query.sensitivity_and_noise
        ratio = multiplier(query)
        rows.append(
            TableRow(
                (
                    charge.run.label or f"run {charge.number}",
                    f"{charge.count:,}",
                    f"{charge.unsettled:,}",
                    charge.step.sampling.phrase,
                    query.group,
                    query.phrase,
                    cell_text(numbers, lambda numbers: exact(numbers[0])),
                    _noise(query),
                    cell_text(ratio, lambda ratio: downward(ratio, 6)),
                    share_words(cost_share(query, charge.step)),
                )
            )
        )

    return rows


def _noise(query: Query) -> str:
    if query.sensitivity_and_noise is None:
        return EMPTY_CELL

    # Noise that is not Gaussian has a scale, which is not its standard deviation.
    noise = exact(query.sensitivity_and_noise[1])
    return noise if query.gaussian_cost is not None else f"scale {noise}"


def executions_table(facts: Facts) -> Table:
    """How each run was executed: what it declared, and with which software."""
    rows = [
        TableRow(
            (
                str(run.number),
                run_name(run),
                run.info.parameters.value,
                run.info.numerics.value,
                run.info.randomness.value,
                ", ".join(f"{name} {version}" for name, version in run.software),
            ),
            alarming=run.info.randomness.value.startswith("unsafe_"),
        )
        for run in facts.snapshot.runs
    ]

    return Table(
        ("number", "run", "parameters", "numerics", "randomness", "software"), capped(rows, 6)
    )


def commands(facts: Facts) -> tuple[tuple[str, str], ...]:
    """What anybody can run on the ledger to check this report."""
    delta = exact(facts.guarantee.delta)
    second = (
        ((f"discreet account LEDGER --delta {delta} --accountant rdp", "The second opinion."),)
        if facts.second
        else ()
    )

    return (
        (
            "discreet verify LEDGER --report REPORT",
            "This report is about that ledger, and says what it says.",
        ),
        (
            f"discreet verify LEDGER --head {facts.snapshot.head}",
            "The file is whole, and has this history.",
        ),
        (f"discreet account LEDGER --delta {delta}", "The claim, computed again."),
        *second,
        ("discreet plan show LEDGER", "What a run planned, from its own row."),
    )
