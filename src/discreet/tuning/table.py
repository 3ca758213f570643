"""Trials in words: a table for people, and where they came from."""

from __future__ import annotations

from discreet.tuning.record import Kind, Tuning

__all__ = ["lines", "source"]


def lines(record: Tuning) -> list[str]:
    """One line for each trial, the chosen one marked, and a last line that names the data."""
    header = [*record.names, "score"]
    rows = [[f"{value:g}" for value in trial.values.values()] for trial in record.trials]
    for row, trial in zip(rows, record.trials, strict=True):
        row.append("none" if trial.score is None else f"{trial.score:.4f}")
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    shown = [
        "  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True))
        for row in [header, *rows]
    ]
    if record.chosen is not None:
        shown[record.chosen + 1] += "  <- chosen"
    if record.score_noise > 0.0:
        shown.append(f"Scores have noise of standard deviation {record.score_noise:.2g}.")
    about = f" ({record.about})" if record.about else ""
    charged = ", every trial and score charged to the ledger" if record.kind is Kind.PRIVATE else ""
    return [*shown, f"Tuned on {source(record)}{about}{charged}."]


def source(record: Tuning) -> str:
    """The data, in words."""
    return f"{record.kind.value} data “{record.name}”"
