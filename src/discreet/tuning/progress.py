"""The bar over trials."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["trials_bar"]


@contextmanager
def trials_bar(total: int, *, shown: bool | None) -> Iterator[Callable[[float | None], None]]:
    """A progress bar on standard error: trials, time, the best score so far.

    Args:
        total: number of trials.
        shown: True or False; None shows it if standard error is a terminal.

    Yields:
        What to call after each trial, with the best score.
    """
    # Imported here, as everybody who makes a report imports this package.
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    columns = (
        TextColumn("tuning"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[best]}"),
    )
    visible = _is_terminal(sys.stderr) if shown is None else shown
    with Progress(
        *columns,
        console=Console(stderr=True),
        disable=not visible,
        redirect_stdout=_is_terminal(sys.stdout),
    ) as bar:
        task = bar.add_task("tuning", total=total, best="")

        def advance(best: float | None) -> None:
            bar.update(task, advance=1, best="" if best is None else f"best score {best:.4g}")

        yield advance


def _is_terminal(stream: object) -> bool:
    """Also for what users put in the place of a standard stream."""
    ask = getattr(stream, "isatty", None)
    return callable(ask) and bool(ask())
