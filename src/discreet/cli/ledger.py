"""`discreet ledger show | export | import`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import discreet as dp
from discreet.cli.answer import Answer, sheet, table
from discreet.cli.files import check_outputs, is_export, read_ledger
from discreet.cli.options import AsJson, LedgerFile
from discreet.cli.rows import event_data, event_words, lines_of, opening
from discreet.errors import DiscreetError

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from discreet.ledger import Charge, RunRecord

__all__ = ["EXPORT", "IMPORT", "SHOW", "export", "import_", "show"]

SHOW = """[bold]Example[/bold]

\b
  discreet ledger show train.ledger
"""
EXPORT = """[bold]Example[/bold]

\b
  discreet ledger export train.ledger train.jsonl
"""
IMPORT = """[bold]Example[/bold]

\b
  discreet ledger import train.jsonl copy.ledger
"""


def show(path: LedgerFile, as_json: AsJson = False) -> Answer:
    """Show the runs, the charges and the marks of a ledger. It is checked, and only read."""
    with read_ledger(path) as ledger:
        lines = lines_of(path)
        opened = opening(lines)
        runs, charges, marks = ledger.runs(), ledger.charges(), ledger.marks()
    unsettled = sum(charge.unsettled for charge in charges)
    data = {
        "ledger": str(path),
        "identity": opened.ledger,
        "opened": opened.opened,
        "rows": len(lines),
        "head": lines[-1][1].hex(),
        "runs": [_run_data(run) for run in runs],
        "charges": [_charge_data(charge) for charge in charges],
        "marks": marks,
        "unsettled": unsettled,
    }
    words = {
        "ledger": f"{path}, opened {opened.opened}",
        "identity": opened.ledger,
        "rows": str(len(lines)),
        "head": lines[-1][1].hex(),
        "marks": ", ".join(marks) or "none",
        "unsettled steps": f"{unsettled}: reserved, and counted, by a run that is still going or was killed"
        if unsettled
        else "none",
    }
    shown: list[RenderableType] = [sheet(words), "", _runs_table(runs), "", _charges_table(charges)]
    return Answer(data=data, shown=shown, as_json=as_json)


def export(
    path: LedgerFile,
    out: Annotated[Path, typer.Argument(metavar="OUT.jsonl", help="A new file.", show_default=False)],
    as_json: AsJson = False,
) -> Answer:
    """Write all rows of a ledger to a new JSON Lines file, with their digests and a seal. An existing file is refused."""
    check_outputs([out], suffixes=(".jsonl",), force=False, inputs=[path], forcible=False)
    with read_ledger(path) as ledger:
        ledger.verify().export(out)
        facts = {"ledger": str(path), "written": str(out), "head": ledger.head()}
    rows = len(lines_of(out))
    return Answer(data=facts | {"rows": rows}, shown=[f"{rows} rows written to {out}. Head: {facts['head']}"], as_json=as_json)


def import_(
    source: Annotated[Path, typer.Argument(metavar="IN.jsonl", help="A JSON Lines export.", show_default=False)],
    path: Annotated[Path, typer.Argument(metavar="LEDGER", help="A new file.", show_default=False)],
    as_json: AsJson = False,
) -> Answer:
    """Make a ledger of an export; it goes on where the export ended. An existing file is refused.

    A ledger belongs to a data set. After an import there are two, and each knows only its own later charges: spend on one.
    """
    if not is_export(source):
        do = "Pass the file that `discreet ledger export` wrote. Nothing was written."
        raise DiscreetError(expected="a JSON Lines export of a ledger", got=f"{source}, which is none", do=do)
    if os.path.lexists(path) or not path.parent.is_dir():
        got = f"{path}, which exists" if os.path.lexists(path) else f"{path}, in a folder that does not exist"
        do = "Choose another path; a ledger is never overwritten. Nothing was written."
        raise DiscreetError(expected="the path of a new ledger", got=got, do=do)
    with dp.Ledger.load(source, path) as ledger:
        facts = {"source": str(source), "written": str(path), "head": ledger.head()}
    rows = len(lines_of(path))
    return Answer(data=facts | {"rows": rows}, shown=[f"{rows} rows written to {path}. Head: {facts['head']}"], as_json=as_json)


def _run_data(run: RunRecord) -> dict[str, Any]:
    info = run.info
    return {
        "label": info.label,
        "began": run.began,
        "unit": info.unit.name,
        "adjacency": info.adjacency.value,
        "groups": info.groups,
        "numerics": info.numerics.value,
        "randomness": info.randomness.value,
        "parameters": info.parameters.value,
        "software": dict(run.software),
    }


def _charge_data(charge: Charge) -> dict[str, Any]:
    return {
        "run": charge.run.label,
        "count": charge.count,
        "unsettled": charge.unsettled,
        "sampling": event_data(charge.step.sampling),
        "queries": [event_data(query) for query in charge.step.queries],
    }


def _runs_table(runs: tuple[RunRecord, ...]) -> Table | str:
    if not runs:
        return "No run has begun."
    made = table("run", "began", "unit", "adjacency", "numerics", "randomness", "parameters", "software", texts=8)
    for run in runs:
        info = run.info
        facts = (info.unit.name, info.adjacency.value, info.numerics.value, info.randomness.value, info.parameters.value)
        made.add_row(
            info.label or "unnamed", run.began, *facts, ", ".join(f"{name} {version}" for name, version in run.software)
        )
    return made


def _charges_table(charges: tuple[Charge, ...]) -> Table | str:
    if not charges:
        return "Nothing was charged."
    made = table("run", "sampling", "queries", "steps", "unsettled", texts=3)
    for charge in charges:
        queries = "; ".join(map(event_words, charge.step.queries))
        numbers = (str(charge.count), str(charge.unsettled))
        made.add_row(charge.run.label or "unnamed", event_words(charge.step.sampling), queries, *numbers)
    return made
