"""What a sequence of rows says: the chain is whole, every row makes sense after those before it.

The chain: digest_n = SHA-256(digest_{n-1} || row_n), digest_{-1} = SHA-256 of a fixed text. It has
no secret in it, so it finds accidents and careless edits, not a forger who computes it anew;
against a forger, keep the head digest elsewhere and pass it to `Ledger.verify`.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from discreet.errors import BudgetExceeded, LedgerCorrupt
from discreet.ledger.events import Step
from discreet.ledger.snapshot import RunRecord, Snapshot
from discreet.ledger.storage.codec import OLDEST, decode_with_schema
from discreet.ledger.storage.rows import Began, Ended, Held, Marked, Opened, Reserved, Row, Settled
from discreet.ledger.terms import Rule, Terms
from discreet.units import Randomness

__all__ = ["Book", "another_history", "follow"]

_RESTORE = "Restore the ledger from a copy; do not spend on this one."


def follow(digest: bytes, body: bytes) -> bytes:
    """The digest of a row, from the digest of the row before it."""
    return hashlib.sha256(digest + body).digest()


@dataclass(slots=True)
class _Total:
    count: int = 0
    unsettled: int = 0


@dataclass(slots=True)
class _Reservation:
    total: _Total
    count: int
    settled: bool = False
    taken: int = 0


@dataclass(slots=True)
class _Run:
    """A run as far as it was read."""

    row: Began
    planned: dict[Step, int]
    totals: dict[Step, _Total] = field(default_factory=dict)
    over: bool = False
    continued: bool = False
    reason: str = ""
    freed: tuple[tuple[Step, int], ...] = ()

    def left(self) -> tuple[tuple[Step, int], ...]:
        """What was planned and is not charged."""
        # A run under a filter may be charged more than it planned; that leaves nothing.
        uncharged = (
            (step, count - self.totals.get(step, _Total()).count)
            for step, count in self.planned.items()
        )
        return tuple((step, count) for step, count in uncharged if count > 0)

    def record(self, number: int) -> RunRecord:
        return RunRecord(
            number=number,
            info=self.row.info,
            planned=self.row.planned,
            charged=tuple((step, total.count) for step, total in self.totals.items()),
            unsettled=tuple((step, total.unsettled) for step, total in self.totals.items()),
            over=self.over,
            reason=self.reason,
            freed=self.freed,
            continues=self.row.continues,
            plan=self.row.plan,
            software=self.row.software,
            began=self.row.began,
        )


class Book:
    """Rows read so far, checked one by one, and what they add up to.

    Guarantee: a settled reservation counts as the steps taken under it, any other in full; no list
        was exceeded.
    """

    def __init__(self) -> None:
        self.rows = 0
        self.digest = hashlib.sha256(b"discreet ledger").digest()
        self.schema: int | None = None
        self._ledger = ""
        self._runs: dict[int, _Run] = {}
        self._reservations: dict[int, _Reservation] = {}
        self._steps: dict[int, Step] = {}
        self._marks: list[str] = []
        self._history: list[Held] = []

    def read(self, body: bytes, digest: bytes) -> None:
        """Check and take in the next row.

        Raises:
            LedgerCorrupt: with the row's number; the book is then not to be used further.
        """
        expected = follow(self.digest, body)
        if digest != expected:
            raise LedgerCorrupt(
                expected=(
                    f"digest {expected.hex()[:16]}..., which follows from the row before and this "
                    "row's content"
                ),
                got=(
                    f"digest {digest.hex()[:16]}...; this row was edited or moved, or one before "
                    "it was left out or put in"
                ),
                do=_RESTORE,
                row=self.rows,
            )

        # A file has one schema; a row of another one came from somewhere else.
        schema, row = decode_with_schema(body, self.rows)
        if self.schema not in (None, schema):
            raise self._wrong(
                f"rows of schema {self.schema}, as the first", f"one of schema {schema}"
            )

        self._take_in(row)
        self.schema = schema
        self.rows += 1
        self.digest = digest

    def has(self, row: Row) -> bool:
        """Whether this very settlement was read before: written by somebody who was interrupted
        before learning of it.
        """
        if not isinstance(row, Settled):
            return False

        lease = self._reservations.get(row.lease)
        return lease is not None and lease.settled and lease.taken == row.taken

    def check_head(self, rows: int, digest: bytes) -> None:
        """Compare with the head that was written together with the last row: nothing is missing at
        the end.
        """
        if (rows, digest) != (self.rows, self.digest):
            raise LedgerCorrupt(
                expected=f"{rows} rows that end in digest {digest.hex()[:16]}..., as the head says",
                got=f"{self.rows} rows that end in {self.digest.hex()[:16]}...",
                do=_RESTORE,
                row=min(rows, self.rows),
            )

    def snapshot(self) -> Snapshot:
        """What all rows say together."""
        return Snapshot(
            runs=tuple(run.record(number) for number, run in self._runs.items()),
            marks=tuple(dict.fromkeys(self._marks)),
            history=tuple(self._history),
            head=self.digest.hex(),
            ledger=self._ledger,
            schema=self.schema,
        )

    # --- row by row ---

    def _take_in(self, row: Row) -> None:
        if isinstance(row, Opened) != (self.rows == 0):
            raise self._wrong(
                "the row that opens the ledger first, and only there", type(row).__name__
            )

        match row:
            case Opened():
                self._ledger = row.ledger

            case Held():
                self._hold(row)

            case Began():
                self._begin(row)

            case Reserved():
                self._reserve(row)

            case Settled():
                self._settle(row)

            case Ended():
                self._end(row)

            case Marked():
                # Only a run that began can be voided.
                self._run(row.run)
                self._marks.append(row.mark)

    def _hold(self, row: Held) -> None:
        # The first terms may be any: the file was not held to anything before.
        if self._history:
            self._check_change(self._history[-1].terms, row.terms, row.reason)

        self._history.append(row)

    def _check_change(self, before: Terms, after: Terms, reason: str) -> None:
        """Refuse another rule, delta, share or order than those that were settled before the first
        charge.

        Only three things may change: what is not complete is completed; a budget becomes another
        one, except that a Gaussian filter's may not be raised; a list grows. The last two need a
        reason (docs/proofs/filters.md, "Changes").
        """
        # The one change of a rule: the first run settles which analysis a filter gets.
        settles = before.rule is Rule.FILTER and after.rule.is_filter
        if after.rule is not before.rule and not settles:
            raise self._wrong(
                f"the rule {before.rule.value!r}, which stays", repr(after.rule.value)
            )

        # A list may get its first budget late: it is valid because it was fixed, not by a budget.
        gets_a_budget = before.rule is Rule.LIST and before.delta is None
        if after.delta != before.delta and not gets_a_budget:
            raise self._wrong(f"the delta {before.delta!r}, which stays", repr(after.delta))

        if after.epsilon != before.epsilon:
            self._check_another_budget(before, after, reason)

        if before.complete:
            self._check_shares_and_list(before, after, reason)

    def _check_another_budget(self, before: Terms, after: Terms, reason: str) -> None:
        if not reason or after.epsilon is None:
            raise self._wrong(
                "a number, and a reason for a budget that changes", f"{after.epsilon!r}, {reason!r}"
            )

        if before.rule is Rule.GAUSSIAN_FILTER and after.epsilon > (before.epsilon or 0.0):
            raise self._wrong(
                "a Gaussian filter whose budget is not raised",
                f"{before.epsilon} raised to {after.epsilon}",
            )

    def _check_shares_and_list(self, before: Terms, after: Terms, reason: str) -> None:
        if (after.levels, after.orders) != (before.levels, before.orders):
            raise self._wrong(
                "the levels and orders that were fixed before the first charge", "others"
            )

        if after.planned == before.planned:
            return

        # What was promised stays promised: a list that shrinks would be chosen by looking.
        listed = dict(after.planned)
        grows = before.rule is Rule.LIST and all(
            listed.get(step, 0) >= count for step, count in before.planned
        )
        if not grows or not reason:
            raise self._wrong(
                "what was planned as it was, or a list that only grows, for a reason", "another one"
            )

    def _begin(self, row: Began) -> None:
        if row.continues is not None:
            # Two successors would take what it left twice.
            before = self._run(row.continues)
            if before.continued:
                raise self._wrong("a run that nobody continued yet", str(row.continues))

            before.over = before.continued = True

        # The run's number is that of its row.
        self._runs[self.rows] = _Run(row, dict(row.planned))
        if row.info.randomness is Randomness.UNSAFE_TEST_KEY:
            self._marks.append(row.info.randomness.value)

        self._check_list()

    def _reserve(self, row: Reserved) -> None:
        run = self._run(row.run)
        if run.over:
            raise self._wrong("the number of a run that is not over", str(row.run))

        step = self._spelled_out(row)
        declared = run.row.info.groups
        if not all(query.group in declared for query in step.queries):
            raise self._wrong(f"groups that run {row.run} declared: {declared}", str(step.groups))

        # In full until it is settled: whoever reserved may have released before being killed.
        total = run.totals.setdefault(step, _Total())
        total.count += row.count
        total.unsettled += row.count
        self._reservations[self.rows] = _Reservation(total, row.count)

        # Within the commitment the list was checked when the run began.
        if total.count > run.planned.get(step, 0):
            self._check_list()

        # Rules that were settled after a charge would have been chosen by looking at it.
        if self.schema != OLDEST and not (self._history and self._history[-1].terms.complete):
            raise self._wrong(
                "terms that were complete before the first charge", "terms that are not"
            )

    def _spelled_out(self, row: Reserved) -> Step:
        if isinstance(row.step, Step):
            self._steps[self.rows] = row.step
            return row.step

        if row.step not in self._steps:
            raise self._wrong("the number of an earlier row that spells out a step", str(row.step))

        return self._steps[row.step]

    def _settle(self, row: Settled) -> None:
        lease = self._reservations.get(row.lease)
        if lease is None or lease.settled:
            raise self._wrong("the number of a reservation that is not settled yet", str(row.lease))

        if row.taken > lease.count:
            raise self._wrong(
                f"at most the {lease.count} steps that were reserved", f"{row.taken} taken"
            )

        # What was not taken is given back, and nothing is in doubt any more.
        lease.total.count -= lease.count - row.taken
        lease.total.unsettled -= lease.count
        lease.settled, lease.taken = True, row.taken

    def _end(self, row: Ended) -> None:
        run = self._run(row.run)
        if run.continued or run.reason or (run.over and not row.reason):
            raise self._wrong("the number of a run that is not over", str(row.run))

        # The steps of a run that took another's place may have been left by looking.
        if row.reason and run.row.continues is not None:
            raise self._wrong("a reason of a run that took nobody's place", row.reason)

        # Now: what is decided later is not decided for this reason.
        run.over, run.reason = True, row.reason
        if row.reason:
            run.freed = run.left()

    def _check_list(self) -> None:
        # Looked up without a snapshot, which takes as long as there are kinds of step.
        if not self._history or self._history[-1].terms.rule is not Rule.LIST:
            return

        try:
            self.snapshot().check_list()
        except BudgetExceeded as exceeded:
            raise self._wrong(exceeded.expected, exceeded.got) from None

    def _run(self, number: int) -> _Run:
        if number not in self._runs:
            raise self._wrong("the number of a run that began", str(number))

        return self._runs[number]

    def _wrong(self, expected: str, got: str) -> LedgerCorrupt:
        return LedgerCorrupt(expected=expected, got=got, do=_RESTORE, row=self.rows)


def another_history(head: str, book: Book) -> LedgerCorrupt:
    """The error for a book that does not contain a head which was seen before."""
    return LedgerCorrupt(
        expected=f"a ledger that contains the head {head[:16]}...",
        got=f"one that ends in {book.digest.hex()[:16]}... and never had it",
        do="This is another ledger, or its history was rewritten: do not rely on it.",
    )
