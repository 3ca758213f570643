"""`discreet ledger export | import | budget | stop`: what moves a ledger, or writes a row."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

import discreet as dp
from discreet import _validate as check
from discreet.cli.answer import Answer
from discreet.cli.files import check_outputs, is_export, read_ledger
from discreet.cli.options import AsJson, LedgerFile, count_option, number_option
from discreet.cli.views.ledger_lines import lines_of
from discreet.errors import DiscreetError

__all__ = ["BUDGET", "EXPORT", "IMPORT", "STOP", "budget", "export", "import_", "stop"]

EXPORT = """Example

  discreet ledger export train.ledger train.jsonl
"""
IMPORT = """Example

  discreet ledger import train.jsonl copy.ledger
"""
BUDGET = """Example

  discreet ledger budget train.ledger --epsilon 2 --reason "the board asked for less"
"""
STOP = """Example

  discreet ledger stop train.ledger --run 2 --reason "power failure"
"""

_WritableLedger: TypeAlias = Annotated[
    Path,
    typer.Argument(
        metavar="LEDGER", help="A ledger that exists. A row is added to it.", show_default=False
    ),
]


def export(
    path: LedgerFile,
    out: Annotated[
        Path, typer.Argument(metavar="OUT.jsonl", help="A new file.", show_default=False)
    ],
    as_json: AsJson = False,
) -> Answer:
    """Write all rows of a ledger to a new JSON Lines file, with their digests and a seal.

    An existing file is refused.
    """
    check_outputs([out], suffixes=(".jsonl",), force=False, inputs=[path], forcible=False)

    # A copy that is handed on must not begin with a fault: all rows are read and checked first.
    with read_ledger(path) as ledger:
        ledger.verify().export(out)
        return _moved({"ledger": str(path)}, out, ledger.head(), as_json=as_json)


def import_(
    source: Annotated[
        Path, typer.Argument(metavar="IN.jsonl", help="A JSON Lines export.", show_default=False)
    ],
    path: Annotated[Path, typer.Argument(metavar="LEDGER", help="A new file.", show_default=False)],
    as_json: AsJson = False,
) -> Answer:
    """Make a ledger of an export; it goes on where the export ended. An existing file is refused.

    A ledger belongs to a data set. After an import there are two, and each knows only its own later
    charges: spend on one.
    """
    if not is_export(source):
        raise DiscreetError(
            expected="a JSON Lines export of a ledger",
            got=f"{source}, which is none",
            do="Pass the file that `discreet ledger export` wrote. Nothing was written.",
        )

    # Before the export is read: when this is said, nothing may have been written.
    exists = os.path.lexists(path)
    if exists or not path.parent.is_dir():
        trouble = "which exists" if exists else "in a folder that does not exist"
        raise DiscreetError(
            expected="the path of a new ledger",
            got=f"{path}, {trouble}",
            do="Choose another path; a ledger is never overwritten. Nothing was written.",
        )

    with dp.Ledger.load(source, path) as ledger:
        head = ledger.head()

    return _moved({"source": str(source)}, path, head, as_json=as_json)


def budget(
    path: _WritableLedger,
    epsilon: Annotated[
        float,
        number_option("EPSILON", "From now on, above 0."),
    ],
    reason: Annotated[
        str, typer.Option(metavar="TEXT", help="Why; every report shows it.", show_default=False)
    ],
    delta: Annotated[
        float | None,
        number_option("DELTA", "Only where a list had no budget: delta is fixed once and for all."),
    ] = None,
    as_json: AsJson = False,
) -> Answer:
    """Hold a ledger to another epsilon from now on, by a row that every report shows.

    Nobody can take it back. What is charged, or promised to runs that are going, must fit. A
    filter's claim stays the largest epsilon it ever had.
    """
    with _open_to_write(path) as ledger:
        before = ledger.terms
        ledger.change_budget(epsilon, delta=delta, reason=reason)
        after, head = ledger.terms, ledger.head()

    # A ledger without a budget has no terms until its first run, or terms without an epsilon.
    earlier, limit = (None if terms is None else terms.epsilon for terms in (before, after))
    level = None if after is None else after.delta
    was = "no limit" if earlier is None else repr(earlier)
    words = [
        f"{path} is held to epsilon {limit!r} at delta {level!r}; before: {was}.",
        f"Head: {head}",
    ]
    data = {
        "ledger": str(path),
        "epsilon": limit,
        "epsilon_before": earlier,
        "delta": level,
        "reason": reason,
        "head": head,
    }
    return Answer(data=data, shown=words, as_json=as_json)


def stop(
    path: _WritableLedger,
    run: Annotated[
        int,
        count_option("Number of the run, as `show` says."),
    ],
    reason: Annotated[
        str,
        typer.Option(
            metavar="TEXT", help='The public reason, such as "power failure".', show_default=False
        ),
    ],
    as_json: AsJson = False,
) -> Answer:
    """Declare that a run is over, and the public reason for which it took fewer steps than planned.

    A public reason owes nothing to what was released. On a ledger that is held to a list, what the
    run left is then not counted; the reason stands in every guarantee, on the word of whoever gave
    it. It cannot be taken back.
    """
    # `Ledger.end` takes an empty reason, for a run that simply ended; a declaration needs one.
    with _open_to_write(path) as ledger:
        ledger.end(run, check.label("stop", "reason", reason))
        record = next(each for each in ledger.runs() if each.number == run)
        head = ledger.head()

    taken = f"{record.steps} of {record.planned_steps} planned steps"
    words = [
        f"Run {run} of {path} is over after {taken}, as was declared: {reason}.",
        f"Head: {head}",
    ]
    facts = {
        "ledger": str(path),
        "run": run,
        "charged": record.steps,
        "planned": record.planned_steps,
    }
    return Answer(data={**facts, "reason": reason, "head": head}, shown=words, as_json=as_json)


def _moved(origin: dict[str, str], path: Path, head: str, *, as_json: bool) -> Answer:
    """What was written, counted in the new file itself."""
    rows = len(lines_of(path))
    return Answer(
        data=origin | {"written": str(path), "head": head, "rows": rows},
        shown=[f"{rows} rows written to {path}. Head: {head}"],
        as_json=as_json,
    )


def _open_to_write(path: Path) -> dp.Ledger:
    """A ledger that exists, opened to append; an export is refused: it is a copy."""
    # Read first, so that what is no ledger, or not sound, is named as every other command does.
    with read_ledger(path):
        pass

    if is_export(path):
        raise DiscreetError(
            expected="a ledger to write to",
            got=f"{path}, an export of one",
            do="Write to the ledger itself. Nothing was written.",
        )

    return dp.Ledger.open(path, "r+")
