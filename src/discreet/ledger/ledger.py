"""The ledger: charge, then release.

A reservation is durable before the first of its steps can be taken; a clean end settles it to what was taken; without that it
counts in full. So whatever happens to the process (an exception, SIGKILL, power loss), the ledger never says
less than what was released. Proof: docs/proofs/ledger.md.
"""

from __future__ import annotations

import os
import secrets
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Literal, NoReturn, Self

from discreet import _process
from discreet import _validate as check
from discreet._files import checked_path
from discreet.errors import BudgetExceeded, LedgerCorrupt, LedgerExists, LedgerMisuse, ParameterError
from discreet.ledger import exchange
from discreet.ledger._provenance import now, software
from discreet.ledger.book import Book, follow
from discreet.ledger.codec import encode
from discreet.ledger.events import Step
from discreet.ledger.lease import Lease
from discreet.ledger.rows import Began, Charge, Marked, Opened, Reserved, Row, RunInfo, Settled
from discreet.ledger.store import Line, Store

__all__ = ["Guard", "Ledger", "block_size"]

Guard = Callable[[tuple[Charge, ...]], None]
"""Sees every charge of the ledger with the proposed one among them, and raises to refuse it."""


def block_size(taken: int) -> int:
    """How many steps to reserve at once after `taken` steps: an eighth of them, at least 32.

    So a crash over-counts by at most an eighth (or 32 steps), n steps need about 8 ln(n) blocks, and a million equal
    steps are about 150 rows. It depends on the number of steps alone: a size chosen by measured time would write into
    the ledger how long steps take, and with it how large the samples were.

    >>> block_size(0), block_size(1_000)
    (32, 125)
    """
    return max(32, taken // 8)


class Ledger:
    """What happened to one data set, in one or more runs.

    A ledger belongs to a data set: every run on it, also a tuning run, charges the same ledger. Several processes may
    hold the same file open; each opens it for itself (a handle does not survive a fork).

    >>> from discreet.ledger.events import GaussianSum, Poisson
    >>> from discreet.units import Adjacency, Numerics, Parameters, Randomness, Unit
    >>> ledger = Ledger.in_memory()
    >>> ledger.begin(RunInfo(unit=Unit.EXAMPLE, adjacency=Adjacency.ADD_OR_REMOVE, groups=("grad",),
    ...     numerics=Numerics.IDEALISED, randomness=Randomness.SYSTEM, parameters=Parameters.FIXED_IN_ADVANCE))
    1
    >>> step = Step(Poisson(0.01), [GaussianSum("grad", sensitivity=1.0, noise_std=1.1)])
    >>> with ledger.reserve(step, count=100) as lease:   # durable from here on
    ...     for _ in range(3):
    ...         number = lease.take()                    # then draw the noise and release
    >>> [charge.count for charge in ledger.charges()]    # settled to what was taken
    [3]
    """

    def __init__(self, store: Store, *, read_only: bool = False, guard: Guard | None = None) -> None:
        if guard is not None and not callable(guard):
            raise ParameterError(owner="Ledger", name="guard", expected="a function of charges, or None", got=repr(guard))
        self._store = store
        self._read_only = read_only
        self._guard = guard
        self._run: tuple[int, RunInfo] | None = None
        self._spelled: dict[Step, int] = {}
        self._leases: weakref.WeakSet[Lease] = weakref.WeakSet()
        self._book = Book()
        self._known = (0, b"")  # rows and head that this handle has seen committed
        self._owner = _process.current()
        self._closed = False
        self._lock = threading.RLock()
        try:
            with self._reading():
                pass
        except BaseException:
            store.close()
            raise
        _process.hold_over_forks(self._lock)  # else a child would take the journal of a transaction for its own

    # --- opening and closing ---

    @classmethod
    def open(cls, path: str | os.PathLike[str], mode: Literal["a", "r"] = "a", *, guard: Guard | None = None) -> Ledger:
        """The ledger at `path`, read and checked from its first row to its last.

        Args:
            path: of the file.
            mode: "a" to append, creating the file if there is none; "r" to read only.
            guard: called with all charges before each reservation; raises to refuse it, such as a budget.

        Raises:
            LedgerNotFound: mode "r" and nothing there.
            LedgerCorrupt: a row is wrong; it says which and why.
        """
        place = checked_path("Ledger.open", path).absolute()
        if mode not in ("a", "r"):
            raise ParameterError(owner="Ledger.open", name="mode", expected="'a' or 'r'", got=repr(mode))
        if mode == "a" and not os.path.lexists(place):
            with suppress(LedgerExists):  # another process was faster: theirs is ours
                Store.create(place, _first_line())
        return cls(Store.open(place, read_only=mode == "r"), read_only=mode == "r", guard=guard)

    @classmethod
    def in_memory(cls, *, guard: Guard | None = None) -> Ledger:
        """A ledger that ends with the process, for tests and what-if questions."""
        return cls(Store.in_memory(_first_line()), guard=guard)

    @classmethod
    def load(cls, path: str | os.PathLike[str], into: str | os.PathLike[str] | None = None) -> Ledger:
        """Read a JSON Lines export: in memory and read-only, or into a new file `into` that goes on where the export ended."""
        lines = exchange.read(checked_path("Ledger.load", path))
        if into is None:
            return cls(Store.in_memory(lines), read_only=True)
        Store.create(checked_path("Ledger.load", into).absolute(), lines)
        return cls.open(into)

    def export(self, path: str | os.PathLike[str]) -> None:
        """Write all rows as JSON Lines, with the digests and a seal as last line. An existing file is refused."""
        with self._reading():
            lines = self._store.lines(0)
        exchange.write(checked_path("Ledger.export", path), lines)

    def close(self) -> None:
        """Settle the leases that are still open, and let go of the file. A fork lets go of nothing: it is its parent's."""
        if self._owner is not _process.current():
            return
        for lease in () if self._closed else list(self._leases):
            lease.settle()
        with self._lock:
            self._closed = True
            self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- reading ---

    @property
    def guard(self) -> Guard | None:
        """What must admit every charge, such as a budget."""
        return self._guard

    def charges(self) -> tuple[Charge, ...]:
        """Everything charged so far, by all runs and processes; what accountants read."""
        with self._reading() as book:
            return book.charges()

    def marks(self) -> tuple[str, ...]:
        """Names of the unsafe things that happened; if there are any, there is no guarantee."""
        with self._reading() as book:
            return book.marks()

    def runs(self) -> tuple[Began, ...]:
        """The runs in the order in which they began."""
        with self._reading() as book:
            return book.runs()

    def head(self) -> str:
        """Digest of the last row: a fingerprint of the whole ledger, worth keeping elsewhere."""
        with self._reading() as book:
            return book.digest.hex()

    def verify(self, expected_head: str | None = None) -> Ledger:
        """Read the whole ledger again from disk, from its first row, and check everything.

        Args:
            expected_head: what `head()` said earlier. Rows appended since are fine; that head must still be in the chain.

        Raises:
            LedgerCorrupt: names the first row that is wrong and why.
        """
        expected = None if expected_head is None else check.label("Ledger.verify", "expected_head", expected_head).lower()
        book = Book()
        digests = set()
        with self._alive(), self._anew() as store, store.reading():
            for body, digest in store.lines(0):
                book.read(body, digest)
                digests.add(digest)
            book.check_head(*store.head())
            if self._known[1] not in digests:
                raise _another_history(self._known[1].hex(), book)
        if expected is not None and expected not in {digest.hex() for digest in digests}:
            raise _another_history(expected, book)
        return self

    # --- writing ---

    def begin(self, info: RunInfo) -> int:
        """Begin a run: what this handle reserves from now on belongs to it. Returns the run's number."""
        check.member("Ledger.begin", "info", info, (RunInfo,))
        row = Began(info, software(), now())
        with self._alive():
            number = self._append(row)
            self._run = number, info
        return number

    def reserve(self, step: Step, *, count: int) -> Lease:
        """Charge `count` times `step`, durably, and get the lease to take them.

        Raises:
            LedgerMisuse: no run was begun through this handle.
            ParameterError: a group that the run did not declare, a count below 1.
            BudgetExceeded: or whatever else the guard raises. Nothing is charged then.
        """
        run = self._run_for("Ledger.reserve", step)
        return self._reserve(run, step, check.whole("Ledger.reserve", "count", count, least=1))

    def steps(self, step: Step, total: int, *, block: int | None = None) -> Iterator[int]:
        """Take `total` steps one after the other, reserved in blocks.

        Yields the number of each step, from 0, once it is charged and taken; the body of the loop may then release.

        Args:
            step: what each of them does.
            total: how many, fixed in advance.
            block: how many to reserve at once; None grows the block by `block_size`. Fewer where a guard admits fewer.

        Raises:
            BudgetExceeded: from the iterator, when the guard does not admit one step more.
        """
        run = self._run_for("Ledger.steps", step)
        total = check.whole("Ledger.steps", "total", total, least=1)
        if block is not None:
            block = check.whole("Ledger.steps", "block", block, least=1)
        return self._take(run, step, total, block)

    def mark(self, name: str) -> None:
        """Record, for good, that something unsafe happened to the current run; `name` begins with `unsafe_`."""
        with self._alive():
            self._append(Marked(self._current_run("mark")[0], name))

    # --- inside ---

    def _take(self, run: int, step: Step, total: int, block: int | None) -> Iterator[int]:
        taken = 0
        while taken < total:
            with self._reserve_part(run, step, min(total - taken, block or block_size(taken))) as lease:
                while lease.left:
                    lease.take()
                    yield taken
                    taken += 1

    def _reserve_part(self, run: int, step: Step, count: int) -> Lease:
        """As many as a guard admits, of count, its half, its quarter, ..., 1."""
        while True:
            try:
                return self._reserve(run, step, count)
            except BudgetExceeded:
                if count == 1:
                    raise
                count //= 2

    def _reserve(self, run: int, step: Step, count: int) -> Lease:
        with self._alive():
            number = self._append(Reserved(run, self._spelled.get(step, step), count))
            self._spelled.setdefault(step, number)
            lease = Lease(count, lambda taken: self._settle(number, taken))
            self._leases.add(lease)
        return lease

    def _settle(self, lease: int, taken: int) -> None:
        with self._alive():
            self._append(Settled(lease, taken))

    def _append(self, row: Row) -> int:
        """Append a row after whatever other processes appended; returns its number."""
        if self._read_only:
            raise LedgerMisuse(
                expected="a ledger opened to append", got=f"{self._store.name}, opened to read", do="Open it with mode='a'."
            )
        try:
            with self._store.appending():
                self._catch_up()
                number = self._book.rows
                body = encode(row)
                digest = follow(self._book.digest, body)
                self._book.read(body, digest)  # refuses, before it is written, what no reader would accept
                if self._guard is not None and isinstance(row, Reserved):
                    self._guard(self._book.charges())
                self._store.append(number, body, digest)
        except BaseException:
            self._book = Book()  # it may be ahead of the file now; read anew when next needed
            raise
        self._known = (number + 1, digest)
        return number

    def _catch_up(self) -> None:
        """Read what other processes appended; only inside a transaction."""
        rows, head = self._known
        for body, digest in self._store.lines(self._book.rows):
            self._book.read(body, digest)
            if self._book.rows == rows and digest != head:
                raise _another_history(head.hex(), self._book)
        self._book.check_head(*self._store.head())
        if self._book.rows < rows:
            raise _another_history(head.hex(), self._book)
        self._known = (self._book.rows, self._book.digest)

    @contextmanager
    def _reading(self) -> Iterator[Book]:
        """All that is committed now, by whomever."""
        with self._alive(), self._store.reading():
            self._catch_up()
            yield self._book

    @contextmanager
    def _anew(self) -> Iterator[Store]:
        """The rows as they are on disk, not as this handle remembers them."""
        if self._store.path is None:
            yield self._store
            return
        store = Store.open(self._store.path, read_only=True)
        try:
            yield store
        finally:
            store.close()

    def _run_for(self, owner: str, step: Step) -> int:
        """The current run, if it may take this step."""
        check.member(owner, "step", step, (Step,))
        number, info = self._current_run("reserve")
        strangers = sorted(set(step.groups).difference(info.groups))
        if strangers:
            expected = f"a step on groups that the run declared, {list(info.groups)}"
            raise ParameterError(owner=owner, name="step", expected=expected, got=f"groups {strangers}")
        return number

    def _current_run(self, purpose: str) -> tuple[int, RunInfo]:
        if self._run is None:
            raise LedgerMisuse(
                expected=f"a run to {purpose} for",
                got="a ledger on which this handle began none",
                do="Call ledger.begin(RunInfo(unit=..., adjacency=..., ...)) first: a guarantee needs to say what it protects.",
            )
        return self._run

    @contextmanager
    def _alive(self) -> Iterator[None]:
        """Hold the handle's lock, if the handle may be used at all."""
        if self._owner is not _process.current():
            raise LedgerMisuse(
                expected="a handle opened by this process",
                got="one that came over a fork",
                do="Open the ledger again in the child.",
            )
        with self._lock:
            if self._closed:
                raise LedgerMisuse(expected="an open ledger", got=f"{self._store.name}, closed", do="Open it again.")
            if self._store.in_transaction:  # from a guard, a signal handler or a finaliser of the same thread
                raise LedgerMisuse(
                    expected="one call after the other",
                    got="a call from inside another",
                    do="Call again when that one is done.",
                )
            yield

    def __reduce_ex__(self, _: object) -> NoReturn:
        raise LedgerMisuse(
            expected="one handle in one process",
            got="an attempt to copy or pickle it",
            do="Pass the path, and open the ledger again.",
        )


def _another_history(head: str, book: Book) -> LedgerCorrupt:
    return LedgerCorrupt(
        expected=f"a ledger that contains the head {head[:16]}...",
        got=f"one that ends in {book.digest.hex()[:16]}... and never had it",
        do="This is another ledger, or its history was rewritten: do not rely on it.",
    )


def _first_line() -> list[Line]:
    body = encode(Opened(secrets.token_hex(16), now()))
    return [(body, follow(Book().digest, body))]
