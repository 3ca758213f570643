"""`discreet audit`: does what an attack found contradict the claim?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from discreet import _validate as check
from discreet.cli.answer import NO, YES, Answer
from discreet.cli.files import check_outputs, read_ledger, read_plan, read_scores
from discreet.cli.options import (
    AsJson,
    BudgetDelta,
    BudgetEpsilon,
    Delta,
    finite,
    flag,
    refuse_budget,
    whole,
)
from discreet.cli.views.words import guarantee_data
from discreet.errors import DiscreetError
from discreet.units import Parameters

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from discreet.canaries import Scores
    from discreet.ledger import Ledger
    from discreet.plan import Plan
    from discreet.verdict import Verdict

__all__ = ["EXAMPLES", "audit"]

EXAMPLES = """Examples

  discreet audit --plan plan.toml
  discreet audit train.ledger --plan plan.toml --output audit.json
  discreet audit train.ledger --scores scores.json --delta 1e-6
  discreet report train.ledger --plan plan.toml --audit audit.json \\
    --out report.html
"""
_CANARIES, _TRIALS = 1000, 20  # reached 90 % of epsilon 3 for 2344 steps of DP-SGD (docs/cli.md)
_MECHANISM = (
    "What was attacked is the plan's mechanism as this installation executes it: no data, no "
    "model, and not the run itself."
)


def audit(
    path: Annotated[
        Path | None,
        typer.Argument(
            metavar="LEDGER",
            help="The ledger whose claim is tested, or an export of it.",
            show_default=False,
        ),
    ] = None,
    scores: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Scores (JSON) of an attack on the runs of LEDGER."),
    ] = None,
    plan: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Attack the mechanism of this plan (TOML or JSON) instead."
        ),
    ] = None,
    delta: Delta = None,
    confidence: Annotated[
        float,
        typer.Option(parser=finite, metavar="NUMBER", help="Of all bounds together, in (0, 1)."),
    ] = 0.95,
    assume_scaled: Annotated[
        bool,
        flag(
            "--assume-scaled",
            "With --scores: also the bound that assumes the ledger's noise, times some factor, and canaries that do not "
            "disturb each other.",
        ),
    ] = False,
    canaries: Annotated[
        int | None,
        typer.Option(parser=whole, metavar="N", help="With --plan: in each run; 1000 by default."),
    ] = None,
    trials: Annotated[
        int | None,
        typer.Option(parser=whole, metavar="N", help="With --plan: runs; 20 by default."),
    ] = None,
    processes: Annotated[
        int | None,
        typer.Option(
            parser=whole, metavar="N", help="With --plan: that share the runs; 1 by default."
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write the audit of LEDGER, for `discreet report --audit`."
        ),
    ] = None,
    as_json: AsJson = False,
    budget_epsilon: BudgetEpsilon = None,
    budget_delta: BudgetDelta = None,
) -> Answer:
    """Test a claim by attack: PASS, or FAIL if what was measured is above what is claimed. Exits
    with 1 unless it is PASS.

    Either with the scores of an attack on training runs, or, with --plan, by an attack on the
    plan's own mechanism. Of a true claim FAIL is said with probability 1 - confidence at most; PASS
    proves nothing.
    """
    refuse_budget(budget_epsilon, budget_delta)
    _check_inputs(path, scores, plan, output)
    _check_options(
        "--plan" if scores is None else "--scores",
        {
            "--canaries": canaries,
            "--trials": trials,
            "--processes": processes,
            "--assume-scaled": assume_scaled or None,
        },
    )
    check_outputs(
        [output], suffixes=(".json",), force=False, inputs=[path, scores, plan], forcible=False
    )
    check.fraction(
        "audit", "confidence", confidence
    )  # as everything that can be refused before anything long runs
    found = None if scores is None else read_scores(scores)
    declared = None if plan is None else read_plan(plan)
    from discreet import verdict
    from discreet.auditing.attacks.white_box import independent
    from discreet.report.facts.own_plans import known_delta

    with nullcontext() if path is None else read_ledger(path) as ledger:
        source: Any = declared if ledger is None else ledger
        if delta is None and declared is not None and declared.target is not None:
            delta = declared.target.delta
        if delta is None and ledger is not None:
            delta = known_delta(ledger.snapshot())
        if declared is not None:
            if ledger is not None:
                _check_same(declared, ledger)
            verdict.claim_of(source, delta=delta)
            found = _attack(
                declared,
                _CANARIES if canaries is None else canaries,
                _TRIALS if trials is None else trials,
                1 if processes is None else processes,
            )
        scaled = assume_scaled or (declared is not None and independent(declared))
        made = verdict.audit(
            source,
            found,  # type: ignore[arg-type]  # read or just made
            delta=delta,
            confidence=confidence,
            assume_scaled=scaled,
        )
    if output is not None and made.audit is not None:
        made.audit.save(output)
    shown = [
        str(made),
        *([_MECHANISM] if plan is not None else []),
        *([f"Written: {output}"] if output is not None else []),
    ]
    return Answer(
        data=_data(made, output), shown=shown, code=YES if made.passed else NO, as_json=as_json
    )


def _check_inputs(
    path: Path | None, scores: Path | None, plan: Path | None, output: Path | None
) -> None:
    if (scores is None) == (plan is None):
        got = "neither" if scores is None else "both"
        raise DiscreetError(
            expected="--scores or --plan, but not both", got=got, do="Give what is to be attacked."
        )
    if path is None and (scores is not None or output is not None):
        option = "--scores" if scores is not None else "--output"
        do = "Name the ledger: what is written, and what scores say, is about one."
        raise DiscreetError(expected=f"a LEDGER with {option}", got="none", do=do)


def _check_options(mode: str, given: Mapping[str, object]) -> None:
    """Refuse what would be ignored."""
    for option, value in given.items():
        if value is None or mode == ("--scores" if option == "--assume-scaled" else "--plan"):
            continue
        if mode == "--plan":
            do = "Leave it out: with --plan this bound is asked wherever what it assumes is proven."
            raise DiscreetError(
                expected="--assume-scaled with --scores", got="it with --plan", do=do
            )
        do = "Leave it out: the scores say how many canaries and runs there were."
        raise DiscreetError(expected=f"{option} with --plan", got="it with --scores", do=do)


def _check_same(plan: Plan, ledger: Ledger) -> None:
    """Refuse to lay an attack on one mechanism against the claim of another."""
    charged: dict[Any, int] = {}
    for charge in ledger.charges():
        key = (charge.step, charge.run.unit, charge.run.adjacency, charge.run.parameters)
        charged[key] = charged.get(key, 0) + charge.count
    if charged != {(plan.step, plan.unit, plan.adjacency, Parameters.FIXED_IN_ADVANCE): plan.steps}:
        raise DiscreetError(
            expected="a ledger that holds the steps of the plan, fixed in advance, and no others",
            got="other steps, another number of them, or steps chosen from outputs",
            do="`discreet verify --plan` says which. Audit the plan alone, without LEDGER.",
        )


def _attack(plan: Plan, canaries: int, trials: int, processes: int) -> Scores:
    from discreet.auditing import white_box

    with _bar(trials) as progress:
        return white_box(
            plan, canaries=canaries, trials=trials, processes=processes, progress=progress
        )


@contextmanager
def _bar(trials: int) -> Iterator[Callable[[int, int], None]]:
    """On standard error, if it is a terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("attacking"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(
        *columns, console=console, disable=not console.is_terminal, transient=True
    ) as bar:
        task = bar.add_task("attacking", total=trials)
        yield lambda done, _: bar.update(task, completed=done)


def _data(made: Verdict, output: Path | None) -> dict[str, Any]:
    return {
        "outcome": made.outcome,
        "passed": made.passed,
        "reached": made.reached,
        "claim": guarantee_data(made.claim),
        "estimates": [
            {"method": one.method, "epsilon_lower": one.lower, "assumes": one.assumes}
            for one in made.estimates
        ],
        "confidence": made.confidence,
        "attack": made.attack,
        "canaries": made.canaries,
        "trials": made.trials,
        "written": None if output is None else str(output),
    }
