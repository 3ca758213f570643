"""What a run shows of itself: its guarantee, epsilon while it goes on, a bar, logs. Released and
public values only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from discreet.accounting import account
from discreet.aggregation.release import Release
from discreet.aggregation.session import Session
from discreet.errors import ParameterError
from discreet.plan.calibrated import default_delta
from discreet.training.shown.logs import Log, Logged
from discreet.training.shown.progress import Meter, ProgressBar
from discreet.units import Guarantee

__all__ = ["Monitor"]


class Monitor:
    """What one run shows of itself while it goes on.

    Args:
        session: of the run.
        statistics: leaves whose releases are shown.
        logs: called after every release.
    """

    def __init__(
        self, session: Session, *, statistics: Mapping[str, int], logs: Sequence[Log]
    ) -> None:
        # Refused now: a log that is no function would fail after the first step was charged.
        for log in logs:
            function: object = log
            if not callable(function):
                raise ParameterError(
                    owner="PrivateRun",
                    name="logs",
                    expected="functions of what was released",
                    got=type(log).__name__,
                )

        self._plan, self._ledger = session.plan, session.ledger
        self._records = session.sampler.records
        self._statistics = statistics
        self._logs = tuple(logs)
        self._meter: Meter | None = None
        self._bar: ProgressBar | None = None
        self._start = 0

    def guarantee(self, delta: float | None) -> Guarantee:
        """The guarantee of everything that the ledger holds; see `PrivateRun.guarantee`."""
        # The bracket of epsilon is narrowed where it matters: at the plan's target, if it is one at
        # this delta.
        target, limit = self._plan.target, None
        if target is not None and delta in (None, target.delta):
            limit = target.epsilon

        return account(self._ledger, delta=self._delta if delta is None else delta, limit=limit)

    def begin(self, start: int, progress: bool | None) -> None:  # noqa: FBT001  (three values)
        """Look at the ledger when the run has begun, before its first charge.

        What is charged now was there before the run; marks are its own too.

        Args:
            start: first step of the run.
            progress: see `Bar.shown`.
        """
        bar = ProgressBar(shown=progress)

        # Nobody looks: no bound need be computed.
        if not (bar.visible or self._logs):
            return

        # The meter reads the ledger now: what it finds was spent before this run.
        self._start = start
        steps = self._plan.steps - start
        self._meter = Meter(self._ledger, self._plan, delta=self._delta, steps=steps)
        self._bar = bar if bar.visible else None

    @contextmanager
    def showing(self, batches: int, done: int) -> Iterator[None]:
        """Show the bar while batches are drawn.

        Args:
            batches: of the whole plan.
            done: of an earlier part of a run that is resumed.
        """
        # Batches are drawn in any case, with a bar or without.
        if self._bar is None or self._meter is None:
            yield
            return

        with self._bar.over(batches, done, end=self._meter.at_end, limit=self._limit):
            yield

    def note(self, released: Release, clip_norms: Mapping[str, float]) -> None:
        """Show what a step has released, and hand it to the logs."""
        # Without a bar and without logs there is no meter.
        if self._meter is None:
            return

        # Steps count from the first of this run: those before it are in the ledger already.
        epsilon = self._meter.after(released.step + 1 - self._start)
        logged = Logged.of(
            released, leaves=self._statistics, clip_norms=clip_norms, epsilon=epsilon
        )

        # The bar first: a log may take long, or fail.
        if self._bar is not None:
            self._bar.advance(logged)

        for log in self._logs:
            log(logged)

    @property
    def _limit(self) -> str:
        # A budget comes first: it is enforced, and a target is not.
        terms, target = self._ledger.terms, self._plan.target
        if terms is not None and terms.epsilon is not None:
            return f"budget {terms.epsilon:g}"

        # A target is a wish, and is called one.
        return "" if target is None else f"target {target.epsilon:g}"

    @property
    def _delta(self) -> float:
        # The delta of the ledger's terms counts for all of its runs; a plan speaks for itself.
        terms, target = self._ledger.terms, self._plan.target
        if terms is not None and terms.delta is not None:
            return terms.delta

        # Where nobody named one: the usual one for so many records.
        return default_delta(self._records) if target is None else target.delta
