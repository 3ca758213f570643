"""A campaign of kills: ledgers that lose process after process, each time compared with what was
really released.

A case is one ledger. In each of its rounds one or two processes open it, go on where earlier ones
were killed, and are killed; then the ledger is reopened and compared. At last a process that nobody
kills takes all that the ledger still admits. What must hold is in `Case.compare`.
"""

from __future__ import annotations

import gc
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import traceback
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import discreet as dp
from discreet.ledger import Lease, Ledger, Rule, RunRecord, Snapshot
from discreet.ledger.storage.store import Store
from support import victims
from support.killing import AT_RANDOM, POINTS, Life, Point, Stage, Victim, wait_for
from support.victims import KINDS, Kind, Place

__all__ = ["BUGS", "Tally", "Verdict", "campaigns"]

ROUNDS = 4
RANDOM_SHARE = 0.25  # of the victims are killed at a random time


# --- results ---


@dataclass
class Tally:
    """What became of the victims of one point.

    Args:
        kills: processes that died there.
        released, charged: steps, of these processes alone.
        under: steps that were released and not charged.
        damaged: ledgers that could not be read afterwards.
    """

    kills: int = 0
    released: int = 0
    charged: int = 0
    under: int = 0
    damaged: int = 0

    def add(self, other: Tally) -> None:
        """The sum of both."""
        self.kills += other.kills
        self.released += other.released
        self.charged += other.charged
        self.under += other.under
        self.damaged += other.damaged


@dataclass
class Verdict:
    """The outcome of a campaign.

    Args:
        points: by name of the point.
        ledgers: cases that were gone through, to the process that nobody killed.
        journals: kills that left the journal of a transaction that was under way.
        errors: whatever else was wrong, in words.
    """

    points: dict[str, Tally] = field(default_factory=dict)
    ledgers: int = 0
    journals: int = 0
    errors: list[str] = field(default_factory=list)

    @property
    def total(self) -> Tally:
        """Over all points."""
        total = Tally()
        for tally in self.points.values():
            total.add(tally)
        return total

    @property
    def sound(self) -> bool:
        """Whether nothing was wrong."""
        return not (self.errors or self.total.under or self.total.damaged)

    def add(self, other: Verdict) -> None:
        """The sum of both."""
        for name, tally in other.points.items():
            self.points.setdefault(name, Tally()).add(tally)
        self.ledgers += other.ledgers
        self.journals += other.journals
        self.errors += other.errors

    def as_json(self) -> str:
        """For another process."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Verdict:
        """What `as_json` wrote."""
        content: dict[str, Any] = json.loads(text)
        points = {name: Tally(**tally) for name, tally in content.pop("points").items()}
        return cls(points=points, **content)


# --- one ledger ---


@dataclass
class Case:
    """One ledger, the processes that wrote to it, and what they say."""

    kind: Kind
    folder: Path
    places: list[Place] = field(default_factory=list)
    head: str | None = None
    errors: list[str] = field(default_factory=list)

    @property
    def path(self) -> Path:
        """Of the ledger."""
        return self.folder / "ledger"

    def new_place(self, writer: str, number: int) -> Place:
        """For one process more."""
        place = Place(self.folder, writer, number)
        self.places.append(place)
        return place

    def compare(self) -> dict[str, Tally] | None:
        """Reopen the ledger and compare it with the words of all processes; None if it is damaged.

        What must hold, besides that it verifies and still has the head that it had before:
            of each process and kind of step    charged >= released, and the excess is what is
                                                not settled, or one step
            of the ledger                       counted >= released
            of a list                           counted <= what was listed, or asked for in addition
            of a budget                         steps charged <= what its largest epsilon admits
        """
        if not self.path.exists():
            return {place.label: self._tally(place, {}, None) for place in self.places}
        try:
            with Ledger.open(self.path, "r") as ledger:
                snapshot = ledger.verify(self.head).snapshot()
        except dp.errors.LedgerError as damage:
            self.wrong(f"damaged: {damage}")
            return None
        self.head = snapshot.head
        self._compare_totals(snapshot)
        runs: dict[str, list[RunRecord]] = {}
        for run in snapshot.runs:
            runs.setdefault(run.info.label, []).append(run)
        return {
            place.label: self._compare_runs(place, runs.get(place.label, []))
            for place in self.places
        }

    def check_exact(self, place: Place, tallies: dict[str, Tally] | None) -> None:
        """Of a process that ended by itself, also beside others: it is charged what it released,
        neither less nor more.
        """
        if tallies is not None and tallies[place.label].charged != tallies[place.label].released:
            self.wrong(f"{place.label}, which nobody killed: {tallies[place.label]}")

    def _compare_runs(self, place: Place, runs: list[RunRecord]) -> Tally:
        charged: Counter[dp.ledger.Step] = Counter()
        for run in runs:
            charged.update(dict(run.charged))
        unsettled = sum(count for run in runs for _, count in run.unsettled)
        return self._tally(place, charged, unsettled)

    def _tally(
        self, place: Place, charged: dict[dp.ledger.Step, int], unsettled: int | None
    ) -> Tally:
        released = self._steps(place, "released")
        total = Tally(released=sum(released.values()), charged=sum(charged.values()))
        total.under = sum(max(0, count - charged.get(step, 0)) for step, count in released.items())
        if total.charged - total.released > (unsettled or 0) + 1:
            self.wrong(f"{place.label}: {total}, of which {unsettled} are not settled")
        return total

    def _compare_totals(self, snapshot: Snapshot) -> None:
        released = sum((self._steps(place, "released") for place in self.places), Counter())
        counted = dict(snapshot.counted())
        if any(counted.get(step, 0) < count for step, count in released.items()):
            self.wrong(f"counted {counted}, released {released}")
        if snapshot.rule is Rule.LIST:
            listed = Counter(dict(self.kind.listed))
            for place in self.places:
                listed.update(self._steps(place, "extended"))
            if any(count > listed[step] for step, count in counted.items()):
                self.wrong(f"counted {counted}, listed {listed}")
        epsilons = [
            held.terms.epsilon for held in snapshot.history if held.terms.epsilon is not None
        ]
        if epsilons and snapshot.steps > victims.most_steps(self.kind, max(epsilons)):
            self.wrong(f"{snapshot.steps} steps within epsilon {max(epsilons)}")

    def _steps(self, place: Place, name: str) -> Counter[dp.ledger.Step]:
        witnessed = place.witnessed(name)
        return Counter({step: witnessed.count(letter) for letter, step in self.kind.steps.items()})

    def wrong(self, what: str) -> None:
        """Note what must not be, with the last words of a process that failed."""
        error = self.folder / "error"
        words = error.read_text().strip().splitlines()[-1:] if error.exists() else []
        self.errors.append(" ".join([f"{self.kind.name}: {what}", *words]))


# --- many ---


@dataclass
class _Campaign:
    folder: Path
    chance: random.Random
    verdict: Verdict = field(default_factory=lambda: Verdict({name: Tally() for name in _names()}))
    life_time: float = 0.1  # seconds that a process takes if nobody kills it; measured as they go

    def __post_init__(self) -> None:
        self._queue = deque(self.chance.sample(POINTS, len(POINTS)))

    def run(self, kills: int) -> Verdict:
        """Go through cases until so many processes were killed."""
        for kind in self._kinds():
            if self.verdict.total.kills >= kills:
                return self.verdict
            folder = Path(tempfile.mkdtemp(dir=self.folder))
            case = Case(kind, folder)
            self._go_through(case)
            self.verdict.errors += case.errors
            if not case.errors:
                shutil.rmtree(folder)
        raise AssertionError("the kinds never end")

    def _kinds(self) -> Iterator[Kind]:
        while True:
            yield from self.chance.sample(KINDS, len(KINDS))

    def _go_through(self, case: Case) -> None:
        for number in range(ROUNDS):
            round_ = [
                self._start(case, f"writer {writer}", number) for writer in range(case.kind.writers)
            ]
            wait_for([victim for victim, _ in round_])
            if not self._account_for(case, round_):
                return
        self._finish(case)

    def _start(self, case: Case, writer: str, number: int) -> tuple[Victim, Place]:
        stage = Stage.LATER if number else Stage.FIRST
        point = None if self.chance.random() < RANDOM_SHARE else self._next_point(case.kind, stage)
        delay = self.chance.uniform(0.0, 1.5 * self.life_time) if point is None else None
        victim = Victim(point, delay)
        place = case.new_place(writer, number)
        chance = random.Random(self.chance.random())
        life = Life.ANY if point is None else point.life
        victim.start(lambda: victims.live(case.kind, place, life, chance), chance, case.folder)
        return victim, place

    def _next_point(self, kind: Kind, stage: Stage) -> Point | None:
        """The point that waited longest among those that this ledger can reach now."""
        for point in self._queue:
            if point.stage in (stage, Stage.ANY) and kind.suits(point.life):
                self._queue.remove(point)
                self._queue.append(point)
                return point
        return None

    def _account_for(self, case: Case, round_: list[tuple[Victim, Place]]) -> bool:
        """Compare, and add what became of each victim to its point; False if the ledger cannot go
        on.
        """
        self.verdict.journals += case.path.with_name("ledger-journal").exists()
        tallies = case.compare()
        for victim, place in round_:
            if victim.status not in (0, -9):
                case.wrong(f"a process ended with {victim.status}")
            if not victim.killed:
                case.check_exact(place, tallies)
                if tallies is not None and tallies[place.label].released:
                    self.life_time += 0.1 * (victim.died - victim.born - self.life_time)
                continue
            tally = self.verdict.points[AT_RANDOM if victim.point is None else victim.point.name]
            tally.add(Tally(damaged=1) if tallies is None else tallies[place.label])
            tally.kills += 1
        return tallies is not None

    def _finish(self, case: Case) -> None:
        """Let a process that nobody kills take the rest."""
        place = case.new_place("writer 0", ROUNDS)
        survivor = Victim(None, None)
        survivor.start(lambda: victims.draw_all(case.kind, place), self.chance, case.folder)
        wait_for([survivor])
        tallies = case.compare()
        if survivor.status != 0 or tallies is None:
            case.wrong(f"the last process ended with {survivor.status}")
        case.check_exact(place, tallies)
        self.verdict.ledgers += 1


def _names() -> list[str]:
    return [*(point.name for point in POINTS), AT_RANDOM]


def _warm_up() -> None:
    """Import and compute here, once, what every fork would import and compute for itself."""
    for kind in KINDS:
        for epsilon in (3.0, kind.epsilon):
            victims.most_steps(kind, epsilon)
        with tempfile.TemporaryDirectory() as folder:
            place = Place(Path(folder), "writer 0", 0)
            victims.live(kind, place, Life.CHANGING, random.Random(0))


def campaigns(folder: Path, kills: int, *, jobs: int, seed: int = 0, bug: str = "") -> Verdict:
    """Kill so many processes, on several ledgers at once: most of the time goes into waiting for
    the disk.

    Args:
        folder: for the ledgers.
        kills: how many, at least.
        jobs: ledgers at once.
        seed: of points and lives; random times stay random.
        bug: one of `BUGS`, put into the library first.
    """
    search = [str(Path(__file__).parents[1]), str(Path(dp.__file__).parents[1])]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(search),
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    command = [
        sys.executable,
        "-m",
        "support.crashes",
        str(folder),
        str(kills),
        str(jobs),
        str(seed),
        bug,
    ]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, check=True)
    return Verdict.from_json(done.stdout)


def _all_jobs(folder: Path, kills: int, jobs: int, seed: int, bug: str) -> Verdict:
    """The same in this process, which has no threads and is warm before it forks."""
    _warm_up()
    if bug:
        BUGS[bug]()
    gc.freeze()  # what is there now is not copied into every fork by a collection
    pids = [
        _fork_job(folder, kills // jobs + (number < kills % jobs), seed, number)
        for number in range(jobs)
    ]
    verdict = Verdict()
    for number, pid in enumerate(pids):
        _, status = os.waitpid(pid, 0)
        if status:
            verdict.errors.append(f"job {number} ended with {os.waitstatus_to_exitcode(status)}")
        else:
            verdict.add(Verdict.from_json(_result(folder, number).read_text()))
    return verdict


def _fork_job(folder: Path, kills: int, seed: int, number: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        verdict = _Campaign(folder, random.Random(1_000 * seed + number)).run(kills)
        _result(folder, number).write_text(verdict.as_json())
    except BaseException:  # noqa: BLE001  (a fork must not return into its parent's code)
        sys.stderr.write(traceback.format_exc())
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)


def _result(folder: Path, number: int) -> Path:
    return folder / f"job {number}.json"


# --- deliberate bugs, to see that a campaign notices them ---


def _charge_after_the_release() -> None:
    right = Ledger.reserve

    def late(
        self: Ledger, run: int, step: dp.ledger.Step, count: int, **_: object
    ) -> tuple[int, Lease]:
        def charge(taken: int) -> None:
            right(self, run, step, max(taken, 1), spelled_out_in=None)[1].settle()

        return 0, Lease(count, charge)

    Ledger.reserve = late  # type: ignore[method-assign]


def _settle_before_the_lease_ends() -> None:
    right = Lease.take

    def take(self: Lease) -> int:
        number = right(self)
        if not self._settled:
            self._write_settlement(self._taken)
            self._settled = True
        return number

    Lease.take = take  # type: ignore[method-assign]


def _no_transaction() -> None:
    right = Store._sql

    def sql(self: Store, command: str, values: tuple[object, ...] = ()) -> Any:
        return (
            []
            if command in ("BEGIN IMMEDIATE", "BEGIN", "COMMIT", "ROLLBACK")
            else right(self, command, values)
        )

    Store._sql = sql  # type: ignore[method-assign]


BUGS = {
    "charge after the release": _charge_after_the_release,
    "settle before the lease ends": _settle_before_the_lease_ends,
    "no transaction": _no_transaction,
}


def _main(folder: str, kills: str, jobs: str, seed: str, bug: str) -> None:
    sys.stdout.write(_all_jobs(Path(folder), int(kills), int(jobs), int(seed), bug).as_json())


if __name__ == "__main__":
    _main(*sys.argv[1:])
