"""What durability costs: per step, in bytes, and when the ledger is read again and accounted for.

    python -m benchmarks.ledger [--folder DIR]

Goals: reserving and settling together below 1 % of a step of 10 ms, with full durability; a million
equal steps below 100 kB, 50 ms to replay, and 0.3 s to account for in a new process, after import
(scipy, which the library imports when it is first needed, is counted apart); 100,000 different
steps below 2 s to replay. The folder should be on a real disk: a file system in memory makes
durability free. What a commit costs is up to the disk and to who else uses it, so the number of
commits and the processor's share are printed too.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import discreet as dp
from discreet.ledger import Rule, Run, Terms, block_size
from discreet.ledger.storage import exchange
from discreet.ledger.storage.book import Book, follow
from discreet.ledger.storage.codec import encode
from discreet.ledger.storage.rows import Began, Held, Opened, Reserved, Row
from discreet.ledger.storage.store import StoredLine

INFO = dp.ledger.RunInfo(
    unit=dp.Unit.EXAMPLE,
    adjacency=dp.Adjacency.ADD_OR_REMOVE,
    groups=("grad",),
    numerics=dp.Numerics.IDEALISED,
    randomness=dp.units.Randomness.SYSTEM,
    parameters=dp.units.Parameters.FIXED_IN_ADVANCE,
)
REPEATS = 5
STEP_SECONDS = 0.010
COMMITS = 50
ACCOUNT = """
import sys, time
import discreet as dp
start = time.perf_counter()
import scipy.fft, scipy.special
imported = time.perf_counter()
with dp.Ledger.open(sys.argv[1], "r") as ledger:
    guarantee = dp.account(ledger, delta=1e-5)
print(time.perf_counter() - imported, imported - start, guarantee.upper)
"""


def step(noise_std: float = 1.1) -> dp.ledger.Step:
    """One step of plain DP-SGD."""
    return dp.ledger.Step(dp.Poisson(0.01), dp.ledger.GaussianSum("grad", 1.0, noise_std))


def seconds(work: Callable[[], object]) -> float:
    """Wall-clock time of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def median(work: Callable[[], object]) -> float:
    """Median wall-clock time over several calls."""
    return statistics.median(seconds(work) for _ in range(REPEATS))


def take_all(run: Run, total: int, block: int | None) -> None:
    """Steps that do nothing, so that charging is all there is to measure."""
    for _ in run.steps(step(), total, block=block):
        pass


def charging(folder: Path) -> None:
    """Cost of charging, by number of steps and size of the block."""
    with dp.Ledger.open(folder / "commits.ledger") as ledger:
        run = ledger.begin(INFO, [(step(), COMMITS)])
        write = statistics.median(
            seconds(partial(run.reserve, step(), count=1)) for _ in range(COMMITS)
        )
    print(f"one durable reservation                          {write * 1e6:10.1f} us")
    print(
        f"{'steps':>9}  {'block':>8}  {'commits':>8}  {'CPU us a step':>14}  "
        f"{'us a step':>10}  share of a step of 10 ms"
    )
    for total, block in (
        (100, None),
        (1_000, None),
        (10_000, None),
        (1_000_000, None),
        (10_000, 256),
    ):
        with dp.Ledger.open(folder / f"{total}.{block}.ledger") as ledger:
            run = ledger.begin(INFO, [(step(), total * REPEATS)])
            repeats = 1 if total > 100_000 else REPEATS
            cpu = time.process_time()
            taken = (
                statistics.median(
                    seconds(partial(take_all, run, total, block)) for _ in range(repeats)
                )
                / total
            )
            cpu = (time.process_time() - cpu) / repeats / total
        size = "growing" if block is None else str(block)
        numbers = f"{commits(total, block):>8,}  {cpu * 1e6:>14.2f}  {taken * 1e6:>10.2f}"
        print(f"{total:>9,}  {size:>8}  {numbers}  {taken / STEP_SECONDS:>8.3%}")


def commits(total: int, block: int | None) -> int:
    """Transactions of a run: one for each block, which settles the one before, and one for the last
    settlement.
    """
    taken, blocks = 0, 0
    while taken < total:
        taken += min(total - taken, block or block_size(taken))
        blocks += 1
    return blocks + 1


def a_million_equal(folder: Path) -> None:
    """Size, replay and accounting of one long run."""
    path = folder / "equal.ledger"
    with dp.Ledger.open(path) as ledger:
        take_all(ledger.begin(INFO, [(step(), 1_000_000)]), 1_000_000, None)
    replay = median(lambda: replayed(path))
    print(f"1,000,000 equal steps: size                      {path.stat().st_size / 1e3:10.1f} kB")
    print(f"1,000,000 equal steps: open, check, read         {replay * 1e3:10.1f} ms")
    accounting, importing, epsilon = zip(
        *(accounted_for(path) for _ in range(REPEATS)), strict=True
    )
    print(
        "1,000,000 equal steps: account, after import     "
        f"{statistics.median(accounting):10.3f} s (epsilon {epsilon[0]:.4g})"
    )
    print(
        f"               scipy, imported when first needed {statistics.median(importing):10.3f} s"
    )


def accounted_for(path: Path) -> tuple[float, float, float]:
    """Seconds from import to guarantee in a new process, seconds for scipy, and epsilon."""
    done = subprocess.run(
        [sys.executable, "-c", ACCOUNT, str(path)], capture_output=True, text=True, check=True
    )
    accounting, importing, epsilon = map(float, done.stdout.split())
    return accounting, importing, epsilon


def replayed(path: Path) -> int:
    """Number of steps that a ledger holds, read from disk."""
    with dp.Ledger.open(path, "r") as ledger:
        return ledger.snapshot().steps


def many_different(folder: Path) -> None:
    """Replay of a run in which no step is like another; writing them is not measured."""
    path = folder / "different.ledger"
    terms = Terms(rule=Rule.RENYI_FILTER, epsilon=1e6, delta=1e-5, orders=((8.0, 1.0),))
    rows: list[Row] = [Opened("different", "now"), Held(terms, "", "now"), Began(INFO, (), "now")]
    rows += [Reserved(2, step(1.0 + number * 1e-5), 1) for number in range(100_000)]
    exchange.write(folder / "different.jsonl", chained(rows))
    dp.Ledger.load(folder / "different.jsonl", into=path).close()
    replay = median(lambda: replayed(path))
    print(f"100,000 different steps: size                    {path.stat().st_size / 1e6:10.1f} MB")
    print(f"100,000 different steps: open, check, read       {replay:10.2f} s")


def chained(rows: list[Row]) -> list[StoredLine]:
    """Rows with their digests."""
    digest, lines = Book().digest, []
    for row in rows:
        body = encode(row)
        digest = follow(digest, body)
        lines.append((body, digest))
    return lines


def main() -> None:
    """Run all three."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--folder", type=Path, default=Path(), help="where to write (default: here)"
    )
    with tempfile.TemporaryDirectory(dir=parser.parse_args().folder) as folder:
        charging(Path(folder))
        a_million_equal(Path(folder))
        many_different(Path(folder))


if __name__ == "__main__":
    main()
