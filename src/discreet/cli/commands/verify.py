"""`discreet verify`: is this ledger whole, is it the one I know, and did its runs do what their
plans say?
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from discreet.cli.answer import NO, YES, Answer, sheet
from discreet.cli.files import read_declared, read_ledger, read_optional, read_page
from discreet.cli.options import AsJson, Delta, LedgerFile, PlanFile
from discreet.cli.views.ledger_lines import lines_of
from discreet.cli.views.signed import compare
from discreet.cli.views.words import deviation_words, report_data
from discreet.errors import LedgerCorrupt
from discreet.report.facts.held import terms_words
from discreet.report.facts.own_plans import agreement, differences

if TYPE_CHECKING:
    from discreet.ledger import Ledger, Snapshot
    from discreet.ledger.storage.store import StoredLine
    from discreet.plan import Declaration, Plan

__all__ = ["VERIFY_EXAMPLES", "verify"]

VERIFY_EXAMPLES = """Examples

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
    """Read and check a whole ledger, and compare its runs with the plans in its own rows.

    Exits with 1 if the ledger is corrupt or void, does not contain the head given, deviates from a
    plan, or does not say what the report says. A ledger to which runs were added since the head was
    noted, or the report made, is fine.
    """
    declared = read_optional(read_declared, plan)
    page = read_optional(read_page, report)

    # `verify` reads every row again, and asks whether the head is one of theirs.
    try:
        ledger = read_ledger(path).verify(head)

    # For people the error is the message; a script that asked for JSON still gets an object.
    except LedgerCorrupt as corrupt:
        if not as_json:
            raise

        problem = {"sound": False, "problem": str(corrupt), "row": corrupt.row}
        return Answer(data={"ledger": str(path)} | problem, code=NO, as_json=True)

    # Each question is answered by itself, and none is left out because another one failed.
    with ledger:
        lines, snapshot = lines_of(path), ledger.snapshot()
        answers = [_rows_answer(path, snapshot, lines, head), _own_plans_answer(snapshot)]
        if page is not None:
            answers.append(compare(page, lines).answer(str(report)))

        # A delta alone asks for the claim, and a plan for the comparison: the report has both.
        if declared is not None or delta is not None:
            answers.append(_plan_answer(ledger, declared, delta, plan))

    # One answer of no makes the whole a no.
    return Answer(
        data={name: value for answer in answers for name, value in answer.data.items()},
        shown=[block for answer in answers for block in answer.shown],
        code=max(answer.code for answer in answers),
        as_json=as_json,
    )


def _rows_answer(
    path: Path, snapshot: Snapshot, lines: list[StoredLine], head: str | None
) -> Answer:
    """Whether the rows are sound: they are, or reading them would have failed."""
    # A head that is not in the chain was an error before: what is left is found, or not asked for.
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
    return Answer(data=facts, shown=[sheet(words), ""])


def _own_plans_answer(snapshot: Snapshot) -> Answer:
    """Whether each run kept to the plan in its own row, and nothing voided the guarantee."""
    problems, sentence = differences(snapshot), agreement(snapshot)
    checked = {
        "with_plan": sum(bool(run.plan) for run in snapshot.runs),
        "differences": problems,
        "agreement": sentence,
    }
    shown = [*map("DEVIATION: {}".format, problems), sentence]

    # A mark, such as of a step whose noise failed, takes the guarantee away for good.
    if snapshot.marks:
        shown.append(f"NO GUARANTEE: voided by {', '.join(snapshot.marks)}.")

    code = NO if snapshot.marks or problems else YES
    return Answer(data={"own_plans": checked}, shown=shown, code=code)


def _plan_answer(
    ledger: Ledger, declared: Declaration[Plan] | None, delta: float | None, path: Path | None
) -> Answer:
    """What the ledger claims at this delta, and whether it agrees with the plan's file."""
    from discreet.report import Report

    report = Report.of(ledger, delta=delta, plan=declared)
    facts = report_data(report)
    shown = ["", str(report.guarantee), *map(deviation_words, report.deviations)]

    # Notes are no deviation: what a plan allows, or what is only worth knowing, agrees with it.
    if path is not None:
        verdict = "DEVIATES from" if facts["deviates"] else "agrees with"
        shown.append(f"The ledger {verdict} {path}.")

    return Answer(data=facts, shown=shown, code=NO if facts["deviates"] else YES)
