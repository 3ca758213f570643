"""A step of the NumPy engine against the same step in plain NumPy: numpy.linalg.norm, floating-point noise, no ledger.

    python benchmarks/aggregation.py

CPU time of one core, medians of interleaved rounds. Plain NumPy promises nothing about rounding; the engine checks every
record in integers, draws exact noise from the cryptographic source and charges a ledger.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

import discreet as dp

ROUNDS = 7
SHAPES = [(64, 1_000), (512, 1_000), (512, 10_000), (256, 100_000), (32, 1_000_000)]


def plain(rows: NDArray[np.float32], generator: np.random.Generator) -> NDArray[np.float64]:
    """What a careful script does."""
    norms = np.linalg.norm(rows, axis=1)
    factors = np.minimum(1.0, 1.0 / np.maximum(norms, 1e-12)).astype(np.float32)
    return np.asarray(factors @ rows + generator.normal(0.0, 1.1, rows.shape[1]))


def engine(rows: NDArray[np.float32]) -> Callable[[], object]:
    """One step of the engine, full batch, so that both do the same work."""
    records, dimension = rows.shape
    sampler = dp.Sampler(dp.Everything(), records=records, steps=10 * ROUNDS)
    plan = dp.Plan(sampler=sampler, mechanism=dp.Gaussian(1.0, 1.1), leaves={"x": dimension})
    run = dp.Aggregator(plan, ledger=dp.Ledger.in_memory())
    samples = run.samples()
    return lambda: run.release(next(samples), {"x": rows})


def main() -> None:
    """Print the table."""
    generator = np.random.default_rng(0)
    print(f"{'records':>8} {'dimension':>10} {'plain ms':>9} {'engine ms':>10} {'ratio':>6} {'engine ns per number':>21}")
    for records, dimension in SHAPES:
        rows = generator.normal(size=(records, dimension)).astype(np.float32)
        step = engine(rows)
        step()  # compiles what is compiled
        times: dict[str, list[float]] = {"plain": [], "engine": []}
        for _ in range(ROUNDS):
            for name, call in (("plain", lambda rows=rows: plain(rows, generator)), ("engine", step)):
                start = time.process_time()
                call()
                times[name].append(time.process_time() - start)
        one, two = (statistics.median(values) for values in times.values())
        each = two / records / dimension
        print(f"{records:>8} {dimension:>10} {one * 1e3:>9.2f} {two * 1e3:>10.2f} {two / one:>6.1f} {each * 1e9:>21.2f}")


if __name__ == "__main__":
    main()
