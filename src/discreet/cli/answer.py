"""What a command found, and how it reaches the terminal: as text for people, or as one JSON object
for scripts.

Commands return an `Answer` and print nothing themselves, so that what goes to stdout is whole, and
a reader that goes away (`| head`) is noticed in one place.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich import box
from rich.console import Console, RenderableType
from rich.table import Table

from discreet._strict_json import to_text
from discreet.report.formats.words import plain_json

__all__ = ["NO", "YES", "Answer", "answer_table", "on_terminal", "sheet"]

YES = 0
"""Exit code: done, or yes."""
NO = 1
"""Exit code: the answer is no."""
# Columns where no terminal sets a limit: nothing is cut or wrapped.
_WIDE = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a command says in the end, to people or to scripts.

    Args:
        data: for scripts; keys are stable, numbers are not rounded.
        shown: for people, one block after the other.
        code: `YES`, or `NO` if the question was answered by no.
        as_json: whether `data` goes to stdout instead of `shown`.
        verbatim: a whole document that goes to stdout as it is, instead of either.
    """

    data: Mapping[str, Any] = field(default_factory=dict)
    shown: Sequence[RenderableType] = ()
    code: int = YES
    as_json: bool = False
    verbatim: str | None = None

    def text(self) -> str:
        """The text that goes to stdout, whole."""
        if self.verbatim is not None:
            return self.verbatim

        # NaN is refused: where a number went wrong, a crash is better than an object that only
        # some programs can read.
        if self.as_json:
            return to_text(plain_json(self.data))

        # Names of files and runs are shown as they are: nothing in them is markup.
        width = None if on_terminal() else _WIDE
        console = Console(markup=False, highlight=False, emoji=False, width=width)

        # Without a terminal a paragraph stays one line, so that scripts can search it.
        with console.capture() as captured:
            for block in self.shown:
                console.print(block, soft_wrap=isinstance(block, str) and not on_terminal())

        # Rich fills lines with spaces, and tables bring blank lines of their own.
        lines = "\n".join(line.rstrip() for line in captured.get().split("\n"))
        return re.sub(r"\n{3,}", "\n\n", lines).rstrip("\n") + "\n"


def on_terminal() -> bool:
    """Whether stdout is a terminal that shows more than ASCII; else output is plain."""
    # A process without standard streams has None there, and some streams name no encoding.
    return (
        sys.stdout is not None and sys.stdout.isatty() and "utf" in str(sys.stdout.encoding).lower()
    )


def answer_table(*header: str, texts: int = 1) -> Table:
    """An empty table, its first `texts` columns aligned to the left; in Markdown where stdout is no
    terminal.
    """
    grid = Table(box=box.SIMPLE_HEAD if on_terminal() else box.MARKDOWN, header_style="bold")

    # Numbers are set to the right, so that their digits stand below each other. What is too wide
    # is folded: a digest that is cut could not be copied.
    for name in header:
        grid.add_column(name, justify="right", overflow="fold")

    for column in grid.columns[:texts]:
        column.justify = "left"

    return grid


def sheet(rows: Mapping[str, str]) -> Table:
    """Names and what they stand for, in two columns without lines."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")

    for name, value in rows.items():
        grid.add_row(name, value)

    return grid
