"""The ledger: charge, then release.

A reservation is durable before the first of its steps can be taken; a clean end settles it to what
was taken; without that it counts in full. So whatever happens to the process (an exception,
SIGKILL, power loss), the ledger never says less than what was released. Proof:
docs/proofs/ledger.md.
"""

from __future__ import annotations

import atexit
import os
import secrets
import weakref
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Literal, Self

from discreet import _validate as check
from discreet._files import checked_path
from discreet._process import Misuse, SingleUse
from discreet.errors import (
    DiscreetError,
    LedgerExists,
    LedgerMisuse,
    ParameterError,
)
from discreet.ledger import decisions
from discreet.ledger._provenance import now, software
from discreet.ledger.events import Step
from discreet.ledger.journal import Journal, first_line
from discreet.ledger.lease import Lease
from discreet.ledger.rules import HasTerms, check_budget
from discreet.ledger.run import Run
from discreet.ledger.snapshot import RunRecord, Snapshot
from discreet.ledger.storage import exchange
from discreet.ledger.storage.rows import (
    Began,
    Charge,
    Ended,
    Marked,
    Reserved,
    Row,
    RunInfo,
    Settled,
)
from discreet.ledger.storage.store import Store
from discreet.ledger.terms import Terms, planned_steps

__all__ = ["Ledger"]

_Mode = Literal["a", "r+", "r"]

# Weak: a handle that is open to nobody any more is not kept for the end of the program.
_open_handles: weakref.WeakSet[Ledger] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Settle and end what a program began that ends, also by an exception that nobody caught."""
    for ledger in list(_open_handles):
        # What cannot be settled counts in full.
        with suppress(DiscreetError):
            ledger.close()


_COPIED = Misuse(
    LedgerMisuse,
    expected="one handle in one process",
    do="Pass the path, and open the ledger again.",
)


class Ledger(SingleUse, copied=_COPIED):
    """What happened to one data set, in one or more runs.

    A ledger belongs to a data set: every run on it, also a tuning run, charges the same ledger.
    Several processes may hold the same file open; each opens it for itself (a handle does not
    survive a fork).

    What it is held to (`Terms`) is written before the first charge and holds for whoever opens the
    file. Without a word about it, a ledger is for the steps that its first run plans, and for
    nothing else.

    >>> from discreet.ledger.events import GaussianSum, Poisson
    >>> from discreet.units import Adjacency, Numerics, Parameters, Randomness, Unit
    >>> ledger = Ledger.in_memory()
    >>> step = Step(Poisson(0.01), [GaussianSum("grad", sensitivity=1.0, noise_std=1.1)])
    >>> info = RunInfo(
    ...     unit=Unit.EXAMPLE, adjacency=Adjacency.ADD_OR_REMOVE, groups=("grad",),
    ...     numerics=Numerics.IDEALISED, randomness=Randomness.SYSTEM,
    ...     parameters=Parameters.FIXED_IN_ADVANCE)
    >>> run = ledger.begin(info, planned=[(step, 100)])
    >>> with run.reserve(step, count=32) as lease:       # durable from here on
    ...     for _ in range(3):
    ...         number = lease.take()                    # then draw the noise and release
    >>> snapshot = ledger.snapshot()
    >>> snapshot.steps  # settled to what was taken
    3
    >>> [count for _, count in snapshot.counted()]  # all that was planned counts
    [100]
    """

    def __init__(
        self, store: Store, *, read_only: bool = False, budget: HasTerms | None = None
    ) -> None:
        super().__init__()

        # What was begun and reserved through this handle: `close` ends and settles it.
        self._runs: weakref.WeakSet[Run] = weakref.WeakSet()
        self._leases: weakref.WeakSet[Lease] = weakref.WeakSet()

        # Whether this handle made the file; only then may it withdraw it.
        self._created = False

        try:
            self._journal = Journal(store, read_only=read_only)
            if budget is not None:
                wanted = budget.terms()
                self._journal.append(lambda snapshot: decisions.first_terms(snapshot, wanted))
        except BaseException:
            store.close()
            raise

        _open_handles.add(self)

    # --- opening and closing ---

    @classmethod
    def open(
        cls, path: str | os.PathLike[str], mode: _Mode = "a", *, budget: HasTerms | None = None
    ) -> Ledger:
        """The ledger at `path`, read and checked from its first row to its last.

        Args:
            path: of the file.
            mode: "a" to append, creating the file if there is none; "r+" to append to a file that
                must exist; "r" to read.
            budget: what the ledger is held to from its first charge on: a `Budget`, a `Filter` or
                an `Odometer`. It becomes a row of the file. A file that has one already need not be
                told; another one is refused.

        Raises:
            LedgerNotFound: mode "r" or "r+" and nothing there.
            LedgerCorrupt: a row is wrong; it says which and why.
            LedgerMisuse: the ledger is held to something else.
        """
        place = checked_path("Ledger.open", path).absolute()
        if mode not in ("a", "r+", "r"):
            raise ParameterError(
                owner="Ledger.open", name="mode", expected="'a', 'r+' or 'r'", got=repr(mode)
            )

        check_budget("Ledger.open", budget)

        # Remembered, as only whoever made the file may withdraw it.
        created = False
        if mode == "a" and not os.path.lexists(place):
            # Another process may be faster: its file is then the one to open.
            with suppress(LedgerExists):
                Store.create(place, first_line())
                created = True

        ledger = cls(Store.open(place, read_only=mode == "r"), read_only=mode == "r", budget=budget)
        ledger._created = created
        return ledger

    @classmethod
    def in_memory(cls, *, budget: HasTerms | None = None) -> Ledger:
        """A ledger that ends with the process, for tests and what-if questions."""
        check_budget("Ledger.in_memory", budget)
        return cls(Store.in_memory(first_line()), budget=budget)

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], into: str | os.PathLike[str] | None = None
    ) -> Ledger:
        """Read a JSON Lines export: in memory and read-only, or into a new file `into` that goes on
        where the export ended.
        """
        lines = exchange.read_export(checked_path("Ledger.load", path))

        # Charges to a copy in memory would be lost with it, and the export know nothing of them.
        if into is None:
            return cls(Store.in_memory(lines), read_only=True)

        Store.create(checked_path("Ledger.load", into).absolute(), lines)
        return cls.open(into)

    def export(self, path: str | os.PathLike[str]) -> None:
        """Write all rows as JSON Lines, with the digests and a seal as last line. An existing file
        is refused.
        """
        # Read first, written afterwards: a slow disk must not keep writers out.
        with self._journal.reading():
            lines = self._journal.store.lines(0)

        exchange.write(checked_path("Ledger.export", path), lines)

    def close(self) -> None:
        """Settle the leases that are still open, end the runs, and let go of the file.

        A fork lets go of nothing: it is its parent's.
        """
        if not self._journal.own:
            return

        try:
            # Leases first: a run ends with what its leases took, not with what they reserved.
            if not self._journal.closed:
                for lease in list(self._leases):
                    lease.settle()

                for run in list(self._runs):
                    run.end()
        finally:
            # Also where nothing can be written any more: what is not settled counts in full.
            self._journal.close()

    def withdraw(self) -> None:
        """Remove the file and close, if this handle made it and no run began: as if it had never
        been opened.

        A ledger that somebody expected at this path, and that was not there, must not be replaced
        by an empty one. Otherwise nothing happens.
        """
        # The journal removes the file only if no process added a row meanwhile.
        if self._created and not self.runs():
            self._journal.remove()
            self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- reading ---

    def snapshot(self) -> Snapshot:
        """Everything that the ledger holds now, by all runs and processes: what accountants,
        budgets and reports read.
        """
        with self._journal.reading() as book:
            return book.snapshot()

    @property
    def terms(self) -> Terms | None:
        """What the ledger is held to; None before its first run, and for files of schema 1."""
        return self.snapshot().terms

    def charges(self) -> tuple[Charge, ...]:
        """Everything charged so far, by all runs and processes."""
        return self.snapshot().charges

    def marks(self) -> tuple[str, ...]:
        """Names of the unsafe things that happened; if there are any, there is no guarantee."""
        return self.snapshot().marks

    def runs(self) -> tuple[RunRecord, ...]:
        """The runs in the order in which they began."""
        return self.snapshot().runs

    def head(self) -> str:
        """Digest of the last row: a fingerprint of the whole ledger, worth keeping elsewhere."""
        with self._journal.reading() as book:
            return book.digest.hex()

    def verify(self, expected_head: str | None = None) -> Ledger:
        """Read the whole ledger again from disk, from its first row, and check everything.

        Args:
            expected_head: what `head()` said earlier. Rows appended since are fine; that head must
                still be in the chain.

        Raises:
            LedgerCorrupt: names the first row that is wrong and why.
        """
        # `head()` writes small letters; whoever copied it by hand may not have.
        if expected_head is not None:
            expected_head = check.label("Ledger.verify", "expected_head", expected_head).lower()

        self._journal.verify(expected_head)
        return self

    # --- writing ---

    def begin(
        self,
        info: RunInfo,
        planned: Iterable[tuple[Step, int]] = (),
        *,
        continues: int | None = None,
        plan: str = "",
    ) -> Run:
        """Begin a run, and commit to what it will take at most; everything it is charged goes
        through what is returned.

        Args:
            info: what the run declares.
            planned: the commitment, (step, count) pairs. It is checked against the ledger's terms
                now, so that no run is refused half way. The first run of a ledger without terms
                settles them: a list of what it plans.
            continues: number of the run whose place this one takes, such as one that was killed:
                that one is over, and what it did not take is free again.
            plan: text of the whole plan; it can be had back from the ledger.

        Raises:
            BudgetExceeded: what is planned does not fit; nothing was written.
            LedgerMisuse: a file of schema 1, which is read only; or a run chosen from outputs on a
                list.
        """
        check.member("Ledger.begin", "info", info, (RunInfo,))
        steps, identity = planned_steps("Ledger.begin", planned), secrets.token_hex(8)
        row = Began(info, software(), now(), steps, continues, plan, identity)

        for step, _ in row.planned:
            info.check_groups("Ledger.begin", step)

        # The rows may begin with one that completes the terms; the run's own is the last.
        with self._journal.alive():
            *_, number = self._journal.append(lambda snapshot: decisions.beginning(snapshot, row))
            run = Run(self, number, info)
            self._runs.add(run)

        return run

    def check_admits(
        self, info: RunInfo, planned: Iterable[tuple[Step, int]], *, continues: int | None = None
    ) -> None:
        """Refuse what `begin` would refuse now; nothing is written.

        Raises:
            BudgetExceeded: what is planned does not fit.
        """
        row = Began(info, (), now(), planned_steps("Ledger.check_admits", planned), continues)
        decisions.beginning(self.snapshot(), row)

    def fitting(
        self, info: RunInfo, step: Step, count: int, *, continues: int | None = None
    ) -> int:
        """How many of `count` steps a run could plan now; nothing is written."""
        return decisions.fitting(
            self.snapshot(), Began(info, (), now(), ((step, count),), continues)
        )

    def change_budget(self, epsilon: float, *, delta: float | None = None, reason: str) -> None:
        """Hold the ledger to another epsilon from now on: a row that every report shows.

        The claim of a filter is the largest epsilon that it ever had; a Gaussian filter's cannot be
        raised. Delta is fixed once and for all.

        Args:
            epsilon: above 0. What is charged already must fit.
            delta: only for a list that had no budget before.
            reason: in a few words, for the report.

        Raises:
            BudgetExceeded: what is charged or promised to runs exceeds it; nothing was written.
            LedgerMisuse: there is nothing to change, or the rule does not allow it.
        """
        limit = check.positive("Ledger.change_budget", "epsilon", epsilon)
        why = check.label("Ledger.change_budget", "reason", reason)
        self._journal.append(lambda snapshot: decisions.another_budget(snapshot, limit, delta, why))

    def extend_list(self, planned: Iterable[tuple[Step, int]], *, reason: str) -> None:
        """Let a list grow for a public reason, such as steps that a crash lost; it stands in every
        guarantee.

        Args:
            planned: what may be charged in addition.
            reason: public: one that owes nothing to what was released.
        """
        more = planned_steps("Ledger.extend_list", planned)
        why = check.label("Ledger.extend_list", "reason", reason)
        self._journal.append(lambda snapshot: decisions.longer_list(snapshot, more, why))

    def end(
        self, run: int, reason: str = "", *, if_going: bool = False, settled: Settled | None = None
    ) -> None:
        """Say that run number `run` takes no more steps; see `Run.end`.

        With `if_going`, a run that is over already, such as one whose place another took, is left
        as it is. `settled` is the settlement of its last lease, written in the same transaction.
        """
        row = Ended(run, check.label("Ledger.end", "reason", reason, empty=True))
        before = [] if settled is None else [settled]

        def decide(snapshot: Snapshot) -> Sequence[Row]:
            # Looked at inside the transaction: another process may have continued the run.
            over = any(record.over for record in snapshot.runs if record.number == run)
            return before if over and if_going else [*before, *decisions.ending(snapshot, row)]

        self._journal.append(decide)

    # --- what a `Run` writes ---

    def reserve(
        self,
        run: int,
        step: Step,
        count: int,
        *,
        spelled_out_in: int | None,
        settled: Settled | None = None,
    ) -> tuple[int, Lease]:
        """Charge `count` times `step` to run number `run`; for `Run.reserve`. Returns the row's
        number and the lease.

        `settled` is the settlement of a lease that is used up, written in the same transaction. As
        all its steps were taken, it has no part in the decision.
        """
        row = Reserved(run, step if spelled_out_in is None else spelled_out_in, count)
        before = [] if settled is None else [settled]

        # Under the handle's lock, so that no other thread closes it before the lease is known.
        with self._journal.alive():
            *_, number = self._journal.append(
                lambda snapshot: [*before, *decisions.reservation(snapshot, row, step)]
            )
            lease = Lease(count, lambda taken: self._settle(number, taken))
            self._leases.add(lease)

        return number, lease

    def mark(self, run: int, name: str) -> None:
        """Record that something unsafe happened to run number `run`; for `Run.mark`."""
        row = Marked(run, name)
        self._journal.append(lambda snapshot: decisions.marking(snapshot, row))

    def _settle(self, lease: int, taken: int) -> None:
        row = Settled(lease, taken)
        self._journal.append(lambda _: [row])
