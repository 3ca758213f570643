"""`discreet plan show`: the plan of a run, from the ledger's own row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from discreet.cli.answer import Answer
from discreet.cli.files import PLAN_SUFFIXES, check_outputs, plan_bytes, read_ledger, write_all
from discreet.cli.options import AsJson, Force, LedgerFile, SavedPlan, count_option
from discreet.errors import DiscreetError

if TYPE_CHECKING:
    from discreet.ledger import RunRecord

__all__ = ["PLAN_SHOW_EXAMPLES", "plan_show"]

PLAN_SHOW_EXAMPLES = """Examples

  discreet plan show train.ledger
  discreet plan show train.ledger --run 2 --save plan.toml
"""


def plan_show(
    path: LedgerFile,
    run: Annotated[
        int | None,
        count_option("Number of the run; needed where there are several plans."),
    ] = None,
    save: SavedPlan = None,
    force: Force = False,
    as_json: AsJson = False,
) -> Answer:
    """Give back the plan of a run, as the run wrote it into the ledger before its first charge."""
    from discreet.report.facts.own_plans import own_plan
    from discreet.report.facts.runs import run_name

    check_outputs([save], suffixes=PLAN_SUFFIXES, force=force, inputs=[path])
    with read_ledger(path) as ledger:
        chosen = _run(ledger.runs(), run, path)

    plan = own_plan(chosen)
    if plan is None:
        raise DiscreetError(
            expected=f"a plan in the row of run {chosen.number}",
            got=(
                "a run without one: charged by hand, with owners of rows (which are data), or of "
                "schema 1"
            ),
            do="Ask whoever ran it for the plan's file.",
        )

    contents = {} if save is None else {save: plan_bytes(plan, save)}
    write_all(contents, force=force)

    # Epsilon is part of the explanation only where the plan itself names a delta.
    shown = [
        f"Plan of run {chosen.number} ({run_name(chosen)}), began {chosen.began}:",
        "",
        plan.explain(delta=None if plan.target is None else plan.target.delta),
        *map("Written: {}".format, contents),
    ]

    # Through its own text, so that scripts read the same names as in a plan's file.
    data = {
        "ledger": str(path),
        "run": chosen.number,
        "name": run_name(chosen),
        "plan": json.loads(plan.to_json()),
        "written": list(map(str, contents)),
    }
    return Answer(data=data, shown=shown, as_json=as_json)


def _run(runs: tuple[RunRecord, ...], number: int | None, path: Path) -> RunRecord:
    """The run with this number; without one, the only run, or the first of several that share one
    plan.
    """
    expected, got = "the number of a run", f"--run {number}"
    matching = [run for run in runs if run.number == number]

    # A run that was killed and resumed is several runs of the same plan, and no question. Reversed,
    # so that the first run of each plan is the one that stays.
    if number is None:
        matching = list({run.plan: run for run in reversed(runs)}.values())
        got = f"{len(matching)} different plans"
        if not runs:
            expected, got = "a ledger with a run", "no run"

    # Long ledgers have thousands of runs, of which a message cannot name all.
    if len(matching) != 1:
        numbers = ", ".join(str(run.number) for run in runs[:20]) or "none"
        raise DiscreetError(
            expected=expected, got=got, do=f"Runs of {path}: {numbers}. Give --run."
        )

    return matching[0]
