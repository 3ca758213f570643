"""The right to take steps that are already charged."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Self, TypeVar

from discreet._process import Misuse, SingleUse
from discreet.errors import LedgerMisuse

__all__ = ["Lease"]

_Written = TypeVar("_Written")

# A copy, on either side of a fork or in one process, would allow two releases for one charge.
_COPIED = Misuse(
    LedgerMisuse,
    expected="one lease for one charge",
    do="Reserve again; one charge allows one release.",
)
_FORKED = Misuse(
    LedgerMisuse,
    expected="the process that reserved these steps",
    got="a fork of it",
    do="Reserve steps of its own in the child, on a ledger opened there.",
)


class Lease(SingleUse, copied=_COPIED, forked=_FORKED):
    """The right to take `count` steps that are already charged; got from `Ledger.reserve`.

    Call `take()` once before each release. Leaving the `with` block, also by an exception, settles
    the charge to what was taken. A lease never settled (the process died) counts in full. It cannot
    be copied, pickled or used over a fork: each would allow two releases for one charge.
    """

    def __init__(self, count: int, write_settlement: Callable[[int], None]) -> None:
        super().__init__()
        self._count = count
        self._write_settlement = write_settlement
        self._taken = 0
        self._ended = False
        self._settled = False

        # Re-entrant: a signal handler may settle while a step is being taken.
        self._lock = threading.RLock()

    @property
    def taken(self) -> int:
        """Number of steps taken under this lease so far."""
        return self._taken

    @property
    def left(self) -> int:
        """Steps that may still be taken."""
        return 0 if self._ended else self._count - self._taken

    def take(self) -> int:
        """Take one step; returns its number within the lease, from 0. After that, and only then,
        draw noise and release.

        Raises:
            LedgerMisuse: all steps are taken, the lease has ended, or this is another process.
        """
        self._refuse_fork()

        with self._lock:
            if self._ended or self._taken >= self._count:
                state = "settled" if self._ended else f"used up: all {self._count} steps were taken"
                raise LedgerMisuse(
                    expected="a lease with steps left",
                    got=f"one that is {state}",
                    do="Reserve more steps.",
                )

            # Counted before the caller can draw noise: a crash in between counts one too many.
            self._taken += 1
            return self._taken - 1

    def settle(self) -> None:
        """End the lease: no more steps, and what was not taken is no longer charged. Once settled,
        nothing happens.

        If the settlement cannot be written, the lease has ended all the same and goes on counting
        in full; try again.
        """
        self._refuse_fork()
        with self._lock:
            # Before the write: if that fails, the charge stays and no step may follow.
            self._ended = True
            if not self._settled:
                self._write_settlement(self._taken)
                self._settled = True

    def settle_with(self, write: Callable[[int | None], _Written]) -> _Written:
        """End the lease, where `write` puts the settlement into one transaction with something
        else, such as the next lease.

        Args:
            write: gets the number of steps taken, None if that is settled already; what it returns
                is returned. If it raises, nothing is settled.
        """
        self._refuse_fork()

        # As in `settle`: whatever becomes of the write, no step may follow.
        with self._lock:
            self._ended = True
            written = write(None if self._settled else self._taken)
            self._settled = True
            return written

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # In a fork the charge is the parent's, and so is its settlement.
        if self._at_home:
            self.settle()
