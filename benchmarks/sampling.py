"""What exact samples cost, against floating-point ones from PyTorch and NumPy that are not exact.

    python benchmarks/sampling.py

Goals: a Poisson sample of 10^7 records at least 5 times faster than `torch.rand(n) < q`; 10^8
records in the memory of the sample. Times are CPU milliseconds, one thread, medians of interleaved
calls. Ours end with sorted positions, the others with a mask.
"""

from __future__ import annotations

import itertools
import statistics
import time
import tracemalloc
from collections.abc import Callable

import numpy as np
import torch

import discreet as dp
from discreet.randomness import Purpose, Source, Stream
from discreet.randomness.draws import bernoulli, permutation, subset
from discreet.sampling import Sampler

RECORDS = 10**7
REPEATS = 9


def milliseconds(work: Callable[[], object]) -> float:
    """CPU time of one call."""
    start = time.process_time()
    work()
    return 1e3 * (time.process_time() - start)


def medians(works: dict[str, Callable[[], object]], repeats: int = REPEATS) -> dict[str, float]:
    """Median CPU time of each, called in turn so that a busy machine slows all alike."""
    rounds = [{name: milliseconds(work) for name, work in works.items()} for _ in range(repeats)]
    return {name: statistics.median(one[name] for one in rounds) for name in works}


def row(title: str, times: dict[str, float]) -> str:
    """One line of the table; how many times faster the first is than each."""
    ours = next(iter(times.values()))
    return (
        f"| {title} | "
        + " | ".join(f"{name} {value:.2f} ({value / ours:.1f}x)" for name, value in times.items())
        + " |"
    )


def peak_megabytes(policy: dp.Poisson, records: int) -> tuple[float, float]:
    """Largest memory during one draw, and that of its positions."""
    draw = Sampler(policy, records=records, steps=1).draw(Source.system())
    tracemalloc.start()
    sample = next(draw)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 1e6, sample.indices.nbytes / 1e6


def main() -> None:
    """Print the tables."""
    torch.set_num_threads(1)
    source, generator, steps = Source.system(), np.random.default_rng(), itertools.count()

    def stream() -> Stream:
        return source.stream(Purpose.SAMPLE, step=next(steps))

    print(f"Poisson samples of {RECORDS:,} records, CPU ms (how many times ours):\n")
    for probability in (1e-2, 1e-3, 1e-5):
        works: dict[str, Callable[[], object]] = {
            "ours": lambda q=probability: bernoulli(stream(), q, 0, RECORDS),  # type: ignore[misc]
            "torch.rand(n) < q": lambda q=probability: torch.rand(RECORDS) < q,  # type: ignore[misc]
            "numpy random(n) < q": lambda q=probability: generator.random(RECORDS) < q,  # type: ignore[misc]
        }
        print(row(f"q = {probability:g}", medians(works)))
    print("\nPermutations:\n")
    for count in (10**6, RECORDS):
        works = {
            "ours": lambda n=count: permutation(stream(), n),  # type: ignore[misc]
            "torch.randperm": lambda n=count: torch.randperm(n),  # type: ignore[misc]
            "numpy permutation": lambda n=count: generator.permutation(n),  # type: ignore[misc]
        }
        print(row(f"n = {count:,}", medians(works, repeats=3)))
    print("\nSubsets of 10,000 from 10^8:\n")
    works = {
        "ours": lambda: subset(stream(), 10_000, 10**8),
        "numpy choice": lambda: generator.choice(10**8, 10_000, replace=False),
    }
    print(row("", medians(works)))
    print("\nOne Poisson draw of 10^8 records: peak memory, of which positions, CPU ms:\n")
    for probability in (1e-6, 1e-3):
        sampler = Sampler(dp.Poisson(probability), records=10**8, steps=1)
        spent = milliseconds(lambda one=sampler: next(one.draw(Source.system())))  # type: ignore[misc]
        peak, held = peak_megabytes(dp.Poisson(probability), 10**8)
        print(f"| q = {probability:g} | {peak:.2f} MB | {held:.2f} MB | {spent:.0f} ms |")


if __name__ == "__main__":
    main()
