"""What durability costs: per step, in bytes, and when the ledger is read again.

    python benchmarks/ledger.py [--folder DIR]

Goals: below 20 microseconds a step with full durability; a million equal steps below 100 kB and 50 ms to replay; 100,000
different steps below 2 s to replay. The folder should be on a real disk; a file system in memory makes durability free.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import discreet as dp
from discreet.ledger import Run

INFO = dp.RunInfo(
    unit=dp.Unit.EXAMPLE,
    adjacency=dp.Adjacency.ADD_OR_REMOVE,
    groups=("grad",),
    numerics=dp.Numerics.IDEALISED,
    randomness=dp.Randomness.SYSTEM,
    parameters=dp.Parameters.FIXED_IN_ADVANCE,
)
REPEATS = 5
DIFFERENT = 100_000


def step(noise_std: float = 1.1) -> dp.Step:
    """One step of plain DP-SGD."""
    return dp.Step(dp.Poisson(0.01), dp.GaussianSum("grad", 1.0, noise_std))


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
    ledger = dp.Ledger.open(folder / "charging.ledger")
    run = ledger.begin(INFO, [(step(), 10_000_000)])
    write = median(lambda: run.reserve(step(), count=1))
    print(f"one durable reservation                          {write * 1e6:10.1f} us")
    for total, block in ((1_000, None), (10_000, None), (1_000_000, None), (10_000, 256)):
        repeats = 1 if total > 100_000 else REPEATS
        taken = statistics.median(seconds(partial(take_all, run, total, block)) for _ in range(repeats))
        size = "growing" if block is None else str(block)
        print(f"{total:>9,} steps, block {size:>8}: per step        {taken / total * 1e6:10.2f} us")


def a_million_equal(folder: Path) -> None:
    """Size and replay of one long run."""
    path = folder / "equal.ledger"
    with dp.Ledger.open(path) as ledger:
        take_all(ledger.begin(INFO, [(step(), 1_000_000)]), 1_000_000, None)
    replay = median(lambda: dp.Ledger.open(path, "r").charges())
    print(f"1,000,000 equal steps: size                      {path.stat().st_size / 1e3:10.1f} kB")
    print(f"1,000,000 equal steps: open, check, read         {replay * 1e3:10.1f} ms")


def many_different(folder: Path) -> None:
    """Replay of a run in which no step is like another; writing them is not measured."""
    path = folder / "different.ledger"
    kinds = [step(1.0 + number * 1e-5) for number in range(DIFFERENT)]
    memory = dp.Ledger.in_memory()
    run = memory.begin(INFO, [(kind, 1) for kind in kinds])
    for kind in kinds:
        run.reserve(kind, count=1)
    memory.export(folder / "different.jsonl")
    dp.Ledger.load(folder / "different.jsonl", into=path).close()
    replay = median(lambda: dp.Ledger.open(path, "r").charges())
    print(f"{DIFFERENT:,} different steps: size                    {path.stat().st_size / 1e6:10.1f} MB")
    print(f"{DIFFERENT:,} different steps: open, check, read       {replay:10.2f} s")


def main() -> None:
    """Run all three."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path(), help="where to write (default: here)")
    with tempfile.TemporaryDirectory(dir=parser.parse_args().folder) as folder:
        charging(Path(folder))
        a_million_equal(Path(folder))
        many_different(Path(folder))


if __name__ == "__main__":
    main()
