"""One run on a ledger: what it was begun with, and everything it may write."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeAlias

from discreet import _validate as check
from discreet._process import Misuse, SingleUse
from discreet.errors import BudgetExceeded, LedgerMisuse
from discreet.ledger.events import Step
from discreet.ledger.lease import Lease
from discreet.ledger.storage.rows import RunInfo, Settled

if TYPE_CHECKING:
    from discreet.ledger.ledger import Ledger

__all__ = ["Run", "block_size"]

# A lease with the number of the row that charged it.
_Numbered: TypeAlias = tuple[int, Lease]


def block_size(taken: int) -> int:
    """How many steps to reserve at once after `taken` steps: an eighth of them, at least 32.

    So a crash over-counts by at most an eighth (or 32 steps), n steps need about 8 ln(n) blocks,
    and a million equal steps are about 150 rows. It depends on the number of steps alone: a size
    chosen by measured time would write into the ledger how long steps take, and with it how large
    the samples were.

    >>> block_size(0), block_size(1_000)
    (32, 125)
    """
    return max(32, taken // 8)


_COPIED = Misuse(
    LedgerMisuse,
    expected="one run in one process",
    do="Begin a run of its own in the other process.",
)


class Run(SingleUse, copied=_COPIED):
    """The right to charge steps to one run of a ledger; got from `Ledger.begin`.

    It belongs to the handle that began it, and like the handle it does not survive a fork.
    """

    def __init__(self, ledger: Ledger, number: int, info: RunInfo) -> None:
        super().__init__()
        self._ledger = ledger
        self._number = number
        self._info = info
        self._spelled: dict[Step, int] = {}
        self._over = False

        # Weak: a lease that the caller dropped is not kept alive, and counts in full.
        self._leases: weakref.WeakSet[Lease] = weakref.WeakSet()

    @property
    def number(self) -> int:
        """The run's number in its ledger."""
        return self._number

    @property
    def info(self) -> RunInfo:
        """What the run declared when it began."""
        return self._info

    def reserve(self, step: Step, *, count: int) -> Lease:
        """Charge `count` times `step`, durably, and get the lease to take them.

        Raises:
            ParameterError: a group that the run did not declare, a count below 1.
            BudgetExceeded: more than the run planned, and the ledger's terms do not admit it.
                Nothing is charged then.
        """
        self._info.check_groups("Run.reserve", step)
        _, lease = self._reserve(step, check.whole("Run.reserve", "count", count, least=1))
        return lease

    def steps(
        self, step: Step, total: int, *, block: int | None = None, then_end: bool = False
    ) -> Iterator[int]:
        """Take `total` steps one after the other, reserved in blocks.

        Yields the number of each step, from 0, once it is charged and taken; the body of the loop
        may then release.

        Args:
            step: what each of them does.
            total: how many at most.
            block: how many to reserve at once; None grows the block by `block_size`. Fewer where
                the budget admits fewer.
            then_end: whether the run is over with the last of them, or when the iterator is closed.

        Raises:
            BudgetExceeded: from the iterator, when the ledger does not admit one step more.
        """
        self._info.check_groups("Run.steps", step)
        total = check.whole("Run.steps", "total", total, least=1)
        if block is not None:
            block = check.whole("Run.steps", "block", block, least=1)

        return self._take(step, total, block, then_end=then_end)

    def mark(self, name: str) -> None:
        """Record, for good, that something unsafe happened to this run; `name` begins with
        `unsafe_`.
        """
        self._ledger.mark(self._number, name)

    def end(self, reason: str = "") -> None:
        """Say that the run takes no more steps.

        Args:
            reason: a public reason for taking fewer steps than planned, such as "power failure":
                one that owes nothing to what was released. It stands in the guarantee. Without one,
                all that was planned counts.

        Its leases end with it: what was reserved and not taken is given back first, and nothing can
        be taken afterwards.
        A run that is over stays over: ending it without a reason then does nothing, also if another
        run took its place. A reason can be added once. What came over a fork ends nothing: the run
        is the parent's.

        Raises:
            LedgerMisuse: a reason, and another run took its place or a reason was given before.
        """
        if not self._at_home or (self._over and not reason):
            return

        # Before the end is written: what a lease did not take must not count as charged.
        for lease in list(self._leases):
            lease.settle()

        self._ledger.end(self._number, reason, if_going=not reason)
        self._over = True

    def _take(self, step: Step, total: int, block: int | None, *, then_end: bool) -> Iterator[int]:
        taken = 0
        last: _Numbered | None = None

        try:
            while taken < total and not self._over:
                count = min(total - taken, block or block_size(taken))
                last = self._next_block(step, count, last)
                _, lease = last

                # The charge of the whole block is on disk: now its steps may be released.
                while lease.left:
                    lease.take()
                    yield taken
                    taken += 1
        finally:
            # In a fork the charge is the parent's, and so is its settlement.
            if self._at_home:
                self._settle_last(last, then_end=then_end)

    def _settle_last(self, last: _Numbered | None, *, then_end: bool) -> None:
        """Settle the last block, and end the run with it: in one transaction."""
        # Nothing to be joined: no block was reserved, the run goes on, or it ended meanwhile.
        if last is None or not then_end or self._over:
            if last is not None:
                last[1].settle()

            if then_end:
                self.end()

            return

        number, lease = last
        lease.settle_with(
            lambda taken: self._end_with(None if taken is None else Settled(number, taken))
        )

    def _end_with(self, settled: Settled | None) -> None:
        self._ledger.end(self._number, if_going=True, settled=settled)
        self._over = True

    def _next_block(self, step: Step, count: int, last: _Numbered | None) -> _Numbered:
        """Reserve as many as the terms admit of count, its half, its quarter, ..., 1.

        The block before, which is used up, is settled in the same transaction: half as many for the
        disk to sync.
        """
        while True:
            try:
                if last is None:
                    return self._reserve(step, count)

                return self._settle_and_reserve(step, count, last)
            except BudgetExceeded:
                # Near the end of a budget a block may not fit where a single step does.
                if count == 1:
                    raise

                count //= 2

    def _settle_and_reserve(self, step: Step, count: int, last: _Numbered) -> _Numbered:
        # None: the lease was settled before, so there is nothing to be written about it.
        number, used_up = last
        return used_up.settle_with(
            lambda taken: self._reserve(
                step, count, None if taken is None else Settled(number, taken)
            )
        )

    def _reserve(self, step: Step, count: int, settled: Settled | None = None) -> _Numbered:
        # A step is spelled out in the first row that charges it; later rows name that row. So a
        # million equal steps with long group names still make a small file.
        spelled = self._spelled.get(step)
        number, lease = self._ledger.reserve(
            self._number, step, count, spelled_out_in=spelled, settled=settled
        )
        self._spelled.setdefault(step, number)
        self._leases.add(lease)
        return number, lease
