"""The ledger: charge, then release.

A reservation is durable before the first of its steps can be taken; a clean end settles it to what was taken; without that it
counts in full. So whatever happens to the process (an exception, SIGKILL, power loss), the ledger never says
less than what was released. Proof: docs/proofs/ledger.md.
"""

from __future__ import annotations

import os
import platform
import secrets
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Literal, NoReturn, Self

from discreet import _validate as check
from discreet.errors import LedgerCorrupt, LedgerExists, LedgerMisuse, ParameterError
from discreet.ledger import exchange
from discreet.ledger.book import Book, follow
from discreet.ledger.codec import encode
from discreet.ledger.events import Step
from discreet.ledger.lease import Lease
from discreet.ledger.rows import Began, Charge, Marked, Opened, Reserved, Row, RunInfo, Settled
from discreet.ledger.store import Line, Store

__all__ = ["Guard", "Ledger", "block_size"]

Guard = Callable[[tuple[Charge, ...]], None]
"""Sees every charge of the ledger with the proposed one among them, and raises to refuse it."""

_RECORDED_SOFTWARE = ("numpy", "scipy", "torch", "cryptography", "numba")


def block_size(taken: int) -> int:
    """How many steps to reserve at once after `taken` steps: an eighth of them, at least 16.

    So a crash over-counts by at most an eighth (or 16 steps), n steps need about 8 ln(n) durable writes, and a million equal
    steps are about a hundred rows. It depends on the number of steps alone: a size chosen by measured time would write into
    the ledger how long steps take, and with it how large the samples were.

    >>> block_size(0), block_size(1_000)
    (16, 125)
    """
    return max(16, taken // 8)


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
        self._store = store
        self._read_only = read_only
        self._guard = guard
        self._run: int | None = None
        self._spelled: dict[Step, int] = {}
        self._book = Book()
        self._owner = os.getpid()
        self._closed = False
        self._lock = threading.RLock()
        with self._store.reading():
            self._catch_up()

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
        if mode not in ("a", "r"):
            raise ParameterError(owner="Ledger.open", name="mode", expected="'a' or 'r'", got=repr(mode))
        place = Path(path)
        if mode == "a" and not place.exists():
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
        lines = exchange.read(Path(path))
        if into is None:
            return cls(Store.in_memory(lines), read_only=True)
        Store.create(Path(into), lines)
        return cls.open(into)

    def export(self, path: str | os.PathLike[str]) -> None:
        """Write all rows as JSON Lines, with the digests and a seal as last line. An existing file is refused."""
        with self._alive(), self._store.reading():
            self._catch_up()
            exchange.write(Path(path), self._store.lines(0))

    def close(self) -> None:
        """Let go of the file. Open leases stay unsettled and count in full."""
        with self._lock:
            self._closed = True
            if self._owner == os.getpid():
                self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- reading ---

    def charges(self) -> tuple[Charge, ...]:
        """Everything charged so far, by all runs and processes; what accountants read."""
        return self._fresh_book().charges()

    def marks(self) -> tuple[str, ...]:
        """Names of the unsafe things that happened; if there are any, there is no guarantee."""
        return self._fresh_book().marks

    def runs(self) -> tuple[Began, ...]:
        """The runs in the order in which they began."""
        return tuple(self._fresh_book().runs.values())

    def head(self) -> str:
        """Digest of the last row: a fingerprint of the whole ledger, worth keeping elsewhere."""
        return self._fresh_book().digest.hex()

    def verify(self, expected_head: str | None = None) -> Ledger:
        """Read the whole ledger again from its first row, and check everything.

        Args:
            expected_head: what `head()` said earlier. Rows appended since are fine; that head must still be in the chain.

        Raises:
            LedgerCorrupt: names the first row that is wrong and why.
        """
        book = Book()
        seen = set()
        with self._alive(), self._store.reading():
            for body, digest in self._store.lines(0):
                book.read(body, digest)
                seen.add(digest.hex())
            book.check_head(*self._store.head())
            self._book = book
        if expected_head is not None and expected_head not in seen:
            raise LedgerCorrupt(
                expected=f"a ledger that contains the head {expected_head[:16]}...",
                got=f"one that ends in {book.digest.hex()[:16]}... and never had it",
                do="This is another ledger, or its history was rewritten: do not rely on it.",
            )
        return self

    # --- writing ---

    def begin(self, info: RunInfo) -> int:
        """Begin a run: what this handle reserves from now on belongs to it. Returns the run's number."""
        check.instance("Ledger.begin", "info", info, RunInfo)
        row = Began(info, _software(), _now())
        with self._alive():
            self._run = self._append(row)
        return self._run

    def reserve(self, step: Step, *, count: int) -> Lease:
        """Charge `count` times `step`, durably, and get the lease to take them.

        Raises:
            LedgerMisuse: no run was begun through this handle.
            ParameterError: a group that the run did not declare, a count below 1.
            BudgetExceeded: or whatever else the guard raises. Nothing is charged then.
        """
        return self._next_lease(check.instance("Ledger.reserve", "step", step, Step), count, None)

    def steps(self, step: Step, total: int, *, block: int | None = None) -> Iterator[int]:
        """Take `total` steps one after the other, reserved in blocks.

        Yields the number of each step, from 0, once it is charged and taken; the body of the loop may then release.

        Args:
            step: what each of them does.
            total: how many, fixed in advance.
            block: how many to reserve at once; None grows the block by `block_size`.
        """
        total = check.whole("Ledger.steps", "total", total, least=1)
        if block is not None:
            block = check.whole("Ledger.steps", "block", block, least=1)
        check.instance("Ledger.steps", "step", step, Step)
        lease = None
        try:
            for taken in range(total):
                if lease is None or not lease.left:
                    lease = self._next_lease(step, min(total - taken, block or block_size(taken)), lease)
                lease.take()
                yield taken
        finally:
            if lease is not None:
                lease.leave()

    def mark(self, name: str) -> None:
        """Record, for good, that something unsafe happened to the current run; `name` begins with `unsafe_`."""
        with self._alive():
            self._append(Marked(self._current_run("mark"), name))

    # --- inside ---

    def _next_lease(self, step: Step, count: int, before: Lease | None) -> Lease:
        """Reserve, and in the same write settle the lease before."""
        count = check.whole("Ledger.reserve", "count", count, least=1)
        with self._alive():
            run = self._current_run("reserve")
            self._check_groups(run, step)
            ended = [] if before is None else [Settled(before.number, before.end())]
            number = self._append(*ended, Reserved(run, self._spelled.get(step, step), count))
            self._spelled.setdefault(step, number)
        return Lease(number, count, self._settle)

    def _settle(self, lease: int, taken: int) -> None:
        with self._alive():
            self._append(Settled(lease, taken))

    def _append(self, *rows: Row) -> int:
        """Append rows, all or none, after whatever other processes appended; returns the number of the last."""
        if self._read_only:
            raise LedgerMisuse(
                expected="a ledger opened to append", got=f"{self._store.name}, opened to read", do="Open it with mode='a'."
            )
        try:
            with self._store.appending():
                self._catch_up()
                for row in rows:
                    number = self._book.rows
                    body = encode(row)
                    digest = follow(self._book.digest, body)
                    self._book.read(body, digest)  # refuses, before it is written, what no reader would accept
                    self._store.append(number, body, digest)
                if self._guard is not None and isinstance(row, Reserved):
                    self._guard(self._book.charges())
        except BaseException:
            self._book = Book()  # it may be ahead of the file now; read anew when next needed
            raise
        return number

    def _catch_up(self) -> None:
        """Read what other processes appended; only inside a transaction."""
        for body, digest in self._store.lines(self._book.rows):
            self._book.read(body, digest)
        self._book.check_head(*self._store.head())

    def _fresh_book(self) -> Book:
        with self._alive(), self._store.reading():
            self._catch_up()
        return self._book

    def _current_run(self, purpose: str) -> int:
        if self._run is None:
            raise LedgerMisuse(
                expected=f"a run to {purpose} for",
                got="a ledger on which this handle began none",
                do="Call ledger.begin(RunInfo(unit=..., adjacency=..., ...)) first: a guarantee needs to say what it protects.",
            )
        return self._run

    def _check_groups(self, run: int, step: Step) -> None:
        declared = self._book.info(run).groups
        strangers = sorted(set(step.groups).difference(declared))
        if strangers:
            expected = f"a step on groups that the run declared, {list(declared)}"
            raise ParameterError(owner="Ledger.reserve", name="step", expected=expected, got=f"groups {strangers}")

    @contextmanager
    def _alive(self) -> Iterator[None]:
        """Hold the handle's lock, if the handle may be used at all."""
        if self._owner != os.getpid():
            raise LedgerMisuse(
                expected="a handle opened by this process",
                got=f"one that came over a fork from process {self._owner}",
                do="Open the ledger again in the child.",
            )
        with self._lock:
            if self._closed:
                raise LedgerMisuse(expected="an open ledger", got=f"{self._store.name}, closed", do="Open it again.")
            yield

    def __reduce_ex__(self, _: object) -> NoReturn:
        raise LedgerMisuse(
            expected="one handle in one process",
            got="an attempt to copy or pickle it",
            do="Pass the path, and open the ledger again.",
        )


def _first_line() -> list[Line]:
    body = encode(Opened(secrets.token_hex(16), _now()))
    return [(body, follow(Book().digest, body))]


def _software() -> tuple[tuple[str, str], ...]:
    """Versions of what is executing, of a fixed list of packages."""
    used = [name for name in _RECORDED_SOFTWARE if name in sys.modules]
    return tuple(sorted([("python", platform.python_version()), *((name, version(name)) for name in ("discreet", *used))]))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
