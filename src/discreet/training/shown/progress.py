"""Epsilon while a run goes on, and the bar that shows it."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from discreet._files import is_terminal
from discreet.accounting import LiveEpsilon, account
from discreet.errors import AccountingError
from discreet.ledger import Ledger, Rule
from discreet.plan import Plan
from discreet.training.shown.logs import Logged

__all__ = ["Meter", "ProgressBar"]

_LOOK_AHEAD = 0.25

# Seconds between two drawings of the bar.
_REFRESH = 0.25

# Releases over which the bar averages a statistic.
_WINDOW = 20


class Meter:
    """An upper bound on what the ledger has spent at one delta, while a run takes its steps.

    Guarantee: `after(k)` is at least the certified epsilon of everything that the ledger held when
    the run began and of k steps of this run. None where no running bound is valid: a ledger that is
    held to a filter or an odometer, a plan or a ledger that is void.

    Args:
        ledger: before the run begins.
        plan: of the run.
        delta: in (0, 1).
        steps: that the run will take.

    Attributes:
        at_end: the bound after all steps of the run.
    """

    def __init__(self, ledger: Ledger, plan: Plan, *, delta: float, steps: int) -> None:
        self.at_end: float | None = None
        self._taken = 0
        self._live: LiveEpsilon | None = None

        # Under a filter or an odometer no running bound is valid, and nothing is shown.
        snapshot = ledger.snapshot()
        if not plan.private or snapshot.marks or snapshot.rule not in (None, Rule.LIST):
            return

        self._step = plan.step
        charged = snapshot.charged()

        # Of a list all that was planned counts, whether it is charged or not.
        is_list, terms = snapshot.rule is Rule.LIST, snapshot.terms
        planned = snapshot.counted() if is_list else (*charged.items(), (self._step, steps))

        # Epsilon is narrowed near the budget, where a digit more decides.
        limit = terms.epsilon if terms is not None and terms.delta == delta else None

        try:
            guarantee = account(planned, delta=delta, limit=limit, adjacency=plan.adjacency)
            self.at_end = guarantee.upper
            self._live = LiveEpsilon(
                delta=delta,
                adjacency=plan.adjacency,
                look_ahead=_LOOK_AHEAD,
                before=charged.items(),
            )
        except AccountingError:
            # No single statement covers this ledger; the guarantee will say why.
            self.at_end = self._live = None

    def after(self, taken: int) -> float | None:
        """The bound after so many steps of the run; asked for in rising order."""
        if self._live is None or self.at_end is None:
            return None

        # Several batches may be of one step: only steps that are new are added.
        if taken > self._taken:
            self._live.add(self._step, taken - self._taken)
            self._taken = taken

        # The end is a bound at any time before it, and sometimes the smaller one.
        return min(self._live.epsilon, self.at_end)


class ProgressBar:
    """A progress bar on standard error: steps, time, rate, epsilon now and at the end, budget or
    target, private metrics.

    Released and public values, but for the time: how long steps take depends on the sizes of
    samples, and no guarantee covers it (docs/proofs/engine.md). No log and no file has it.

    Args:
        shown: True or False; None shows it if standard error is a terminal.
    """

    def __init__(self, *, shown: bool | None) -> None:
        # Everything in these columns is released or public, but for the time.
        columns = (
            BarColumn(bar_width=None),  # takes what the others leave
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[spent]}"),
        )

        # In a file, or in a pipe, a bar is a thousand lines.
        visible = is_terminal(sys.stderr) if shown is None else shown
        self._bar = Progress(
            *columns,
            console=Console(stderr=True),
            auto_refresh=False,
            disable=not visible,
            # Else what a user prints into a file would land on standard error.
            redirect_stdout=is_terminal(sys.stdout),
        )
        self._terms: tuple[float | None, str] = None, ""
        self._began = self._refreshed = 0.0
        self._released = 0
        self._recent: dict[str, list[float]] = {}

    @property
    def visible(self) -> bool:
        """Whether the bar is shown at all."""
        return not self._bar.disable

    @contextmanager
    def over(self, total: int, done: int, *, end: float | None, limit: str) -> Iterator[None]:
        """Show the bar for the time of a block.

        Args:
            total: batches of the whole plan.
            done: batches that were taken before.
            end: epsilon at the end.
            limit: epsilon of a budget, which is enforced, or of a target, which is not: "budget 3",
                "target 3"; or nothing.
        """
        # What does not change while the bar is shown.
        self._terms = end, limit
        self._began = self._refreshed = time.monotonic()
        self._bar.add_task(
            "training", total=total, completed=done, rate="", spent=_spent(None, end, limit)
        )

        with self._bar:
            yield

            # The last numbers are drawn whatever the clock says.
            self._bar.refresh()

    def advance(self, logged: Logged) -> None:
        """Count one released batch, and show its numbers."""
        self._released += 1

        # A statistic is noisy: the bar shows its average over the last releases.
        for name, mean in logged.means.items():
            if mean.size == 1:
                self._recent[name] = [*self._recent.get(name, ())[-_WINDOW + 1 :], float(mean[0])]

        # By a clock that nobody sets back; the least time keeps the first rate finite.
        now = time.monotonic()
        rate = f"{self._released / max(now - self._began, 1e-9):.1f}/s"
        spent = _spent(logged.epsilon, *self._terms) + self._metrics()

        for task in self._bar.task_ids:
            self._bar.update(task, advance=1, rate=rate, spent=spent)

        # Drawing takes longer than many a step: a few times in a second are enough.
        if now - self._refreshed >= _REFRESH:
            self._refreshed = now
            self._bar.refresh()

    def _metrics(self) -> str:
        # Averages of what was released: no more is known of a statistic than its logs say.
        return "".join(
            f" {name} {sum(values) / len(values):.3g}" for name, values in self._recent.items()
        )


def _spent(now: float | None, end: float | None, limit: str) -> str:
    """What was spent, in words; bounds are rounded up.

    >>> _spent(1.23401, 2.9991, "budget 3")
    'epsilon 1.235 (3.000 at the end, budget 3)'
    >>> _spent(None, None, "")
    ''
    """
    # "epsilon 1.2 (3.0 at the end, budget 3)", as far as these are known.
    at_end = "" if end is None else f"{_up(end)} at the end"
    terms = ", ".join(filter(None, (at_end, limit)))

    if now is None and not terms:
        return ""

    return f"epsilon {'' if now is None else _up(now) + ' '}({terms})"


def _up(value: float) -> str:
    return f"{math.ceil(value * 1000.0) / 1000.0:.3f}"
