"""Processes that are killed: at a named point of the charging path, or at a random moment.

A victim is a fork of a warm parent. To die at a named point it patches, in itself, the function
that stands there with a wrapper that sends SIGKILL at a chosen call; nothing in the library knows
of it. A victim without a point is killed by its parent, after a random time.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from discreet import _files
from discreet.aggregation import Aggregator
from discreet.aggregation.session import Session
from discreet.ledger import Ledger, Run
from discreet.ledger.lease import Lease
from discreet.ledger.storage import store
from discreet.ledger.storage.store import Store

__all__ = [
    "AT_RANDOM",
    "CHANGED",
    "EXTENDED",
    "POINTS",
    "Life",
    "Point",
    "Stage",
    "Victim",
    "release",
    "wait_for",
]

_LONGEST_LIFE = 120  # seconds; a victim that hangs is ended by an alarm, which is no kill
_PAUSE = 0.0005  # seconds between two looks at the victims
EXTENDED = "steps that the crash lost"
CHANGED = "another budget"

Row = dict[str, Any]


def release(witness: int, letter: bytes) -> None:
    """Release one step: from this write on it counts as seen."""
    os.write(witness, letter)


# --- points ---


class Stage(Enum):
    """In which life of a ledger a point can be reached."""

    FIRST = "while the file is new"
    LATER = "after an earlier process was killed"
    ANY = "always"


class Life(Enum):
    """Which life leads to a point."""

    ANY = "any"
    WITH_BUDGET = "on a ledger with terms of its own"
    EXTENDING = "on a list, which is made longer"
    CHANGING = "the budget is changed"
    ENDING = "the run is ended"
    ENDING_FOR_A_REASON = "the run is ended for a public reason"
    CLOSING = "the ledger is closed over an open run"
    AGGREGATING = "an Aggregator takes the steps"


@dataclass(frozen=True)
class Call:
    """A call of the function that stands at a point."""

    arguments: tuple[Any, ...]
    stored: Sequence[Row]  # by the transaction under way, or the last one

    def stores(self, kind: str) -> bool:
        """Whether it is `Store.append` with a row of this kind."""
        return bool(json.loads(self.arguments[2])["kind"] == kind)

    def commits(self, kind: str) -> bool:
        """Whether it commits a transaction whose last row is of this kind."""
        return (
            self.arguments[1] == "COMMIT" and bool(self.stored) and self.stored[-1]["kind"] == kind
        )


@dataclass(frozen=True)
class Point:
    """A place at which a victim dies.

    Args:
        name: as the table shows it.
        owner, attribute: the function that stands there.
        after: die when it has returned, instead of before it is called.
        only: of its calls, those that count.
        calls: the victim dies at one of the first so many calls, chosen at random.
        stage, life: how to get there.
    """

    name: str
    owner: object
    attribute: str
    after: bool = False
    only: Callable[[Call], bool] = lambda _: True
    calls: int = 1
    stage: Stage = Stage.ANY
    life: Life = Life.ANY

    def arm(self, chance: random.Random) -> None:
        """Make this process die here."""
        number = chance.randint(1, self.calls)
        right = getattr(self.owner, self.attribute)
        calls = 0

        def deadly(*arguments: Any, **options: Any) -> Any:
            nonlocal calls
            calls += self.only(Call(arguments, _STORED.rows))
            dies = calls == number
            if dies and not self.after:
                _die()
            result = right(*arguments, **options)
            if dies:
                _die()
            return result

        setattr(self.owner, self.attribute, deadly)


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@dataclass
class _Stored:
    """The rows that this process stored in its last transaction, for points that ask."""

    rows: list[Row] = field(default_factory=list)

    def watch(self) -> None:
        sql, append = Store._sql, Store.append

        def watched_sql(self: Store, command: str, values: tuple[object, ...] = ()) -> Any:
            if command.startswith("BEGIN"):
                _STORED.rows.clear()
            return sql(self, command, values)

        def watched_append(self: Store, number: int, body: bytes, digest: bytes) -> None:
            append(self, number, body, digest)
            _STORED.rows.append(json.loads(body))

        Store._sql, Store.append = watched_sql, watched_append  # type: ignore[method-assign]


_STORED = _Stored()


def _around(
    name: str,
    row: str,
    *,
    which: Callable[[Row], bool] = lambda _: True,
    calls: int = 1,
    stage: Stage = Stage.ANY,
    life: Life = Life.ANY,
) -> list[Point]:
    """Before a row of this kind is stored, and before and after the commit of its transaction."""

    def stores(call: Call) -> bool:
        return call.stores(row) and which(json.loads(call.arguments[2]))

    def commits(call: Call) -> bool:
        return call.commits(row) and which(call.stored[-1])

    def point(
        moment: str, attribute: str, only: Callable[[Call], bool], *, after: bool = False
    ) -> Point:
        return Point(f"{name}: {moment}", Store, attribute, after, only, calls, stage, life)

    return [
        point("before its row is stored", "append", stores),
        point("before the commit", "_sql", commits),
        point("after the commit", "_sql", commits, after=True),
    ]


def _follows_held(call: Call) -> bool:
    return call.stores("began") and bool(call.stored) and call.stored[-1]["kind"] == "held"


def _follows_settled(call: Call) -> bool:
    return call.stores("reserved") and bool(call.stored) and call.stored[-1]["kind"] == "settled"


def _commits_both(call: Call) -> bool:
    return call.commits("reserved") and len(call.stored) == 2


def _stores_head(call: Call) -> bool:
    return bool(call.arguments[1].startswith("REPLACE INTO head"))


def _was_ended(call: Call) -> bool:
    return bool(call.stored) and call.stored[-1]["kind"] == "ended"


def _creation() -> list[Point]:
    first = Stage.FIRST
    return [
        Point("create: before", store, "publish", stage=first),
        *_around("create", "opened", stage=first),
        Point("create: written, not in its place", os, "link", stage=first),
        Point("create: in its place, folder not synced", _files, "_sync_folder", stage=first),
        Point("create: after", store, "publish", after=True, stage=first),
        *_around(
            "terms", "held", which=lambda row: not row["reason"], stage=first, life=Life.WITH_BUDGET
        ),
    ]


def _beginning() -> list[Point]:
    resumed: dict[str, Any] = {
        "which": lambda row: row["continues"] is not None,
        "stage": Stage.LATER,
    }
    return [
        Point("begin: before", Ledger, "begin"),
        *_around("begin", "began"),
        Point(
            "begin: between Held and Began", Store, "append", only=_follows_held, stage=Stage.FIRST
        ),
        Point("begin: after", Ledger, "begin", after=True),
        *_around("resume", "began", **resumed),
    ]


def _charging() -> list[Point]:
    return [
        *_around("reserve", "reserved", calls=5),
        Point("reserve: committed, lease not made", Lease, "__init__", calls=5),
        Point("reserve: lease not returned", Ledger, "reserve", after=True, calls=5),
        Point("next block: between Settled and Reserved", Store, "append", only=_follows_settled),
        Point("next block: before the commit", Store, "_sql", only=_commits_both),
        Point("next block: after the commit", Store, "_sql", after=True, only=_commits_both),
        Point("any row: stored, head not", Store, "_sql", only=_stores_head, calls=12),
        Point("take: before", Lease, "take", calls=12),
        Point("take: after, before the release", Lease, "take", after=True, calls=12),
        Point("release: after", sys.modules[__name__], "release", after=True, calls=12),
        Point("settle: before", Lease, "settle", calls=4),
        *_around("settle", "settled", calls=4),
        Point("settle: after", Lease, "settle", after=True, calls=4),
    ]


def _ending() -> list[Point]:
    reason: dict[str, Any] = {
        "which": lambda row: bool(row["reason"]),
        "life": Life.ENDING_FOR_A_REASON,
        "stage": Stage.FIRST,
    }
    closing = Life.CLOSING
    return [
        *_around("end", "ended", life=Life.ENDING),
        *_around("end for a reason", "ended", **reason),
        Point("close: before", Ledger, "close", life=closing),
        Point("close: leases settled, run not ended", Run, "end", life=closing),
        Point("close: run ended, file not let go", Store, "close", only=_was_ended, life=closing),
        Point("close: after", Ledger, "close", after=True),
    ]


def _changes() -> list[Point]:
    longer: dict[str, Any] = {
        "which": lambda row: row["reason"] == EXTENDED,
        "life": Life.EXTENDING,
    }
    other: dict[str, Any] = {"which": lambda row: row["reason"] == CHANGED, "life": Life.CHANGING}
    return [
        *_around("extend_list", "held", **longer, stage=Stage.LATER),
        *_around("change_budget", "held", **other),
    ]


def _aggregation() -> list[Point]:
    life = Life.AGGREGATING
    return [
        Point("aggregator: before the sample is spent", Session, "spend", calls=60, life=life),
        Point("aggregator: spent, before the noise", Aggregator, "_noised", calls=60, life=life),
        Point(
            "aggregator: noise drawn, not returned",
            Aggregator,
            "_noised",
            after=True,
            calls=60,
            life=life,
        ),
    ]


POINTS = (*_creation(), *_beginning(), *_charging(), *_ending(), *_changes(), *_aggregation())
AT_RANDOM = "at a random time"


# --- victims ---


@dataclass
class Victim:
    """A fork that lives until it is killed, or ends by itself.

    Args:
        point: at which it dies; None for a random time.
        delay: seconds after which the parent kills it; None to leave it alone.
    """

    point: Point | None
    delay: float | None
    pid: int = 0
    status: int | None = None
    born: float = 0.0
    died: float = 0.0

    def start(self, live: Callable[[], None], chance: random.Random, folder: Path) -> None:
        """Fork, and live in the fork; what goes wrong there is written to `folder`."""
        self.born = time.perf_counter()
        self.pid = os.fork()
        if self.pid:
            return
        try:
            signal.alarm(_LONGEST_LIFE)
            _STORED.watch()
            if self.point is not None:
                self.point.arm(chance)
            live()
        except BaseException:  # noqa: BLE001  (a fork must not return into its parent's code)
            (folder / "error").write_text(traceback.format_exc())
            os._exit(1)
        os._exit(0)

    @property
    def killed(self) -> bool:
        """Whether it died of SIGKILL."""
        return self.status == -signal.SIGKILL

    def look(self) -> bool:
        """Kill it if its time has come; say whether it is over."""
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status, self.died = os.waitstatus_to_exitcode(status), time.perf_counter()
            elif self.delay is not None and time.perf_counter() - self.born >= self.delay:
                os.kill(self.pid, signal.SIGKILL)
                self.delay = None
        return self.status is not None


def wait_for(victims: Sequence[Victim]) -> None:
    """Until all of them are over."""
    while any([not victim.look() for victim in victims]):  # noqa: C419  (all are looked at each time)
        time.sleep(_PAUSE)
