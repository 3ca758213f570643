"""`discreet verify`: is this ledger whole, is it the one I know, and did its runs do what their
plans say?
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from discreet.cli.answer import NO, YES, Answer, sheet
from discreet.cli.files import read_declared, read_ledger, read_page
from discreet.cli.options import AsJson, Delta, LedgerFile, PlanFile
from discreet.cli.views.ledger_lines import lines_of
from discreet.cli.views.signed import compare
from discreet.cli.views.words import guarantee_data
from discreet.errors import LedgerCorrupt

if TYPE_CHECKING:
    from rich.console import RenderableType

    from discreet.ledger import Snapshot
    from discreet.ledger.storage.store import Line
    from discreet.report import Deviation

__all__ = ["EXAMPLES", "verify"]

EXAMPLES = """Examples

  discreet verify train.ledger
  discreet verify train.ledger --head 5f3c9d1e...
  discreet verify train.ledger --plan plan.toml
  discreet verify train.ledger --report report.html
"""


def verify(
    path: LedgerFile,
    head: Annotated[
        str | None,
        typer.Option(metavar="DIGEST", help="A head noted earlier; it must still be in the chain."),
    ] = None,
    plan: PlanFile = None,
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="A report (.html, .md or .json): does the ledger still say so?"
        ),
    ] = None,
    delta: Delta = None,
    as_json: AsJson = False,
) -> Answer:
    """Read a ledger from its first row to its last, check everything, and compare its runs with the
    plans in its own rows.

    Exits with 1 if the ledger is corrupt or void, does not contain the head given, deviates from a
    plan, or does not say what the report says. A ledger to which runs were added since the head was
    noted, or the report made, is fine.
    """
    declared = None if plan is None else read_declared(plan)
    page = None if report is None else read_page(report)
    try:
        ledger = read_ledger(path).verify(head)
    except LedgerCorrupt as corrupt:
        if not as_json:
            raise
        return Answer(
            data={"ledger": str(path), "sound": False, "problem": str(corrupt), "row": corrupt.row},
            code=NO,
            as_json=True,
        )
    with ledger:
        lines, snapshot = lines_of(path), ledger.snapshot()
        facts, words = _read(path, snapshot, lines, head)
        checked = _own_plans(snapshot)
        code = NO if snapshot.marks or checked["differences"] else YES
        shown: list[RenderableType] = [
            sheet(words),
            "",
            *(f"DEVIATION: {text}" for text in checked["differences"]),
            checked["agreement"],
        ]
        facts |= {"own_plans": checked}
        if snapshot.marks:
            shown.append(f"NO GUARANTEE: voided by {', '.join(snapshot.marks)}.")
        if page is not None:
            comparison = compare(page, lines)
            facts |= {"report": comparison.data(str(report))}
            shown += comparison.shown(str(report))
            code = max(code, YES if comparison.agrees else NO)
        if declared is None and delta is None:
            return Answer(data=facts, shown=shown, code=code, as_json=as_json)
        from discreet.report import Report

        made = Report.of(ledger, delta=delta, plan=declared)
    wrong = any(one.severity == "wrong" for one in made.deviations)
    facts |= {
        "guarantee": guarantee_data(made.guarantee),
        "deviations": [{"severity": one.severity, "text": one.text} for one in made.deviations],
        "deviates": wrong,
    }
    shown += ["", str(made.guarantee), *map(_said, made.deviations)]
    if plan is not None:
        shown.append(f"The ledger {'DEVIATES from' if wrong else 'agrees with'} {plan}.")
    return Answer(data=facts, shown=shown, code=max(code, NO if wrong else YES), as_json=as_json)


def _read(
    path: Path, snapshot: Snapshot, lines: list[Line], head: str | None
) -> tuple[dict[str, Any], dict[str, str]]:
    """What was read, for scripts and for people."""
    from discreet.report.facts.held import terms_words

    facts: dict[str, Any] = {
        "ledger": str(path),
        "identity": snapshot.ledger,
        "sound": True,
        "rows": len(lines),
        "runs": len(snapshot.runs),
        "unsettled": snapshot.unsettled,
        "marks": snapshot.marks,
        "head": lines[-1][1].hex(),
        "head_found": None if head is None else True,
    }
    words = {
        "ledger": f"{path}: sound",
        "rows": str(facts["rows"]),
        "runs": str(facts["runs"]),
        "held to": terms_words(snapshot.terms, oldest=snapshot.schema == 1),
        "unsettled steps": str(facts["unsettled"]),
        "marks": ", ".join(facts["marks"]) or "none",
        "head": facts["head"] + ("" if head is None else "; the one given is in the chain"),
    }
    return facts, words


def _own_plans(snapshot: Snapshot) -> dict[str, Any]:
    from discreet.report.facts.own_plans import agreement, differences

    return {
        "with_plan": sum(bool(run.plan) for run in snapshot.runs),
        "differences": differences(snapshot),
        "agreement": agreement(snapshot),
    }


def _said(deviation: Deviation) -> str:
    return f"{'DEVIATION' if deviation.severity == 'wrong' else 'Note'}: {deviation.text}"
