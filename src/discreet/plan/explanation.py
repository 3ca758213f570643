"""A plan in words and columns, for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from discreet._digits import counted, nearest
from discreet.accounting import account
from discreet.ledger.folding import folded_noise_multiplier
from discreet.sampling import Sampler

if TYPE_CHECKING:
    from discreet.plan.plan import Plan

__all__ = ["explanation"]

_HEADER = ("leaf", "group", "dimension", "sensitivity", "noise_std", "multiplier", "group's share")


def explanation(plan: Plan, delta: float | None) -> str:
    """Write a plan as a table for people, for `Plan.explain`.

    Sensitivity and noise are in the unit in which the group is clipped.
    """
    lines = [
        (
            f"Protected: one {plan.unit}, {plan.adjacency.value} adjacency. Numerics: "
            f"{plan.numerics.value}."
        ),
        f"Sampling: {plan.sampler.event.phrase}; {counted(plan.steps, 'step')}.",
    ]

    # How much work it is can be told only where the number of records is known.
    if isinstance(plan.sampler, Sampler):
        size, batches = plan.expected_batch_size, plan.sampler.batches
        passes = nearest(size * batches / plan.sampler.records)
        work = f"{counted(batches, 'batch')} of {nearest(size)} records expected"
        lines.append(f"Work: {work}, {passes} passes over {plan.sampler.records} records.")

    if plan.target is not None:
        lines.append(
            f"Target, which is no guarantee: epsilon {plan.target.epsilon!r} at delta "
            f"{plan.target.delta!r}."
        )

    lines += ["", *_aligned(_HEADER, _rows(plan), texts=2), ""]
    lines.append(f"Folded noise multiplier of a step: {nearest(plan.noise_multiplier)}")
    lines += [f"Note: {note}." for note in plan.notes]

    if delta is not None:
        # An accountant has nothing to read where no group is noised.
        statement = "NO GUARANTEE: nothing is clipped or noised."
        if plan.queries():
            statement = str(account(plan, delta=delta))

        lines += ["", "If executed as planned:", statement]

    return "\n".join(lines)


def _rows(plan: Plan) -> list[Sequence[str]]:
    if plan.leaves is not None:
        return [
            (
                row.leaf,
                row.group,
                str(row.dimension),
                *map(nearest, (row.sensitivity, row.noise_std, row.noise_multiplier)),
                f"{100.0 * row.share:.3g} %",
            )
            for row in plan.bound.explain()
        ]

    rows = []
    for query in plan.queries():
        # 1/z^2 is what adds up over groups (Eq. 1), so a group's share of the budget is the ratio
        # of the squares.
        multiplier = folded_noise_multiplier([query])
        share = (plan.noise_multiplier / multiplier) ** 2
        numbers = map(nearest, (query.sensitivity, query.noise_std, multiplier))
        rows.append(("?", query.group, "?", *numbers, f"{100.0 * share:.3g} %"))

    # Nothing bounds what a group without noise may tell.
    return [*rows, *(("?", name, "?", "inf", "0", "0", "all") for name in plan.open_groups())]


def _aligned(header: Sequence[str], rows: Sequence[Sequence[str]], *, texts: int) -> list[str]:
    """Lines of a table: the first `texts` columns to the left, numbers to the right.

    >>> _aligned(["leaf", "noise_std"], [["grad/w", "1.1"]], texts=1)
    ['leaf    noise_std', 'grad/w        1.1']
    """
    columns = zip(header, *rows, strict=True)
    widths = [max(map(len, column)) for column in columns]

    lines = []
    for row in (header, *rows):
        cells = [
            *map(str.ljust, row[:texts], widths[:texts]),
            *map(str.rjust, row[texts:], widths[texts:]),
        ]
        # Without the spaces that fill the last column, which no reader sees and a diff shows.
        lines.append("  ".join(cells).rstrip())

    return lines
