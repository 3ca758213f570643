"""The right to take steps that are already charged."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import NoReturn, Self

from discreet.errors import LedgerMisuse

__all__ = ["Lease"]


class Lease:
    """The right to take `count` steps that are already charged; got from `Ledger.reserve`.

    Call `take()` once before each release. Leaving the `with` block, also by an exception, settles the charge to what was
    taken. A lease never settled (the process died) counts in full. It cannot be copied, pickled or used over a fork: each would
    allow two releases for one charge.
    """

    def __init__(self, number: int, count: int, settle: Callable[[int, int], None]) -> None:
        self.number = number
        self._count = count
        self._settle = settle
        self._taken = 0
        self._ended = False
        self._owner = os.getpid()
        self._lock = threading.Lock()

    @property
    def taken(self) -> int:
        """Steps taken so far."""
        return self._taken

    @property
    def left(self) -> int:
        """Steps that may still be taken."""
        return 0 if self._ended else self._count - self._taken

    def take(self) -> int:
        """Take one step; returns its number within the lease, from 0. After that, and only then, draw noise and release.

        Raises:
            LedgerMisuse: all steps are taken, the lease has ended, or this is another process.
        """
        if self._owner != os.getpid():
            raise LedgerMisuse(
                expected=f"the process {self._owner}, which reserved these steps",
                got="a fork of it",
                do="Reserve steps of its own in the child, on a ledger opened there.",
            )
        with self._lock:
            if self._ended or self._taken >= self._count:
                state = "settled" if self._ended else f"used up: all {self._count} steps were taken"
                raise LedgerMisuse(expected="a lease with steps left", got=f"one that is {state}", do="Reserve more steps.")
            self._taken += 1
            return self._taken - 1

    def end(self) -> int:
        """Allow no more steps; returns how many were taken. They are settled only when that number is written."""
        with self._lock:
            self._ended = True
            return self._taken

    def settle(self) -> None:
        """End the lease; what was not taken is no longer charged. Nothing happens if it has ended already."""
        with self._lock:
            first, self._ended = not self._ended, True
        if first:
            self._settle(self.number, self._taken)

    def leave(self) -> None:
        """Settle, except in a fork: the charge is its parent's."""
        if self._owner == os.getpid():
            self.settle()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def __reduce_ex__(self, _: object) -> NoReturn:
        raise LedgerMisuse(
            expected="one lease for one charge",
            got="an attempt to copy or pickle it",
            do="Reserve again; one charge allows one release.",
        )
