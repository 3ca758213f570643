"""Private statistics of feature vectors against the same statistics in plain NumPy: no noise, no
check, no ledger.

    python benchmarks/features.py [--records 60000] [--rounds 3]

CPU time, medians of interleaved rounds. Set OMP_NUM_THREADS=1 for one core: plain products and ours
use the same library.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

import discreet as dp
from discreet import features

DIMENSIONS = (250, 1000, 2500)
NOISE = 12.0


def plain_moments(rows: NDArray[np.float32]) -> object:
    """Means and standard deviations."""
    return rows.mean(0), rows.std(0)


def plain_directions(rows: NDArray[np.float32]) -> object:
    """Second moments in float32, and their eigenvectors in float64."""
    return np.linalg.eigh((rows.T @ rows / len(rows)).astype(np.float64))


def private_moments(rows: NDArray[np.float32]) -> object:
    """The same by a private query."""
    plan = features.standardise_plan(
        records=len(rows), dimension=rows.shape[1], noise_multiplier=NOISE
    )
    return features.standardise(rows, plan=plan, ledger=dp.Ledger.in_memory())


def private_directions(rows: NDArray[np.float32]) -> object:
    """The same by a private query."""
    plan = features.whiten_plan(records=len(rows), dimension=rows.shape[1], noise_multiplier=NOISE)
    return features.whiten(rows, plan=plan, ledger=dp.Ledger.in_memory())


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=60_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    calls: tuple[Callable[[NDArray[np.float32]], object], ...] = (
        plain_moments,
        private_moments,
        plain_directions,
        private_directions,
    )
    print(
        f"seconds of CPU, {options.records} records\ndimension   moments: plain  private   "
        "directions: plain  private"
    )
    for dimension in DIMENSIONS:
        rows = (
            np.random.default_rng(0)
            .normal(0.0, dimension**-0.5, (options.records, dimension))
            .astype(np.float32)
        )
        times: list[list[float]] = [[] for _ in calls]
        for _ in range(options.rounds):
            for call, taken in zip(calls, times, strict=True):
                start = time.process_time()
                call(rows)
                taken.append(time.process_time() - start)
        one, two, three, four = (statistics.median(taken) for taken in times)
        print(f"{dimension:>9} {one:>16.2f} {two:>8.2f} {three:>19.2f} {four:>8.2f}")


if __name__ == "__main__":
    main()
