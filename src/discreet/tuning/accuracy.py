"""Tuning when privacy and accuracy are given: how much noise the model tolerates, and which batch
reaches epsilon with it.

For a large enough batch, the accuracy is essentially determined by the standard deviation of the
noise in the average gradient, noise_std / expected_batch_size, if steps, clip norm and everything
else stay the same [Ponomareva2023, section 5.4.1]. So trials at a small batch, which are cheap,
tell how much noise is tolerated; the accountant then finds the batch at which as much noise meets
epsilon. It is a prediction, and it rests on that assumption.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from discreet import _validate as check
from discreet.errors import AccountingError, ParameterError
from discreet.plan import Plan, Target
from discreet.recipes import plan_at_average_noise
from discreet.sampling import Sampler
from discreet.tuning.data import Data, Private
from discreet.tuning.record import Method, Trial, Tuning
from discreet.tuning.settings import checked_plan, distinct, gaussian_of, with_gaussian
from discreet.tuning.shown import Picture, PlottedLine, draw, source, trials_table
from discreet.tuning.sweep import TrialFunction, sweep

__all__ = ["AccuracyTuning", "tune_for_accuracy"]


@dataclass(frozen=True, slots=True)
class AccuracyTuning:
    """The trials of `tune_for_accuracy`, and the plan that they lead to.

    Args:
        tuning: all trials, for the report.
        accuracy: that was asked for.
        plan: the smallest batch that meets the target with the noise of the chosen trial; None
            where there is none.
        trouble: why there is no plan, or fewer trials than asked for; empty if neither.
    """

    tuning: Tuning
    accuracy: float
    plan: Plan | None
    trouble: str = ""

    @property
    def average_noise(self) -> float | None:
        """The largest noise in the average gradient such that its trial, and all with less, reached
        the accuracy; or None.
        """
        chosen = self.tuning.chosen
        return None if chosen is None else self.tuning.trials[chosen].values["average_noise"]

    @property
    def prediction(self) -> str:
        """What is predicted, and what it assumes."""
        if self.plan is None:
            return f"No prediction: {self.trouble}."

        goal = self.plan.target
        meets = ""
        if goal is not None:
            meets = f", which by itself meets epsilon {goal.epsilon:g} at delta {goal.delta:g},"

        # The sentence names what it assumes, so that nobody quotes the number without it.
        return (
            "Predicted, not measured: a plan with an expected batch of "
            f"{self.plan.expected_batch_size:g} and noise multiplier "
            f"{self.plan.noise_multiplier:.4g}{meets} reaches a score of {self.accuracy:g}. "
            "It assumes that the score depends on the noise in the average gradient alone, steps, "
            "clip norm and learning rate being the same, and that the data of the trials are like "
            "those of the plan. Larger batches may generalise worse; try smaller learning rates "
            "too."
        )

    def __str__(self) -> str:
        # Without a plan the prediction itself says what the trouble is.
        lines = trials_table(self.tuning)
        if self.trouble and self.plan is not None:
            lines.append(f"Stopped early: {self.trouble}.")

        return "\n".join([*lines, self.prediction])

    def plot(self, path: str | os.PathLike[str]) -> Path:
        """Draw scores against the noise in the average gradient, as PNG or SVG."""
        points = self.tuning.points("average_noise")
        picture = Picture(
            title=f"What noise is tolerated, on {source(self.tuning)}",
            across="noise in the average gradient, noise_std / expected_batch_size",
            lines=(PlottedLine("score", points),),
            chosen=next((point for point in points if point[0] == self.average_noise), None),
            level=(self.accuracy, f"wanted: {self.accuracy:g}"),
            noise=self.tuning.score_noise,
        )
        return draw("AccuracyTuning.plot", path, picture)


def tune_for_accuracy(
    trial: TrialFunction,
    plan: Plan,
    *,
    average_noises: Iterable[float],
    accuracy: float,
    data: Data,
    progress: bool | None = None,
) -> AccuracyTuning:
    """Try several amounts of noise at a small batch, and find the batch that meets the plan's
    target with the most tolerated.

    The plan that comes back meets epsilon by the accountant; that it reaches the accuracy is
    predicted.

    Args:
        trial: trains once with `settings.plan` (or `settings.plan_for(records)`).
        plan: for the private data, with a small batch, the steps and the target:
            `Plan.dpsgd(records=, expected_batch_size=small, steps=, clip_norm=, epsilon=, delta=)`.
            Its noise does not matter.
        average_noises: to try: noise_std / expected_batch_size, in the gradient's unit.
        accuracy: score that is wanted.
        data: on which. On private data every trial is charged, the most noise first, until one
            reaches the accuracy: less noise costs more. What is left of the budget must then hold
            the plan that comes back.
        progress: whether a bar is shown; None: in a terminal.

    >>> from discreet.tuning import Synthetic
    >>> plan = Plan.dpsgd(records=2_000, expected_batch_size=200, steps=10, epsilon=2.0, delta=1e-5)
    >>> def trial(settings):
    ...     return 1.0 - 30 * settings.values["average_noise"]
    >>> noises, data = [0.002, 0.004, 0.008], Synthetic("a formula")
    >>> tuned = tune_for_accuracy(trial, plan, average_noises=noises, accuracy=0.85, data=data)
    >>> tuned.average_noise, tuned.plan.expected_batch_size, tuned.plan.steps
    (0.004, 513.0, 10)
    """
    owner = "tune_for_accuracy"
    small, target = checked_plan(owner, plan), _target(owner, plan)
    wanted = check.real(owner, "accuracy", accuracy)
    clip_norm = gaussian_of(owner, small).clip_norm

    # The most noise first: it costs least, and on private data the first that is good ends it.
    tries = []
    for noise in sorted(distinct(owner, "average_noises", average_noises), reverse=True):
        multiplier = noise * small.expected_batch_size / clip_norm
        noised = with_gaussian(small, clip_norm=clip_norm, noise_multiplier=multiplier)
        tries.append(({"average_noise": noise}, noised))

    enough = wanted if isinstance(data, Private) else None
    results = sweep(owner, trial, tries, data=data, enough=enough, progress=progress)
    results.scores(owner)  # an error if there is none

    chosen = _tolerated(results.trials, wanted)
    tuning = results.record(Method.ACCURACY, chosen)
    if chosen is None:
        trouble = results.stopped or "not even the least noise that was tried reaches the accuracy"
        return AccuracyTuning(tuning, wanted, None, trouble)

    # The same noise on the average at a larger batch is more noise on the sum, and costs less. That
    # no batch is large enough is an answer, and the trials are in the record all the same.
    try:
        predicted = plan_at_average_noise(
            records=_records(small),
            average_noise=tuning.trials[chosen].values["average_noise"],
            epsilon=target.epsilon,
            delta=target.delta,
            steps=small.steps,
            clip_norm=clip_norm,
        )
    except AccountingError as wrong:
        trouble = f"not even all records at once meet epsilon ({wrong.got})"
        return AccuracyTuning(tuning, wanted, None, trouble)

    return AccuracyTuning(tuning, wanted, predicted, results.stopped)


def _tolerated(trials: Sequence[Trial], wanted: float) -> int | None:
    """Find the trial with the most noise such that it, and all with less, reach the score.

    Trials are ordered by their noise, the most first.
    """
    # From the least noise upwards, until the first that fails: a good score beyond it is luck, and
    # nothing to plan with.
    chosen = None
    for number, trial in reversed(list(enumerate(trials))):
        if trial.score is None or trial.score < wanted:
            break

        chosen = number

    return chosen


def _records(plan: Plan) -> int:
    sampler = check.instance("tune_for_accuracy", "plan", plan.sampler, Sampler)
    return sampler.records


def _target(owner: str, plan: Plan) -> Target:
    if plan.target is None:
        raise ParameterError(
            owner=owner,
            name="plan",
            expected="one with a target",
            got="one without",
            do="Make it with Plan.dpsgd(..., epsilon=, delta=).",
        )

    return plan.target
