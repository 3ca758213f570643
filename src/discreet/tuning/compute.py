"""Tuning when privacy and computation are given: the best learning rate at a calibrated plan
[Ponomareva2023, section 5.4.1].

The guide's steps, and who does them:

    1  the largest batch and the most epochs     you: Plan.dpsgd(records=, expected_batch_size=,
       that are feasible                         epochs=, ...)
    2  a good model without privacy              you
    3  the clip norm                             clip_search
    4  the noise for epsilon                     Plan.dpsgd(..., epsilon=, delta=), the accountant
    5  the learning rate, and clip norms near    tune_for_compute
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from discreet.errors import ParameterError
from discreet.plan import Plan
from discreet.tuning.data import Data
from discreet.tuning.record import Method, Trial, Tuning
from discreet.tuning.settings import checked_plan, distinct
from discreet.tuning.shown import Picture, PlottedLine, draw, source, trials_table
from discreet.tuning.sweep import TrialFunction, sweep

__all__ = ["ComputeTuning", "tune_for_compute"]

_ONE_CLIP_NORM = "one with a single clip norm for all gradients, where clip norms are tried"


@dataclass(frozen=True, slots=True)
class ComputeTuning:
    """The trials of `tune_for_compute`, and the plan of the best one.

    Args:
        tuning: all trials, for the report.
        plan: with the best clip norm; of the same noise multiplier, batch and steps, and thus the
            same epsilon.
        stopped: why there are fewer trials than asked for; empty if there are not.
    """

    tuning: Tuning
    plan: Plan
    stopped: str = ""

    @property
    def best(self) -> Trial:
        """The trial with the highest score."""
        return self.tuning.trials[self.tuning.chosen or 0]

    @property
    def learning_rate(self) -> float:
        """The learning rate of the best trial."""
        return self.best.values["learning_rate"]

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know before taking the numbers."""
        notes = []

        # Of two values the best is always at an end, and nothing follows from it.
        for name in self.tuning.names:
            tried = sorted({trial.values[name] for trial in self.tuning.trials})
            if len(tried) > 2 and self.best.values[name] in (tried[0], tried[-1]):
                notes.append(
                    f"The best {name} lies at the end of those that were tried: there may be "
                    "better ones beyond."
                )

        if self.stopped:
            notes.append(f"Stopped early: {self.stopped}.")

        return tuple(notes)

    def __str__(self) -> str:
        return "\n".join([*trials_table(self.tuning), *self.notes])

    def plot(self, path: str | os.PathLike[str]) -> Path:
        """Draw scores against learning rates, one line for each clip norm, as PNG or SVG."""
        points: dict[str, list[tuple[float, float]]] = {}
        for trial in self.tuning.trials:
            if trial.score is not None:
                clip_norm = trial.values.get("clip_norm")
                name = "score" if clip_norm is None else f"clip norm {clip_norm:g}"
                point = trial.values["learning_rate"], trial.score
                points.setdefault(name, []).append(point)

        # The chosen trial has a score; the type alone allows that there is none.
        score = self.best.score
        picture = Picture(
            title=f"Noise multiplier {self.plan.noise_multiplier:.4g}, on {source(self.tuning)}",
            across="learning rate",
            lines=tuple(PlottedLine(name, tuple(sorted(line))) for name, line in points.items()),
            chosen=None if score is None else (self.learning_rate, score),
            noise=self.tuning.score_noise,
        )
        return draw("ComputeTuning.plot", path, picture)


def tune_for_compute(
    trial: TrialFunction,
    plan: Plan,
    *,
    learning_rates: Iterable[float],
    clip_norms: Iterable[float] | None = None,
    data: Data,
    progress: bool | None = None,
) -> ComputeTuning:
    """Try learning rates, and clip norms if several are given, at the plan's noise, batch and
    steps.

    Epsilon is the same for every one of them: it depends on the noise multiplier, and not on the
    clip norm. On private data every trial is charged, in the order given; the sweep ends where the
    budget does. The model of the best trial is then already paid for: keep it, and no final
    training is needed.

    Args:
        trial: trains once with `settings.plan` (or `settings.plan_for(records)`) and
            `settings.learning_rate`.
        plan: calibrated, for the private data: `Plan.dpsgd(records=, expected_batch_size=, epochs=,
            epsilon=, delta=)`.
        learning_rates: to try.
        clip_norms: to try with each of them, in the vicinity of what `clip_search` found; None:
            that of the plan.
        data: on which.
        progress: whether a bar is shown; None: in a terminal.

    Raises:
        BudgetExceeded: private data, and not even one trial with its score fits.
        LedgerMisuse: private data, and a trial that charged nothing to the ledger.

    >>> from discreet.tuning import Synthetic
    >>> plan = Plan.dpsgd(records=1_000, expected_batch_size=100, epochs=2, epsilon=3.0)
    >>> def trial(settings):
    ...     return -abs(settings.learning_rate - 1.0)
    >>> data = Synthetic("a formula")
    >>> tuned = tune_for_compute(trial, plan, learning_rates=[0.1, 1.0, 10.0], data=data)
    >>> tuned.learning_rate, tuned.plan == plan
    (1.0, True)
    """
    owner = "tune_for_compute"
    checked_plan(owner, plan)
    rates = distinct(owner, "learning_rates", learning_rates)

    # All of it before the first trial, so that a wrong number costs no training and no privacy.
    tries: list[tuple[dict[str, float], Plan]] = []
    if clip_norms is None:
        tries = [({"learning_rate": rate}, plan) for rate in rates]
    else:
        for clip_norm in distinct(owner, "clip_norms", clip_norms):
            clipped = _clipped(owner, plan, clip_norm)
            tries += [({"learning_rate": rate, "clip_norm": clip_norm}, clipped) for rate in rates]

    results = sweep(owner, trial, tries, data=data, progress=progress)

    # The first of several that are equal.
    scores = results.scores(owner)
    chosen = max(scores, key=lambda number: scores[number])
    _, best_plan = tries[chosen]
    return ComputeTuning(results.record(Method.COMPUTE, chosen), best_plan, results.stopped)


def _clipped(owner: str, plan: Plan, clip_norm: float) -> Plan:
    """Put another clip norm into a plan, and certify it anew where it has a target."""
    try:
        mechanism = plan.mechanism.with_clip_norm(clip_norm)
    except ParameterError as wrong:
        raise ParameterError(
            owner=owner,
            name="plan",
            expected=_ONE_CLIP_NORM,
            got=wrong.got,
            do="Leave clip_norms out, or make it with Plan.dpsgd.",
        ) from None

    # The multiplier stays, and epsilon with it; that it still meets the target is certified anew,
    # before the plan carries it again.
    changed = replace(plan, mechanism=mechanism, target=None)
    return changed if plan.target is None else changed.certified(plan.target)
