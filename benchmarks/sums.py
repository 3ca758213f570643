"""What certified norms and exact sums cost, and how much quantisation shrinks a record.

    python benchmarks/sums.py

CPU time per number, one thread, contenders interleaved, medians. Shrink: 1 - <v, k g> / |v|^2 for a
record clipped to norm 1.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np

from discreet.numerics import ExactSum, FloatSum, Grid, float_sum_sensitivity, l2_norms, quantise

ROUNDS = 5


def costs(batch: int, dimension: int) -> None:
    """Nanoseconds of CPU time per number."""
    rows = np.random.default_rng(0).standard_normal((batch, dimension), np.float32)
    weights = 1.0 / l2_norms(rows)
    total = ExactSum({"a": dimension}, clip_norm=1.0, grid=Grid(2.0**-23))
    plain = weights.astype(np.float32)
    contenders: dict[str, Callable[[], object]] = {
        "float32 norm": lambda: np.einsum("bd,bd->b", rows, rows),
        "certified norm": lambda: l2_norms(rows),
        "float32 weighted sum": lambda: plain @ rows,
        "exact sum": lambda: total.add({"a": rows}, weights),
    }
    taken: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(ROUNDS):
        for name, run in contenders.items():
            start = time.process_time()
            run()
            taken[name].append((time.process_time() - start) / rows.size * 1e9)
    print(
        f"B={batch}, d={dimension}: "
        + ", ".join(f"{name} {statistics.median(t):.2f} ns" for name, t in taken.items())
    )


def shrink(dimension: int, noise_multiplier: float) -> None:
    """How much shorter a Gaussian direction of norm 1 becomes."""
    row = np.random.default_rng(1).standard_normal((1, dimension), np.float32)
    grid = Grid.for_noise(noise_std=noise_multiplier, clip_norm=1.0)
    weight = 1.0 / l2_norms(row)
    units = quantise({"a": row}, weight, clip_norm=1.0, grid=grid)["a"]
    kept = float(np.sum(units * grid.spacing * row.astype(np.float64) * weight))
    print(
        f"d={dimension}, noise multiplier {noise_multiplier}: shrink {1.0 - kept:.1e} (K = "
        f"2^{np.log2(grid.radius(1.0)):.0f})"
    )


def inflation(records: int, microbatch: int) -> None:
    """What float32 sums add to the sensitivity."""
    grid, sizes = Grid(2.0**-26), []
    for changed in (None, 1, 2):
        how = FloatSum(
            records=records,
            microbatch=microbatch,
            dtype=np.float32,
            dimension=10**6,
            changed_microbatches=changed,
        )
        sizes.append(float_sum_sensitivity(how, clip_norm=1.0, grid=grid) - 1.0)
    print(
        f"L={records}, microbatch {microbatch}: +{sizes[0]:.2%}, fixed places "
        f"+{sizes[1]:.3%}, random order +{sizes[2]:.3%}"
    )


def main() -> None:
    """Print all figures."""
    for batch, dimension in ((64, 100_000), (16, 1_000_000), (4096, 50)):
        costs(batch, dimension)
    for dimension in (100, 10_000, 1_000_000, 10_000_000):
        shrink(dimension, 1.0)
    shrink(1_000_000, 100.0)
    for records in (256, 1024, 4096, 65_536):
        inflation(records, 32)


if __name__ == "__main__":
    main()
