"""`discreet audit`: does what an attack found contradict the claim?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from discreet import _validate as check
from discreet.cli.answer import NO, YES, Answer
from discreet.cli.files import (
    check_outputs,
    read_ledger,
    read_optional,
    read_plan,
    read_scores,
)
from discreet.cli.options import (
    AsJson,
    BudgetDelta,
    BudgetEpsilon,
    Delta,
    count_option,
    flag,
    number_option,
    refuse_budget,
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

__all__ = ["AUDIT_EXAMPLES", "audit"]

AUDIT_EXAMPLES = """Examples

  discreet audit --plan plan.toml
  discreet audit train.ledger --plan plan.toml --output audit.json
  discreet audit train.ledger --scores scores.json --delta 1e-6
  discreet report train.ledger --plan plan.toml --audit audit.json \\
    --out report.html
"""
# An attack of this size reached 90 % of epsilon 3 for 2344 steps of DP-SGD (docs/cli.md).
_SIZES = {"--canaries": 1000, "--trials": 20, "--processes": 1}
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
        number_option("NUMBER", "Of all bounds together, in (0, 1)."),
    ] = 0.95,
    assume_scaled: Annotated[
        bool,
        flag(
            "--assume-scaled",
            "With --scores: also the bound that assumes the ledger's noise, times some factor, "
            "and canaries that do not disturb each other.",
        ),
    ] = False,
    canaries: Annotated[
        int | None,
        count_option("With --plan: in each run; 1000 by default."),
    ] = None,
    trials: Annotated[
        int | None,
        count_option("With --plan: runs; 20 by default."),
    ] = None,
    processes: Annotated[
        int | None,
        count_option("With --plan: that share the runs; 1 by default."),
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
    """Test a claim by attack: PASS, or FAIL if what was measured is above what is claimed.

    Exits with 1 unless it is PASS. Either with the scores of an attack on training runs, or, with
    --plan, by an attack on the plan's own mechanism. Of a true claim FAIL is said with probability
    1 - confidence at most; PASS proves nothing.
    """
    refuse_budget(budget_epsilon, budget_delta)

    # The kind of attack decides which options mean anything; the others are refused by name.
    _check_inputs(path, scores, plan, output)
    sizes = {"--canaries": canaries, "--trials": trials, "--processes": processes}
    _check_options(sizes, by_plan=plan is not None, assume_scaled=assume_scaled)
    inputs = [path, scores, plan]
    check_outputs([output], suffixes=(".json",), force=False, inputs=inputs, forcible=False)

    # An attack takes minutes: what can be refused is refused before it begins.
    check.fraction("audit", "confidence", confidence)
    measured = read_optional(read_scores, scores)
    declared = read_optional(read_plan, plan)

    from discreet import verdict
    from discreet.auditing.attacks.white_box import independent

    with nullcontext() if path is None else read_ledger(path) as ledger:
        source: Any = declared if ledger is None else ledger
        if delta is None:
            delta = _delta(declared, ledger)

        if declared is not None:
            # Stated before the attack as well: a claim that cannot be stated needs no attack.
            _check_same(declared, ledger)
            verdict.claim_of(source, delta=delta)
            measured = _attack(declared, sizes)
            assume_scaled = independent(declared)

        result = verdict.audit(
            source,
            measured,  # type: ignore[arg-type]  # there are scores, or a plan was attacked
            delta=delta,
            confidence=confidence,
            assume_scaled=assume_scaled,
        )

    shown = [str(result)]
    if plan is not None:
        shown.append(_MECHANISM)

    # A plan that was attacked alone has no ledger that the audit's record could name.
    if output is not None and result.audit is not None:
        result.audit.save(output)
        shown.append(f"Written: {output}")

    code = YES if result.passed else NO
    return Answer(data=_data(result, output), shown=shown, code=code, as_json=as_json)


def _check_inputs(
    path: Path | None, scores: Path | None, plan: Path | None, output: Path | None
) -> None:
    # Exactly one of the two says what is attacked: runs by their scores, or a plan's mechanism.
    if (scores is None) == (plan is None):
        got = "neither" if scores is None else "both"
        raise DiscreetError(
            expected="--scores or --plan, but not both", got=got, do="Give what is to be attacked."
        )

    if path is None and (scores is not None or output is not None):
        option = "--scores" if scores is not None else "--output"
        raise DiscreetError(
            expected=f"a LEDGER with {option}",
            got="none",
            do="Name the ledger: what is written, and what scores say, is about one.",
        )


def _check_options(sizes: Mapping[str, int | None], *, by_plan: bool, assume_scaled: bool) -> None:
    """Refuse options of the other kind of attack, which would be ignored."""
    if by_plan and assume_scaled:
        raise DiscreetError(
            expected="--assume-scaled with --scores",
            got="it with --plan",
            do="Leave it out: with --plan this bound is asked wherever what it assumes is proven.",
        )

    ignored = [] if by_plan else [name for name, size in sizes.items() if size is not None]
    if ignored:
        raise DiscreetError(
            expected=f"{ignored[0]} with --plan",
            got="it with --scores",
            do="Leave it out: the scores say how many canaries and runs there were.",
        )


def _delta(plan: Plan | None, ledger: Ledger | None) -> float | None:
    """The delta of the claim where none was asked for: the plan's, or else the ledger's own."""
    from discreet.report.facts.own_plans import known_delta

    if plan is not None and plan.target is not None:
        return plan.target.delta

    # None is for `verdict` to refuse, in the words of the library.
    return None if ledger is None else known_delta(ledger.snapshot())


def _check_same(plan: Plan, ledger: Ledger | None) -> None:
    """Refuse to lay an attack on one mechanism against the claim of another."""
    if ledger is None:
        return

    # One plan may have been charged in several runs, of which none took all steps.
    charged: Counter[Any] = Counter()
    for charge in ledger.charges():
        run = charge.run
        charged[charge.step, run.unit, run.adjacency, run.parameters] += charge.count

    # Steps that were chosen from outputs are another mechanism, even if they are the same steps.
    planned = (plan.step, plan.unit, plan.adjacency, Parameters.FIXED_IN_ADVANCE)
    if dict(charged) != {planned: plan.steps}:
        raise DiscreetError(
            expected="a ledger that holds the steps of the plan, fixed in advance, and no others",
            got="other steps, another number of them, or steps chosen from outputs",
            do="`discreet verify --plan` says which. Audit the plan alone, without LEDGER.",
        )


def _attack(plan: Plan, sizes: Mapping[str, int | None]) -> Scores:
    from discreet.auditing import white_box

    # A size of 0 is none that was left out: the attack refuses it.
    canaries, trials, processes = (
        _SIZES[option] if size is None else size for option, size in sizes.items()
    )
    with _bar(trials) as progress:
        return white_box(
            plan, canaries=canaries, trials=trials, processes=processes, progress=progress
        )


@contextmanager
def _bar(trials: int) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on standard error, if that is a terminal: standard output is the answer's."""
    console = Console(stderr=True)
    columns = (TextColumn("attacking"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    hidden = not console.is_terminal
    with Progress(*columns, console=console, disable=hidden, transient=True) as bar:
        task = bar.add_task("attacking", total=trials)
        yield lambda done, _: bar.update(task, completed=done)


def _data(verdict: Verdict, output: Path | None) -> dict[str, Any]:
    return {
        "outcome": verdict.outcome,
        "passed": verdict.passed,
        "reached": verdict.reached,
        "claim": guarantee_data(verdict.claim),
        "estimates": [
            {
                "method": estimate.method,
                "epsilon_lower": estimate.lower,
                "assumes": estimate.assumes,
            }
            for estimate in verdict.estimates
        ],
        "confidence": verdict.confidence,
        "attack": verdict.attack,
        "canaries": verdict.canaries,
        "trials": verdict.trials,
        "written": None if output is None else str(output),
    }
