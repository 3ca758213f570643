"""Trials one after the other; on private data each is charged, scored with noise, and stopped by
the budget.

For each trial on private data:

    does it fit, with its score? -> trial (trains, and charges the ledger under the trial's label)
    -> the ledger has that charge, which its budget admitted -> score (charged, noised) -> next
    trial

Guarantee, for private data: every released score was charged before it was drawn, to the ledger
that the trial charged; after a trial that charged nothing, or past the budget, nothing more is
released. The ledger is held to a filter or an odometer, which covers whatever is chosen from
outputs (P39), or to a list of all trials. What a trial does beside the ledger, no ledger shows.
"""

from __future__ import annotations

import math
import numbers
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from discreet import _validate as check
from discreet.errors import BudgetExceeded, LedgerMisuse, ParameterError
from discreet.ledger import Ledger
from discreet.ledger._provenance import now
from discreet.plan import Plan
from discreet.tuning.data import Data, Private, Public, Synthetic
from discreet.tuning.record import Method, Trial, Tuning, TuningKind
from discreet.tuning.score import released_score, score_plan
from discreet.tuning.settings import Settings
from discreet.tuning.shown import trials_bar
from discreet.units import Parameters

__all__ = ["Sweep", "TrialFunction", "sweep"]

TrialFunction: TypeAlias = Callable[[Settings], Any]
"""Trains once. Returns the score (public and synthetic data), or one value in [0, 1] per validation
record (private data).
"""

# Characters of a trial's label; that of its score is a little longer, and labels end at 200.
_LONGEST = 190

# Ends the label of a score's run.
_SCORE = ", score"


@dataclass(frozen=True, slots=True)
class Sweep:
    """The trials that were made, and why no more of them.

    Args:
        trials: that were made, in their order.
        data: on which.
        stopped: why there are fewer than asked for; empty if there are not.
        head: of the ledger afterwards, for private data.
    """

    trials: tuple[Trial, ...]
    data: Data
    stopped: str
    head: str | None

    def scores(self, owner: str) -> dict[int, float]:
        """The score of every trial that has one, by its number; an error if none has."""
        scores = {
            number: trial.score
            for number, trial in enumerate(self.trials)
            if trial.score is not None
        }
        if scores:
            return scores

        # Two reasons for having none, and another remedy for each: no budget, or no convergence.
        if self.stopped:
            raise BudgetExceeded(
                expected="a budget for one trial and its score",
                got=self.stopped,
                do=_advice(self.data),
            )

        raise ParameterError(
            owner=owner,
            name="trial",
            expected="a finite score, once at least",
            got="none",
            do="Widen the sweep.",
        )

    def record(self, method: Method, chosen: int | None) -> Tuning:
        """Make the record of the sweep, for the report."""
        data = self.data
        kinds = {
            Public: TuningKind.PUBLIC,
            Synthetic: TuningKind.SYNTHETIC,
            Private: TuningKind.PRIVATE,
        }
        return Tuning(
            method=method,
            kind=kinds[type(data)],
            name=data.name,
            about=data.about,
            trials=self.trials,
            chosen=chosen,
            score_noise=data.score_noise if isinstance(data, Private) else 0.0,
            ledger_head=self.head,
            made=now(),
        )


def _advice(data: Data) -> str:
    """Say what to do where not one trial fits."""
    if isinstance(data, Private) and data.parameters is Parameters.FIXED_IN_ADVANCE:
        return (
            "Only trials that were fixed before the first release fit a list; a filter or an "
            "odometer admits others."
        )

    return "Give the plan more noise, or another ledger a larger budget before its first run."


def sweep(
    owner: str,
    trial: TrialFunction,
    tries: Sequence[tuple[Mapping[str, float], Plan]],
    *,
    data: Data,
    enough: float | None = None,
    progress: bool | None,
) -> Sweep:
    """Make a trial of each of these values with its plan.

    Args:
        owner: in errors.
        trial: trains once.
        tries: values to try, each with its plan, in order.
        data: on which.
        enough: a score after which no further trial is made.
        progress: whether a bar is shown; None: in a terminal.
    """
    check.member(owner, "data", data, (Public, Synthetic, Private))
    if not callable(trial):
        raise ParameterError(
            owner=owner, name="trial", expected="a function of settings", got=type(trial).__name__
        )

    # A name of its own for each sweep: a second one on the same ledger must not find its labels
    # taken, nor take the first one's charges for its own.
    name = secrets.token_hex(4)
    wanted = math.inf if enough is None else enough
    trials: list[Trial] = []
    stopped = ""

    with trials_bar(len(tries), shown=progress) as advance:
        for number, (values, plan) in enumerate(tries, 1):
            settings = Settings(label=_label(name, number, values), plan=plan, values=values)
            if isinstance(data, Private):
                attempt, stopped = _private(trial, settings, data)
            else:
                attempt = Trial(values, _score(owner, trial(settings)))

            # A trial that was charged counts even if the budget ended before its score.
            if attempt is not None:
                trials.append(attempt)

            best = max((each.score for each in trials if each.score is not None), default=None)

            if stopped or (best is not None and best >= wanted):
                break

            advance(best)

    # Of the ledger as it is now, so that the record holds for all charges above.
    head = data.ledger.head() if isinstance(data, Private) else None
    return Sweep(tuple(trials), data, stopped, head)


def _label(name: str, number: int, values: Mapping[str, float]) -> str:
    # Cut at the end: what tells labels apart stands first.
    what = ", ".join(f"{key} {value:g}" for key, value in values.items())
    return f"tuning {name}, trial {number}: {what}"[:_LONGEST]


def _score(owner: str, score: object) -> float | None:
    """Require a number; one that is not finite counts as no score."""
    expected = "a number, the higher the better, from the trial"
    try:
        return check.real(owner, "score", score, expected=expected)
    except ParameterError:
        # Training diverged: a result too.
        if isinstance(score, numbers.Real) and not math.isfinite(score):
            return None

        raise


def _private(trial: TrialFunction, settings: Settings, data: Private) -> tuple[Trial | None, str]:
    """Make one trial on private data; it counts if anything was charged for it.

    Returns:
        The trial, and why the sweep ends here, if it does.
    """
    ledger, label = data.ledger, settings.label

    # Asked before, with the score: a trial whose score does not fit would be paid for in vain.
    stopped = _without_room(settings, data)
    if stopped:
        return None, stopped

    # Nothing of what the trial returned is released unless the ledger shows that it was charged.
    try:
        values = trial(settings)
        _check_charged(ledger, label)
        score = released_score(values, data, settings.plan, label + _SCORE)

    # All the same the trial may have charged more than its plan, or others drew on the ledger.
    except BudgetExceeded as wrong:
        stopped = f"the budget refused {label}: {wrong.got}"
        if not _charged(ledger, label):
            return None, stopped

        return Trial(settings.values, None, (label,)), stopped

    return Trial(settings.values, score, (label, label + _SCORE)), ""


def _without_room(settings: Settings, data: Private) -> str:
    """Say why the trial and its score would not fit what is left of the budget; empty if they do.

    Nothing is charged.
    """
    _check_unmarked(data.ledger)
    score = score_plan(data, settings.plan)

    # Trial and score are two runs; whether both fit is asked as if they were one.
    info = settings.plan.run_info(parameters=data.parameters)
    groups = tuple({*info.groups, *score.run_info().groups})
    planned = [(plan.step, plan.steps) for plan in (settings.plan, score)]
    try:
        data.ledger.check_admits(replace(info, groups=groups), planned)
    except BudgetExceeded as wrong:
        return f"the next trial does not fit the budget: {wrong.got}"

    return ""


def _charged(ledger: Ledger, label: str) -> int:
    # Steps under this label: the run may have been charged in several pieces.
    return sum(charge.count for charge in ledger.charges() if charge.run.label == label)


def _check_charged(ledger: Ledger, label: str) -> None:
    if not _charged(ledger, label):
        raise LedgerMisuse(
            expected=(
                "a trial that charges its run to the ledger of the private data, under the label "
                f"{label!r}"
            ),
            got="a trial that charged nothing there",
            do=(
                "Train with PrivateRun(..., ledger=..., label=settings.label), or Aggregator. No "
                "score was released."
            ),
        )

    # The trial itself may have marked the ledger: with a test key, or a plan without noise.
    _check_unmarked(ledger)


def _check_unmarked(ledger: Ledger) -> None:
    marks = ledger.marks()
    if marks:
        raise LedgerMisuse(
            expected="a ledger without marks",
            got=f"one that is marked {', '.join(marks)}",
            do="There is no guarantee to tune within. No score was released.",
        )
