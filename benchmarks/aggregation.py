"""A step of the NumPy engine against the same step in plain NumPy: numpy.linalg.norm,
floating-point noise, no ledger.

    python benchmarks/aggregation.py

CPU time of one core, medians of interleaved rounds. Plain NumPy promises nothing about rounding;
the engine checks every record in integers, draws exact noise from the cryptographic source and
charges a ledger. Its norms and sums are measured in NumPy and compiled.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np
from numpy.typing import NDArray

import discreet as dp
from discreet.numerics import _compiled

ROUNDS = 15
SHAPES = [(64, 1_000), (512, 1_000), (512, 10_000), (256, 100_000), (32, 1_000_000)]


def plain(rows: NDArray[np.float32], generator: np.random.Generator) -> NDArray[np.float64]:
    """What a careful script does."""
    norms = np.linalg.norm(rows, axis=1)
    factors = np.minimum(1.0, 1.0 / np.maximum(norms, 1e-12)).astype(np.float32)
    return np.asarray(factors @ rows + generator.normal(0.0, 1.1, rows.shape[1]))


def engine(rows: NDArray[np.float32], worth: float) -> Callable[[], object]:
    """One step of the engine, full batch, so that both do the same work; compiled from so many
    numbers on.
    """
    records, dimension = rows.shape
    sampler = dp.Sampler(dp.Everything(), records=records, steps=ROUNDS + 1)
    plan = dp.Plan(sampler=sampler, mechanism=dp.Gaussian(1.0, 1.1), leaves={"x": dimension})
    run = dp.Aggregator(plan, ledger=dp.Ledger.in_memory())
    samples = run.samples()

    def step() -> object:
        with compiled_from(worth):
            return run.release(next(samples), {"x": rows})

    step()  # loads what is compiled
    return step


@contextmanager
def compiled_from(worth: float) -> Iterator[None]:
    """Compiled code from the first number on (-1), or never (infinity)."""
    before = _compiled._WORTH, _compiled.worth_it  # noqa: SLF001  (either path at will)
    _compiled._WORTH = worth  # type: ignore[assignment]  # noqa: SLF001
    if math.isinf(worth):
        _compiled.worth_it = lambda _: False  # type: ignore[assignment]
    try:
        yield
    finally:
        _compiled._WORTH, _compiled.worth_it = before  # noqa: SLF001


def main() -> None:
    """Print the table."""
    generator = np.random.default_rng(0)
    print("                       ms per step                ratio to plain     ns per number")
    print(" records  dimension    plain    NumPy  compiled    NumPy  compiled    NumPy  compiled")
    for records, dimension in SHAPES:
        rows = generator.normal(size=(records, dimension)).astype(np.float32)
        steps: list[Callable[[], object]] = [
            partial(plain, rows, generator),
            engine(rows, math.inf),
            engine(rows, -1),
        ]
        times: list[list[float]] = [[] for _ in steps]
        for _ in range(ROUNDS):
            for call, taken in zip(steps, times, strict=True):
                start = time.process_time()
                call()
                taken.append(time.process_time() - start)
        base, *ours = (statistics.median(taken) * 1e3 for taken in times)
        columns = [f"{records:>8} {dimension:>10} {base:>8.2f}"]
        for unit, places in ((1.0, 2), (base, 1), (records * dimension * 1e-6, 2)):
            columns.append(
                "{:>8.{places}f} {:>9.{places}f}".format(
                    *(taken / unit for taken in ours), places=places
                )
            )
        print(*columns)


if __name__ == "__main__":
    main()
