"""How parameters were chosen, and on what data: a part of the data accesses that a guarantee must
list.
"""

from __future__ import annotations

from discreet._digits import counted
from discreet.report.facts.gathered import Facts
from discreet.tuning import Tuning, TuningKind

__all__ = ["tuned"]

# Values of one parameter that are listed.
_SHOWN = 12
_FREE = (
    "That costs no privacy if those data owe nothing to the protected ones, which is on the word "
    "of whoever ran it"
)


def tuned(facts: Facts) -> tuple[str, ...]:
    """What each record says; without any, that nothing was stated."""
    if not facts.tuning:
        return (
            (
                "Tuning: not stated. Nobody said on what data clip norm, learning rate and the "
                "like were chosen."
            ),
        )

    return tuple(f"{_trials(record)} {_cost(record)}" for record in facts.tuning)


def _trials(record: Tuning) -> str:
    about = f" ({record.about})" if record.about else ""
    on = f"on {record.kind.value} data “{record.name}”{about}"
    trials = f"Tuning, {record.method.value}: {counted(len(record.trials), 'trial')} {on}."

    return f"{trials} Tried: {_tried(record)}. Chosen: {_chosen(record)}."


def _cost(record: Tuning) -> str:
    if record.kind is not TuningKind.PRIVATE:
        return f"{_FREE}."

    return (
        "Covered: every trial and every score was charged to this ledger, "
        f"{counted(len(record.runs), 'run')} in all, and choosing among released scores costs "
        "nothing more."
    )


def _tried(record: Tuning) -> str:
    parts = []
    for name in record.names:
        values = sorted({trial.values[name] for trial in record.trials})
        words = f"{name} " + ", ".join(f"{value:g}" for value in values[:_SHOWN])
        if len(values) > _SHOWN:
            words += f" and {len(values) - _SHOWN} more"

        parts.append(words)

    return "; ".join(parts)


def _chosen(record: Tuning) -> str:
    if record.chosen is None:
        return "none"

    trial = record.trials[record.chosen]
    words = ", ".join(f"{name} {value:g}" for name, value in trial.values.items())
    words += f", score {trial.score:.4g}"

    # Where scores were released with noise, it says how much a difference between them means.
    if record.score_noise > 0.0:
        words += f" with noise {record.score_noise:.2g}"

    return words
