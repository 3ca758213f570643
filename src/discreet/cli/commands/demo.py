"""`discreet demo`: train privately on public data, and see every piece at work."""

from __future__ import annotations

import math
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import discreet as dp
from discreet.cli.answer import Answer, sheet
from discreet.cli.files import read_ledger, write_all
from discreet.cli.options import AsJson, number_option
from discreet.cli.views.words import guarantee_data, guarantee_in_words
from discreet.errors import DiscreetError
from discreet.plan import Target

if TYPE_CHECKING:
    from types import ModuleType

    from discreet.training.shown.logs import Logged

__all__ = ["DEMO_EXAMPLES", "demo", "plan_for"]

DEMO_EXAMPLES = """Example

  discreet demo --epsilon 3 --into out
"""
_LABEL = "discreet demo: linear model on the features of scikit-learn's digits"
_LEDGER, _OTHERS = "demo.ledger", ("plan.toml", "report.html", "report.md")
_STEPS, _CLIP_NORM = 40, 0.2
# Steps over which the private accuracy is averaged: one release alone is mostly noise.
_LAST = 20


def demo(
    epsilon: Annotated[float, number_option("EPSILON", "The target.")] = 3.0,
    delta: Annotated[float, number_option("DELTA", "Of the target.")] = 1e-5,
    into: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Where the files go; made if it does not exist.")
    ] = Path("out"),
    as_json: AsJson = False,
) -> Answer:
    """Train a small model privately on scikit-learn's digits, and see every piece. Needs torch.

    The pieces are plan, live epsilon, guarantee, ledger, report. The digits are public, so the
    ledger of an earlier demo is replaced. The ledger of private data is never replaced: it is what
    their budget is counted by.
    """
    began = time.perf_counter()

    # What can be refused is refused before torch is imported, which takes seconds.
    target = Target(epsilon, delta)
    _check_folder(into)
    training = _training()
    plan = plan_for(target, training.RECORDS, training.STATISTIC)
    digits = training.load_digits()
    into.mkdir(parents=True, exist_ok=True)

    # On standard error, before the training begins: standard output is the answer's.
    if not as_json:
        sys.stderr.write(f"{plan.explain()}\n\n")

    files = [into / name for name in (_LEDGER, *_OTHERS)]

    # The data are public, and `_check_folder` saw that a demo wrote these files: only here may a
    # ledger be deleted.
    for path in files:
        path.unlink(missing_ok=True)

    # Released values only: what is logged of a step went through its noise.
    plan.save(into / "plan.toml")
    logged: list[Logged] = []
    model, guarantee = training.train(
        digits, plan, ledger=files[0], label=_LABEL, logs=[logged.append]
    )
    _write_report(files[0], plan, into)

    # The same model and number of steps without clipping and noise, to see what privacy costs here.
    plain = training.train_without_privacy(
        digits, steps=plan.steps, batch_size=round(plan.expected_batch_size)
    )
    private_accuracy, plain_accuracy = (
        training.accuracy(model, digits),
        training.accuracy(plain, digits),
    )
    metric, error = _averaged(logged[-_LAST:], training.STATISTIC)
    seconds = time.perf_counter() - began

    # None: what an attacker can do is left to `discreet account`.
    lines, facts = guarantee_in_words(guarantee, None)
    data: dict[str, Any] = {
        "guarantee": guarantee_data(guarantee),
        **facts,
        "test_accuracy": private_accuracy,
        "test_accuracy_without_privacy": plain_accuracy,
        "private_training_accuracy": metric,
        "private_training_accuracy_noise_std": error,
        "files": [str(path) for path in files],
        "seconds": seconds,
    }
    words = {
        "test accuracy": f"{private_accuracy:.1%} with privacy, {plain_accuracy:.1%} without",
        "training accuracy": (
            f"{min(1.0, metric):.0%} in the last {_LAST} steps, released with noise of {error:.0%}"
        ),
        "files": ", ".join(data["files"]),
        "time": f"{seconds:.1f} s",
    }
    note = (
        f"The digits are public: that is why {files[0]} may be replaced by the next demo, and why "
        "model and learning rate could be chosen by looking at them. The ledger of private data is "
        "never deleted."
    )
    return Answer(
        data=data, shown=[str(guarantee), *lines, "", sheet(words), "", note], as_json=as_json
    )


def _training() -> ModuleType:
    try:
        from discreet.training.extras import demo as training
    except ImportError as missing:
        raise DiscreetError(
            expected="PyTorch, for the demo",
            got=f"an installation without it ({missing})",
            do="Install it: pip install 'discreet[demo,torch]'. The other commands need no torch.",
        ) from None

    return training


def plan_for(target: Target, records: int, statistic: str) -> dp.Plan:
    """Gradients and the private accuracy of all records, 40 times; the accuracy takes less than 1 %
    of the budget.

    Args:
        target: to calibrate for.
        records: in the data.
        statistic: name of the accuracy.
    """
    from discreet.recipes import plan_with_scaled_noise

    # What counts here is the ratio of the two noises: calibrating scales both by one factor.
    groups = dp.Groups({"grad/*": dp.Gaussian(_CLIP_NORM, 1.0), statistic: dp.Gaussian(1.0, 12.0)})
    sampler = dp.Sampler(dp.Everything(), records=records, steps=_STEPS)
    return plan_with_scaled_noise(
        dp.Plan(sampler=sampler, mechanism=groups), epsilon=target.epsilon, delta=target.delta
    )


def _check_folder(into: Path) -> None:
    """Refuse to replace anything that no earlier demo wrote."""
    taken = [into / name for name in (_LEDGER, *_OTHERS) if os.path.lexists(into / name)]

    # The folder may not exist yet: then the nearest one above it that does must take it.
    nearest = next(filter(os.path.lexists, (into.absolute(), *into.absolute().parents)))
    if not (nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)):
        raise DiscreetError(
            expected="a folder to write to",
            got=str(into),
            do="Choose another --into. Nothing was written.",
        )

    if not taken:
        return

    # The label of its runs is what tells the ledger of a demo from that of private data.
    if into / _LEDGER in taken:
        with read_ledger(into / _LEDGER) as ledger:
            if {run.info.label for run in ledger.runs()} <= {_LABEL}:
                return

    raise DiscreetError(
        expected="a new folder, or one that an earlier demo wrote",
        got=", ".join(map(str, taken)),
        do="Choose another --into. Nothing was written.",
    )


def _write_report(path: Path, plan: dp.Plan, into: Path) -> None:
    from discreet.report import Report

    with dp.Ledger.open(path, "r") as ledger:
        page = Report.of(ledger, plan=plan)

    contents = {
        into / "report.html": page.html().encode(),
        into / "report.md": page.markdown().encode(),
    }
    write_all(contents, force=True)


def _averaged(steps: list[Logged], statistic: str) -> tuple[float, float]:
    """Mean of the last releases, and the standard deviation of its noise."""
    mean = sum(float(step.means[statistic][0]) for step in steps) / len(steps)

    # The noise of different steps is independent, so that its average shrinks with their root.
    return mean, steps[-1].noise_std[statistic] / math.sqrt(len(steps))
