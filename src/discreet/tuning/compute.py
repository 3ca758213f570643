"""Tuning when privacy and computation are given: the best learning rate at a calibrated plan
[Ponomareva2023, section 5.4.1].

The guide's steps, and who does them:

    1  the largest batch and the most epochs that are feasible   you: Plan.dpsgd(records=, expected_batch_size=, epochs=, ...)
    2  a good model without privacy                              you
    3  the clip norm                                             clip_search
    4  the noise for epsilon                                     Plan.dpsgd(..., epsilon=, delta=), by the accountant
    5  the learning rate, and clip norms near by                 tune_for_compute
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from discreet.errors import ParameterError
from discreet.plan import Plan
from discreet.tuning.data import Data
from discreet.tuning.picture import Line, Picture, draw
from discreet.tuning.record import Method, Trial, Tuning
from discreet.tuning.settings import checked_plan
from discreet.tuning.sweep import TrialFunction, sweep
from discreet.tuning.table import lines, source
from discreet.tuning.values import distinct

__all__ = ["ComputeTuning", "tune_for_compute"]

_ONE_CLIP_NORM = "one with a single clip norm for all gradients, where clip norms are tried"


@dataclass(frozen=True, slots=True)
class ComputeTuning:
    """What `tune_for_compute` found.

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
        """Of the best trial."""
        return self.best.values["learning_rate"]

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know before taking the numbers."""
        found = []
        for name in self.tuning.names:
            tried = sorted({trial.values[name] for trial in self.tuning.trials})
            if len(tried) > 2 and self.best.values[name] in (tried[0], tried[-1]):
                found.append(
                    f"The best {name} lies at the end of those that were tried: there may be "
                    "better ones beyond."
                )
        return (*found, *([f"Stopped early: {self.stopped}."] if self.stopped else []))

    def __str__(self) -> str:
        return "\n".join([*lines(self.tuning), *self.notes])

    def plot(self, path: str | os.PathLike[str]) -> Path:
        """Draw scores against learning rates, one line for each clip norm, as PNG or SVG."""
        by_clip: dict[float | None, list[tuple[float, float]]] = {}
        for trial in self.tuning.trials:
            if trial.score is not None:
                point = trial.values["learning_rate"], trial.score
                by_clip.setdefault(trial.values.get("clip_norm"), []).append(point)
        score = self.best.score
        picture = Picture(
            title=f"Noise multiplier {self.plan.noise_multiplier:.4g}, on {source(self.tuning)}",
            across="learning rate",
            lines=tuple(
                Line(
                    "score" if clip_norm is None else f"clip norm {clip_norm:g}",
                    tuple(sorted(points)),
                )
                for clip_norm, points in by_clip.items()
            ),
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
    budget does. The model of the best trial is then
    already paid for: keep it, and no final training is needed.

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
    >>> found = tune_for_compute(lambda settings: -abs(settings.learning_rate - 1.0), plan,
    ...     learning_rates=[0.1, 1.0, 10.0], data=Synthetic("a formula"))
    >>> found.learning_rate, found.plan == plan
    (1.0, True)
    """
    owner = "tune_for_compute"
    checked_plan(owner, plan)
    rates = distinct(owner, "learning_rates", learning_rates)
    plans: dict[float | None, Plan] = {None: plan}
    if clip_norms is not None:
        plans = {
            clip_norm: _clipped(owner, plan, clip_norm)
            for clip_norm in distinct(owner, "clip_norms", clip_norms)
        }
    asked = [
        ({"learning_rate": rate} | ({} if clip_norm is None else {"clip_norm": clip_norm}), own)
        for clip_norm, own in plans.items()
        for rate in rates
    ]
    made = sweep(owner, trial, asked, data=data, progress=progress)
    best = max(score for score, _ in made.scored(owner))
    chosen = next(number for score, number in made.scored(owner) if score == best)
    found = plans[made.trials[chosen].values.get("clip_norm")]
    return ComputeTuning(made.record(Method.COMPUTE, chosen), found, made.stopped)


def _clipped(owner: str, plan: Plan, clip_norm: float) -> Plan:
    """The plan with another clip norm, certified anew where it has a target."""
    try:
        mechanism = plan.mechanism.with_clip_norm(clip_norm)
    except ParameterError as wrong:
        do = "Leave clip_norms out, or make it with Plan.dpsgd."
        raise ParameterError(
            owner=owner, name="plan", expected=_ONE_CLIP_NORM, got=wrong.got, do=do
        ) from None
    changed = replace(plan, mechanism=mechanism, target=None)
    return changed if plan.target is None else changed.certified(plan.target)
