"""How parameters were chosen, and on what data: a part of the data accesses that a guarantee must list."""

from __future__ import annotations

from discreet.report.document import Row, Table, capped
from discreet.report.facts import Facts
from discreet.report.words import counted, exact
from discreet.tuning import Kind, Trial, Tuning

__all__ = ["tuned", "tuned_table"]

_SHOWN = 12  # values in one cell
_FREE = "That costs no privacy if those data owe nothing to the protected ones, which is on the word of whoever ran it"


def tuned(facts: Facts) -> tuple[str, ...]:
    """One sentence or two for each record; without any, that nothing was stated."""
    if not facts.tuning:
        return ("Tuning: not stated. Nobody said on what data clip norm, learning rate and the like were chosen.",)
    return tuple(_sentence(record) for record in facts.tuning)


def _sentence(record: Tuning) -> str:
    about = f" ({record.about})" if record.about else ""
    what = f"Tuning: {counted(len(record.trials), 'trial')} of {', '.join(record.names)} on {record.kind.value} data"
    start = f"{what} “{record.name}”{about}."
    if record.kind is not Kind.PRIVATE:
        return f"{start} {_FREE}."
    return (
        f"{start} Covered: every trial and every score was charged to this ledger, {counted(len(record.runs), 'run')} in all, "
        "and choosing among released scores costs nothing more."
    )


def tuned_table(facts: Facts) -> Table | None:
    """What was tried, and what was chosen."""
    if not facts.tuning:
        return None
    rows = [
        Row(
            (
                ", ".join(record.names),
                record.method.value,
                f"{record.kind.value}: {record.name}",
                _tried(record),
                "none" if record.chosen is None else _chosen(record.trials[record.chosen], record.score_noise),
                f"yes, {counted(len(record.runs), 'run')}" if record.runs else "no",
            )
        )
        for record in facts.tuning
    ]
    return Table(("tuned", "how", "data", "tried", "chosen", "charged to this ledger"), capped(rows, 6))


def _tried(record: Tuning) -> str:
    parts = []
    for name in record.names:
        values = sorted({trial.values[name] for trial in record.trials})
        shown = ", ".join(f"{value:g}" for value in values[:_SHOWN])
        parts.append(f"{name} {shown}" + (f" and {len(values) - _SHOWN} more" if len(values) > _SHOWN else ""))
    return "; ".join(parts)


def _chosen(trial: Trial, noise: float) -> str:
    what = ", ".join(f"{name} {value:g}" for name, value in trial.values.items())
    score = "" if trial.score is None else f", score {trial.score:.4g}"
    return what + score + (f" (noise {exact(float(f'{noise:.2g}'))})" if noise > 0.0 else "")
