"""What a sequence of rows says: the chain is whole, every row makes sense after those before it, these are the charges.

The chain: digest_n = SHA-256(digest_{n-1} || row_n), digest_{-1} = SHA-256 of a fixed text. It has no secret in it, so it
finds accidents and careless edits, not a forger who computes it anew; against a forger, keep the head digest elsewhere and
pass it to `Ledger.verify`.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from discreet.errors import LedgerCorrupt
from discreet.ledger.codec import decode
from discreet.ledger.events import Step
from discreet.ledger.rows import Began, Charge, Marked, Opened, Reserved, Row, Settled
from discreet.units import Randomness

__all__ = ["Book", "follow"]

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


class Book:
    """Rows read so far, checked one by one, and what they add up to.

    Guarantee: a settled reservation counts as the steps taken under it, any other in full.
    """

    def __init__(self) -> None:
        self.rows = 0
        self.digest = hashlib.sha256(b"discreet ledger").digest()
        self._runs: dict[int, Began] = {}
        self._reservations: dict[int, _Reservation] = {}
        self._steps: dict[int, Step] = {}
        self._totals: dict[tuple[int, Step], _Total] = {}
        self._marks: list[str] = []

    def read(self, body: bytes, digest: bytes) -> None:
        """Check and take in the next row.

        Raises:
            LedgerCorrupt: with the row's number; the book is then as before.
        """
        expected = follow(self.digest, body)
        if digest != expected:
            raise LedgerCorrupt(
                expected=f"digest {expected.hex()[:16]}..., which follows from the row before and this row's content",
                got=f"digest {digest.hex()[:16]}...; this row was edited or moved, or one before it was left out or put in",
                do=_RESTORE,
                row=self.rows,
            )
        self._take_in(decode(body, self.rows))
        self.rows += 1
        self.digest = digest

    def check_head(self, rows: int, digest: bytes) -> None:
        """Compare with the head that was written together with the last row: nothing is missing at the end."""
        if (rows, digest) != (self.rows, self.digest):
            raise LedgerCorrupt(
                expected=f"{rows} rows that end in digest {digest.hex()[:16]}..., as the head says",
                got=f"{self.rows} rows that end in {self.digest.hex()[:16]}...",
                do=_RESTORE,
                row=min(rows, self.rows),
            )

    def runs(self) -> tuple[Began, ...]:
        """The runs, in the order in which they began."""
        return tuple(self._runs.values())

    def marks(self) -> tuple[str, ...]:
        """Names of everything unsafe that happened, once each."""
        return tuple(dict.fromkeys(self._marks))

    def charges(self) -> tuple[Charge, ...]:
        """What was charged, one entry for each step of each run, in the order of first reservation.

        A step of which nothing was taken stays, with count 0: what was reserved first never changes, and budgets rely on it.
        """
        return tuple(
            Charge(self._runs[run].info, step, total.count, total.unsettled) for (run, step), total in self._totals.items()
        )

    def _take_in(self, row: Row) -> None:
        if isinstance(row, Opened) != (self.rows == 0):
            raise self._wrong("the row that opens the ledger first, and only there", type(row).__name__)
        match row:
            case Opened():
                pass
            case Began():
                self._runs[self.rows] = row
                if row.info.randomness is Randomness.UNSAFE_TEST_KEY:
                    self._marks.append(row.info.randomness.value)
            case Reserved():
                self._reserve(row)
            case Settled():
                self._settle(row)
            case Marked():
                self._run(row.run)
                self._marks.append(row.mark)

    def _reserve(self, row: Reserved) -> None:
        run = self._run(row.run)
        if isinstance(row.step, int):
            if row.step not in self._steps:
                raise self._wrong("the number of an earlier row that spells out a step", str(row.step))
            step = self._steps[row.step]
        else:
            step = row.step
        declared = run.info.groups
        if not all(query.group in declared for query in step.queries):
            raise self._wrong(f"groups that run {row.run} declared: {declared}", str(step.groups))
        if isinstance(row.step, Step):
            self._steps[self.rows] = step
        total = self._totals.setdefault((row.run, step), _Total())
        total.count += row.count
        total.unsettled += row.count
        self._reservations[self.rows] = _Reservation(total, row.count)

    def _settle(self, row: Settled) -> None:
        lease = self._reservations.get(row.lease)
        if lease is None or lease.settled:
            raise self._wrong("the number of a reservation that is not settled yet", str(row.lease))
        if row.taken > lease.count:
            raise self._wrong(f"at most the {lease.count} steps that were reserved", f"{row.taken} taken")
        lease.total.count -= lease.count - row.taken
        lease.total.unsettled -= lease.count
        lease.settled = True

    def _run(self, number: int) -> Began:
        if number not in self._runs:
            raise self._wrong("the number of a run that began", str(number))
        return self._runs[number]

    def _wrong(self, expected: str, got: str) -> LedgerCorrupt:
        return LedgerCorrupt(expected=expected, got=got, do=_RESTORE, row=self.rows)
