"""Runs a recipe. What it may claim is read from its ledger, by the accountant, after it is done."""

from __future__ import annotations

import datetime as dt
import platform
import tempfile
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

import discreet as dp
from benchmarks.utility.recipe import Recipe
from benchmarks.utility.results import Certified, Results, Run
from discreet._digits import counted, downward, upward
from discreet.errors import AccountingError
from discreet.ledger.events import Everything, Poisson
from discreet.ledger.storage.rows import Charge
from discreet.plan import Target
from discreet.report.formats.words import multiplier

__all__ = ["Series", "certified", "charge_words"]


def charge_words(charge: Charge) -> str:
    """One charge of a ledger, in words."""
    match charge.step.sampling:
        case Everything():
            drawn = "all records"
        case Poisson(probability):
            drawn = f"samples of probability {probability:.4g}"
        case other:
            drawn = str(other)
    asked = []
    for query in charge.step.queries:
        noise = multiplier(query)
        amount = "" if noise is None else f", noise multiplier {downward(noise)}"
        asked.append(f"{query.group} ({query.phrase}{amount})")
    label = f"{charge.run.label}: " if charge.run.label else ""
    return f"{label}{counted(charge.count, 'step')} on {drawn}: {', '.join(asked)}"


def certified(path: Path, target: Target) -> Certified:
    """What the ledger says at the target's delta.

    Raises:
        AccountingError: it says nothing, more than the target, or of something else than one
            example added or removed.
    """
    with dp.Ledger.open(path, "r") as ledger:
        found = dp.account(ledger.verify(), delta=target.delta)
        charges = tuple(charge_words(charge) for charge in ledger.charges())
    as_the_page_says = (
        found.unit == dp.Unit.EXAMPLE and found.adjacency is dp.Adjacency.ADD_OR_REMOVE
    )
    as_executed = not found.voided_by and found.numerics is not dp.Numerics.IDEALISED
    if not (as_the_page_says and as_executed and found.upper <= target.epsilon):
        raise AccountingError(
            expected=(
                f"a ledger within epsilon {target.epsilon!r} at delta {target.delta!r}, one "
                "example added or removed"
            ),
            got=str(found),
            do=(
                "The recipe is wrong: calibrate everything that it asks of the data together. "
                "Nothing was written down."
            ),
        )
    return Certified(found.lower, found.upper, found.delta, str(found), charges)


@dataclass(frozen=True, slots=True)
class Series:
    """Several runs of one recipe.

    Attributes:
        recipe: which.
        data: folder of the data sets.
        results: folder of the results.
        console: where progress is shown.
    """

    recipe: Recipe[Any]
    data: Path
    results: Path
    console: Console

    def run(
        self, epsilons: list[float | None], runs: int, *, replace: bool = False
    ) -> list[Results]:
        """So many runs at each epsilon (None: without privacy), added to the results after each
        run.

        Args:
            epsilons: targets.
            runs: at each of them.
            replace: forget what earlier runs reached.
        """
        recipe = self.recipe
        self.console.print(f"{recipe.name} ({recipe.title}): {recipe.model}")
        began = time.perf_counter()
        prepared = recipe.prepare(self.data)
        seconds = time.perf_counter() - began
        self.console.print(f"data and features: {seconds:.0f} s")
        every = []
        for epsilon in epsilons:
            found = (
                Results(recipe.name, epsilon)
                if replace
                else Results.read(self.results, recipe.name, epsilon)
            )
            for _ in range(runs):
                found = found.with_run(self._one(prepared, epsilon, seconds))
                found.write(self.results)
                self._show(found)
            every.append(found)
        self._table(every)
        return every

    def _one(self, prepared: Any, epsilon: float | None, prepare_seconds: float) -> Run:
        target = None if epsilon is None else Target(epsilon, self.recipe.delta)
        with tempfile.TemporaryDirectory() as folder:
            ledger = Path(folder) / "run.ledger"
            began, cpu = time.perf_counter(), time.process_time()
            accuracy = self.recipe.train(prepared, target, ledger)
            seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
            claim = None if target is None else certified(ledger, target)
        return Run(
            accuracy=accuracy,
            certified=claim,
            prepare_seconds=round(prepare_seconds, 1),
            train_seconds=round(seconds, 1),
            cpu_seconds=round(cpu, 1),
            threads=torch.get_num_threads(),
            software={
                "python": platform.python_version(),
                "discreet": dp.__version__,
                **{name: version(name).partition("+")[0] for name in ("numpy", "torch")},
            },
            date=dt.datetime.now(dt.UTC).date().isoformat(),
        )

    def _show(self, found: Results) -> None:
        last = found.runs[-1]
        claim = (
            "without privacy"
            if last.certified is None
            else f"epsilon {upward(last.certified.upper)}"
        )
        self.console.print(f"  {claim}: {last.accuracy:.2%} in {last.train_seconds:.0f} s")

    def _table(self, every: list[Results]) -> None:
        table = Table(title=f"{self.recipe.name}: test accuracy, all runs on file")
        for name in ("epsilon", "certified", "runs", "mean", "spread", "least", "most", "seconds"):
            table.add_column(name, justify="right")
        for found in every:
            if not found.runs:
                continue
            claims = [run.certified.upper for run in found.runs if run.certified is not None]
            table.add_row(
                "none" if found.epsilon is None else f"{found.epsilon:g}",
                upward(max(claims)) if claims else "-",
                str(len(found.runs)),
                f"{found.mean:.2%}",
                f"{found.spread:.2%}",
                f"{min(found.accuracies):.2%}",
                f"{max(found.accuracies):.2%}",
                f"{max(run.train_seconds for run in found.runs):.0f}",
            )
        self.console.print(table)
