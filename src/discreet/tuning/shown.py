"""What people see of a tuning: a table of its trials, a figure, and a bar while it runs."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from discreet._files import checked_path, is_terminal, write_over
from discreet.errors import DiscreetError, ParameterError
from discreet.tuning.record import Trial, Tuning, TuningKind

__all__ = ["Picture", "PlottedLine", "draw", "source", "trials_bar", "trials_table"]

_SUFFIXES = (".png", ".svg")


# --- a table ---


def trials_table(record: Tuning) -> list[str]:
    """Write one line for each trial, the chosen one marked, and a last line that names the data."""
    rows = [[*record.names, "score"], *map(_cells, record.trials)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.rjust, row, widths)) for row in rows]

    # The first line is the header.
    if record.chosen is not None:
        lines[record.chosen + 1] += "  <- chosen"

    if record.score_noise > 0.0:
        lines.append(f"Scores have noise of standard deviation {record.score_noise:.2g}.")

    about = f" ({record.about})" if record.about else ""
    charged = (
        ", every trial and score charged to the ledger" if record.kind is TuningKind.PRIVATE else ""
    )
    return [*lines, f"Tuned on {source(record)}{about}{charged}."]


def _cells(trial: Trial) -> list[str]:
    score = "none" if trial.score is None else f"{trial.score:.4f}"
    return [*(f"{value:g}" for value in trial.values.values()), score]


def source(record: Tuning) -> str:
    """Name the data on which trials were made."""
    return f"{record.kind.value} data “{record.name}”"


# --- a figure ---


@dataclass(frozen=True, slots=True)
class PlottedLine:
    """Points (x, score) in ascending order of x, and what they have in common."""

    name: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """What a figure of a tuning shows.

    Args:
        title: in words.
        across: what x is.
        lines: one or several.
        chosen: (x, score) of the trial that was chosen, if one was.
        level: a score to compare with, and what it is.
        noise: standard deviation of the noise on scores, drawn as a bar on both sides.
    """

    title: str
    across: str
    lines: tuple[PlottedLine, ...]
    chosen: tuple[float, float] | None
    level: tuple[float, str] | None = None
    noise: float = 0.0


def draw(owner: str, path: str | os.PathLike[str], picture: Picture) -> Path:
    """Write a PNG or SVG file, by the suffix of the path, and return the path.

    It is written whole or not at all, over an earlier picture.

    Raises:
        DiscreetError: matplotlib is not installed.
    """
    place = checked_path(owner, path)
    if place.suffix not in _SUFFIXES:
        expected = f"one that ends in {' or '.join(_SUFFIXES)}"
        raise ParameterError(owner=owner, name="path", expected=expected, got=repr(str(place)))

    write_over(owner, place, _figure(picture, place.suffix))
    return place


def _figure(picture: Picture, suffix: str) -> bytes:
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415  (only who draws needs it)
    except ImportError:
        raise DiscreetError(
            expected="matplotlib, to draw a figure",
            got="an installation without it",
            do="Install it: pip install 'discreet[plots]'. Nothing was written.",
        ) from None

    # A figure of its own, not pyplot's: that would keep it, and may want a screen.
    drawing = Figure(figsize=(7.0, 4.2), layout="constrained")
    axes = drawing.subplots()
    for line in picture.lines:
        x, y = zip(*line.points, strict=True)
        axes.errorbar(x, y, yerr=picture.noise or None, marker=".", capsize=3.0, label=line.name)

    if picture.level is not None:
        level, name = picture.level
        axes.axhline(level, linestyle="--", linewidth=1.0, color="grey", label=name)

    if picture.chosen is not None:
        across, score = picture.chosen
        ring = axes.scatter(across, score, s=120.0, zorder=3.0, label="chosen")
        ring.set(facecolors="none", edgecolors="black")

    # Learning rates, clip norms and noises are tried by factors.
    axes.set(xlabel=picture.across, ylabel="score", xscale="log")

    # Names are other people's: nothing in them is a formula.
    axes.set_title(picture.title, fontsize="small", wrap=True, parse_math=False)
    axes.grid(visible=True, alpha=0.3)
    axes.legend(fontsize="small")

    file = io.BytesIO()
    drawing.savefig(file, format=suffix.removeprefix("."), dpi=150)
    return file.getvalue()


# --- a bar ---


@contextmanager
def trials_bar(total: int, *, shown: bool | None) -> Iterator[Callable[[float | None], None]]:
    """Show a bar on standard error: trials, time, the best score so far.

    Args:
        total: number of trials.
        shown: True or False; None shows it if standard error is a terminal.

    Yields:
        What to call after each trial, with the best score.
    """
    # Imported here, as everybody who makes a report imports this package.
    from rich import progress  # noqa: PLC0415
    from rich.console import Console  # noqa: PLC0415

    columns = (
        progress.TextColumn("tuning"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TimeElapsedColumn(),
        progress.TextColumn("{task.fields[best]}"),
    )

    # Standard output is left alone where it goes to a file: what a trial prints belongs there.
    visible = is_terminal(sys.stderr) if shown is None else shown
    with progress.Progress(
        *columns,
        console=Console(stderr=True),
        disable=not visible,
        redirect_stdout=is_terminal(sys.stdout),
    ) as bar:
        task = bar.add_task("tuning", total=total, best="")

        def advance(best: float | None) -> None:
            bar.update(task, advance=1, best="" if best is None else f"best score {best:.4g}")

        yield advance
