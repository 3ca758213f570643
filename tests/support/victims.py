"""What a process does on a ledger before it is killed, on every kind of ledger.

All steps cost the same, so that what a budget admits is a number of steps that is known beforehand.
Each process is one run, named after it; each step that it releases is one byte in a file of its
own.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import discreet as dp
from discreet.aggregation import Aggregator
from discreet.errors import BudgetExceeded, LedgerMisuse
from discreet.ledger import Lease, Ledger, Rule, Run, RunRecord, Snapshot
from support import killing
from support.killing import CHANGED, EXTENDED, Life

__all__ = ["KINDS", "Kind", "Place", "draw_all", "live"]

DELTA = 1e-5
FIRST = dp.ledger.Step(dp.Everything(), [dp.ledger.GaussianSum("grad", 1.0, 20.0)])
SECOND = dp.ledger.Step(dp.Everything(), [dp.ledger.GaussianSum("metric", 1.0, 20.0)])
STEPS = {b"a": FIRST, b"b": SECOND}
LISTED = ((FIRST, 40), (SECOND, 16))
WANTED = {FIRST: 16, SECOND: 6}
LONGER = 8  # steps by which a list grows
RECORDS = np.full((4, 2), 0.1)
PLAN = dp.Plan(
    sampler=dp.Sampler(dp.Everything(), records=len(RECORDS), steps=80),
    mechanism=dp.Gaussian(1.0, 20.0),
    leaves={"x": 2},
)
INFO = dp.ledger.RunInfo(
    unit=dp.Unit.EXAMPLE,
    adjacency=dp.Adjacency.ADD_OR_REMOVE,
    groups=("grad", "metric"),
    numerics=dp.Numerics.IDEALISED,
    randomness=dp.units.Randomness.SYSTEM,
    parameters=dp.units.Parameters.FIXED_IN_ADVANCE,
)


def _whole_list() -> Snapshot:
    """Twice the list: what two writers take."""
    twice = tuple((step, 2 * count) for step, count in LISTED)
    return Snapshot(runs=(RunRecord(info=INFO, charged=twice),))


# --- kinds of ledger ---


@dataclass(frozen=True)
class Kind:
    """A kind of ledger, and how many processes write to it at once.

    Args:
        name: for messages.
        budget: what the ledger is opened with.
        listed: what its list holds; empty for filters and odometers.
        epsilon: another budget, for `change_budget`.
        writers: processes at once.
        aggregates: whether an Aggregator takes the steps.
    """

    name: str
    budget: Any
    listed: tuple[tuple[dp.ledger.Step, int], ...]
    epsilon: float
    writers: int = 1
    aggregates: bool = False

    def suits(self, life: Life) -> bool:
        """Whether such a life can be lived on it."""
        if self.aggregates or life is Life.AGGREGATING:
            return self.aggregates and life is Life.AGGREGATING
        if life is Life.EXTENDING:
            return bool(self.listed)
        return life is not Life.WITH_BUDGET or self.budget is not None

    @property
    def steps(self) -> dict[bytes, dp.ledger.Step]:
        """The step that each byte of a witness stands for."""
        return {b"a": PLAN.step} if self.aggregates else STEPS


_TWICE = _whole_list().charged()
_BUDGET: dict[str, Any] = {"epsilon": 3.0, "delta": DELTA}
KINDS = (
    Kind("list", None, LISTED, 3.5),
    Kind("budget", dp.Budget(**_BUDGET), LISTED, 3.5),
    Kind("Gaussian filter", dp.Filter(**_BUDGET), (), 2.9),
    Kind("Renyi filter", dp.Filter(**_BUDGET, order=8.0), (), 3.2),
    Kind("odometer", dp.Odometer(delta=DELTA), (), 3.5),
    Kind("odometer with a limit", dp.Odometer(**_BUDGET), (), 3.5),
    Kind(
        "budget, two writers",
        dp.Budget(**_BUDGET, plans=_whole_list()),
        tuple(_TWICE.items()),
        3.5,
        writers=2,
    ),
    Kind("Gaussian filter, two writers", dp.Filter(**_BUDGET), (), 2.9, writers=2),
    Kind("odometer with a limit, two writers", dp.Odometer(**_BUDGET), (), 3.5, writers=2),
    Kind("aggregator", None, ((PLAN.step, PLAN.steps),), 3.5, aggregates=True),
)


@cache
def most_steps(kind: Kind, epsilon: float) -> int:
    """How many steps, of whichever kind, a ledger of this kind admits at this epsilon."""
    budget = dp.Budget(epsilon=epsilon, delta=DELTA) if kind.budget is None else kind.budget
    if kind.listed:
        budget = replace(budget, epsilon=epsilon, plans=None)
        return Ledger.in_memory(budget=budget).fitting(INFO, FIRST, 10_000)
    with Ledger.in_memory(budget=replace(budget, epsilon=epsilon)) as ledger:
        first = ledger.begin(
            INFO, planned=WANTED.items()
        )  # an odometer's levels are multiples of the first plan
        with first.reserve(FIRST, count=1) as lease:
            lease.take()
        return 1 + ledger.fitting(INFO, FIRST, 10_000, continues=first.number)


# --- lives ---


@dataclass(frozen=True)
class Place:
    """The files of one process: the ledger, and what it released and asked for by its own word."""

    folder: Path
    writer: str
    number: int

    @property
    def ledger(self) -> Path:
        """The same for all processes of a case."""
        return self.folder / "ledger"

    @property
    def label(self) -> str:
        """Of its run."""
        return f"{self.writer}.{self.number}"

    @contextmanager
    def witness(self, name: str) -> Iterator[int]:
        """A file of one byte for each step;
        what is written is there even if the process is killed.
        """
        file = os.open(self._path(name), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            yield file
        finally:
            os.close(file)

    def witnessed(self, name: str) -> bytes:
        """What was written there."""
        path = self._path(name)
        return path.read_bytes() if path.exists() else b""

    def _path(self, name: str) -> Path:
        return self.folder / f"{self.label}.{name}"


def live(kind: Kind, place: Place, life: Life, chance: random.Random) -> None:
    """One process, from opening the ledger to closing it."""
    if kind.aggregates:
        _aggregate(place)
        return
    with place.witness("released") as released, place.witness("extended") as extended:
        ledger = _open(kind, place)
        before = _interrupted(ledger.snapshot(), place.writer)
        if life is Life.EXTENDING or (kind.listed and before is not None and chance.random() < 0.3):
            _extend(ledger, extended)
        run, lease = _begin(ledger, kind, place.label, before), None
        if run is not None:
            _take(run, b"a", 5, 5, released)
            if life is Life.CHANGING or chance.random() < 0.2:
                _change(ledger, kind)
            _take(run, b"b", 4, 2, released)
            _take_in_blocks(run, b"a", 4, released)
            lease = _leave_open(run, b"a", released)
            _end(run, life, chance)
        ledger.close()
        del lease  # a ledger settles the leases that are still there when it is closed


def draw_all(kind: Kind, place: Place) -> None:
    """One process that nobody kills: it takes all that the ledger still admits, and is refused one
    step more.
    """
    if kind.aggregates:
        _aggregate(place)
        return
    with place.witness("released") as released, _open(kind, place) as ledger:
        info = replace(INFO, label=place.label)
        # All processes died before their runs began; the first plan is the list, or sets levels.
        if not ledger.runs():
            ledger.begin(info, kind.listed or WANTED.items()).end()
        before = _interrupted(ledger.snapshot(), place.writer)
        for letter, step in STEPS.items():
            fitting = ledger.fitting(info, step, 200, continues=before)
            if not fitting:
                continue
            run = ledger.begin(info, [(step, fitting)], continues=before)
            _take(run, letter, fitting, fitting, released)
            run.end()
            before = run.number
        terms = ledger.terms
        if terms is None or (terms.rule is not Rule.LIST and terms.epsilon is None):
            return  # an odometer without a limit refuses nothing
        for step in STEPS.values():
            try:
                ledger.begin(replace(INFO, label="beyond"), [(step, 1)], continues=before)
            except BudgetExceeded:
                continue
            raise AssertionError("one step more than the ledger admits")


def _open(kind: Kind, place: Place) -> Ledger:
    try:
        return Ledger.open(place.ledger, budget=kind.budget)
    except LedgerMisuse:
        return Ledger.open(
            place.ledger, "r+"
        )  # an earlier process changed the budget: the file's own holds


def _interrupted(snapshot: Snapshot, writer: str) -> int | None:
    """The last run of this writer that can be continued."""
    continued = {run.continues for run in snapshot.runs}
    mine = [
        run.number
        for run in snapshot.runs
        if run.info.label.startswith(f"{writer}.")
        and not run.reason
        and run.number not in continued
    ]
    return mine[-1] if mine else None


def _begin(ledger: Ledger, kind: Kind, label: str, before: int | None) -> Run | None:
    """A run of as many steps as the ledger admits; None where it admits none."""
    info = replace(INFO, label=label)
    plans: Sequence[Sequence[tuple[dp.ledger.Step, int]]]
    if kind.listed and kind.writers == 1 and not ledger.runs():
        plans = [LISTED]  # which becomes the list
    else:
        fitting = [
            (step, ledger.fitting(info, step, count, continues=before))
            for step, count in WANTED.items()
        ]
        some = [(step, count) for step, count in fitting if count]
        plans = [some, some[:1], some[1:]]  # both may not fit together
    for planned in plans:
        try:
            return ledger.begin(info, planned, continues=before) if planned else None
        except BudgetExceeded:
            continue
    return None


def _take(run: Run, letter: bytes, count: int, taken: int, released: int) -> None:
    try:
        with run.reserve(STEPS[letter], count=count) as lease:
            for _ in range(taken):
                lease.take()
                killing.release(released, letter)
    except BudgetExceeded:
        pass  # it planned fewer


def _take_in_blocks(run: Run, letter: bytes, count: int, released: int) -> None:
    try:
        for _ in run.steps(STEPS[letter], count, block=2):
            killing.release(released, letter)
    except BudgetExceeded:
        pass  # it planned fewer


def _leave_open(run: Run, letter: bytes, released: int) -> Lease | None:
    try:
        lease = run.reserve(STEPS[letter], count=3)
    except BudgetExceeded:
        return None  # it planned fewer
    lease.take()
    killing.release(released, letter)
    return lease


def _end(run: Run, life: Life, chance: random.Random) -> None:
    """End the run in one of two ways, or leave that to the ledger."""
    ends = [Life.ENDING, Life.CLOSING, Life.ENDING_FOR_A_REASON]
    end = life if life in ends else chance.choice(ends[:2])
    if end is Life.ENDING:
        run.end()
    elif end is Life.ENDING_FOR_A_REASON:
        try:
            run.end("power failure")
        except dp.errors.LedgerMisuse:  # it took another's place, and can name no reason
            run.end()


def _extend(ledger: Ledger, extended: int) -> None:
    """Ask for a longer list; what was asked for is witnessed before, for it may or may not be
    written.
    """
    os.write(extended, b"a" * LONGER)
    with suppress(
        dp.errors.LedgerError
    ):  # above the budget; or no list yet: the first process died before its run began
        ledger.extend_list([(FIRST, LONGER)], reason=EXTENDED)


def _change(ledger: Ledger, kind: Kind) -> None:
    delta = DELTA if kind.budget is None else None
    with suppress(
        dp.errors.LedgerError
    ):  # more is charged already; or a Gaussian filter is not raised
        ledger.change_budget(kind.epsilon, delta=delta, reason=CHANGED)


def _aggregate(place: Place) -> None:
    """An engine of the library: a step counts as released when its noise begins to be drawn."""
    with place.witness("released") as released, Ledger.open(place.ledger) as ledger:
        right = Aggregator._noised

        def witnessed(self: Aggregator, *arguments: Any) -> Any:
            killing.release(released, b"a")
            return right(self, *arguments)

        Aggregator._noised = witnessed  # type: ignore[assignment, method-assign]
        engine = Aggregator(PLAN, ledger=ledger, label=place.label)
        for sample in engine.samples(until_budget=bool(ledger.runs())):
            engine.release(sample, {"x": RECORDS})
        Aggregator._noised = right  # type: ignore[method-assign]
