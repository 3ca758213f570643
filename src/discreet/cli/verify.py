"""`discreet verify`: is this ledger whole, is it the one I know, and did the run do what its plan says?"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from discreet.cli.answer import NO, YES, Answer, sheet
from discreet.cli.files import read_declared, read_ledger
from discreet.cli.options import AsJson, Delta, LedgerFile, PlanFile
from discreet.cli.rows import lines_of
from discreet.cli.words import guarantee_data
from discreet.errors import LedgerCorrupt

__all__ = ["EXAMPLES", "verify"]

EXAMPLES = """[bold]Examples[/bold]

\b
  discreet verify train.ledger
  discreet verify train.ledger --head 5f3c...   # the head that was written down earlier
  discreet verify train.ledger --plan plan.toml
"""


def verify(
    path: LedgerFile,
    head: Annotated[
        str | None, typer.Option(metavar="DIGEST", help="A head noted earlier; it must still be in the chain.")
    ] = None,
    plan: PlanFile = None,
    delta: Delta = None,
    as_json: AsJson = False,
) -> Answer:
    """Read a ledger from its first row to its last and check everything; with a plan, compare the two.

    Exits with 1 if the ledger is corrupt, does not contain the head given, or deviates from the plan. A ledger to which runs
    were added since the head was noted is fine.
    """
    declared = None if plan is None else read_declared(plan)
    try:
        ledger = read_ledger(path).verify(head)
    except LedgerCorrupt as corrupt:
        if not as_json:
            raise
        return Answer(
            data={"ledger": str(path), "sound": False, "problem": str(corrupt), "row": corrupt.row}, code=NO, as_json=True
        )
    with ledger:
        lines = lines_of(path)
        facts: dict[str, Any] = {
            "ledger": str(path),
            "sound": True,
            "rows": len(lines),
            "runs": len(ledger.runs()),
            "unsettled": sum(charge.unsettled for charge in ledger.charges()),
            "marks": ledger.marks(),
            "head": lines[-1][1].hex(),
            "head_found": None if head is None else True,
        }
        words = {
            "ledger": f"{path}: sound",
            "rows": str(facts["rows"]),
            "runs": str(facts["runs"]),
            "unsettled steps": str(facts["unsettled"]),
            "marks": ", ".join(facts["marks"]) or "none",
            "head": facts["head"] + ("" if head is None else "; the one given is in the chain"),
        }
        if declared is None and delta is None:
            return Answer(data=facts, shown=[sheet(words)], as_json=as_json)
        from discreet.report import Report

        found = Report.of(ledger, delta=delta, plan=declared)
    wrong = [one for one in found.deviations if one.severity == "wrong"]
    facts |= {
        "guarantee": guarantee_data(found.guarantee),
        "deviations": [{"severity": one.severity, "text": one.text} for one in found.deviations],
        "deviates": bool(wrong),
    }
    said = [f"{'DEVIATION' if one.severity == 'wrong' else 'Note'}: {one.text}" for one in found.deviations]
    if plan is not None:
        said.append(f"The ledger {'DEVIATES from' if wrong else 'agrees with'} {plan}.")
    return Answer(data=facts, shown=[sheet(words), "", str(found.guarantee), *said], code=NO if wrong else YES, as_json=as_json)
