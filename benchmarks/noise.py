"""Nanoseconds per Gaussian number: this library, torch, NumPy and OpenDP's exact sampler, side by
side.

    python benchmarks/noise.py            # about a minute
    python benchmarks/noise.py --quick    # about twenty seconds

All take turns on one thread, so that whatever else the machine does hits all of them; the median of
their CPU time is shown. Ours includes the cipher, the exact path for undecided numbers and the
addition onto the caller's array; a release also its checks, the grid and the cast. Only ours and
OpenDP's are exact; the others are floating-point noise. The last table is time on the wall, with
one and two threads. Its control is hashing without Python's lock: what a second thread can gain on
this machine at all. Peers that are not installed are named. Between the tables stands each goal,
and whether this run meets it.

With less than this processor has: DISCREET_INSTRUCTIONS=avx2 ATEN_CPU_CAPABILITY=avx2.
"""

from __future__ import annotations

import argparse
import hashlib
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np

from discreet.numerics import Grid
from discreet.randomness import GaussianNoise, Purpose, Source, gaussian, release, ziggurat
from discreet.randomness.ahead import NoiseAhead

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Action = Callable[[], object]

SMALL, LARGE, EXACT = (
    2**16,
    2**22,
    2_000,
)  # numbers: in the cache, streaming, and for samplers that take microseconds
STD = 1.1
GRID = Grid.for_noise(noise_std=STD, clip_norm=1.0)
SCALE = GRID.scale(STD)


class Ours:
    """Releases from one source, each with a stream of its own."""

    def __init__(self) -> None:
        self._source = Source.system()
        self._step = 0

    def noise(self, size: int, threads: int = 1) -> GaussianNoise:
        """Noise of the next step."""
        self._step += 1
        return GaussianNoise(
            self._source.stream(Purpose.NOISE, step=self._step),
            scale=SCALE,
            size=size,
            threads=threads,
        )

    def add(self, integers: NDArray[np.float64], *, compiled: bool, threads: int = 1) -> Action:
        """Noise added onto integers that are known to be such (as in a release)."""

        def action() -> None:
            noise = self.noise(integers.size, threads)
            if not compiled:
                noise._backend = ziggurat.IN_NUMPY  # noqa: SLF001
            noise._release(integers, integers, 1.0)  # noqa: SLF001

        return action

    def release(self, sums: NDArray[np.floating], *, threads: int = 1) -> Action:
        """A whole release, in place."""

        def action() -> None:
            self._step += 1
            stream = self._source.stream(Purpose.NOISE, step=self._step)
            release(sums, grid=GRID, noise_std=STD, stream=stream, out=sums, threads=threads)

        return action

    def ahead(self, sums: NDArray[np.floating], work: Action) -> Action:
        """Work of a step, and a release whose noise is drawn meanwhile."""

        def action() -> None:
            self._step += 1
            stream = self._source.stream(Purpose.NOISE, step=self._step)
            with NoiseAhead(stream, grid=GRID, noise_std=STD, size=sums.size) as noise:
                work()
                noise.release(sums, out=sums)

        return action


def torch_rows() -> dict[str, tuple[Action, int]] | str:
    """What torch offers, on one thread."""
    try:
        import torch  # noqa: PLC0415
    except ImportError:
        return "torch is not installed"
    torch.set_num_threads(1)
    small, large, double, target = (
        torch.zeros(SMALL),
        torch.zeros(LARGE),
        torch.zeros(LARGE, dtype=torch.float64),
        torch.zeros(LARGE),
    )
    return {
        "torch.randn float32, in cache": (small.normal_, SMALL),
        "torch.randn float32": (large.normal_, LARGE),
        "torch.randn float32 and add": (lambda: target.add_(large.normal_()), LARGE),
        "torch.randn float64": (double.normal_, LARGE),
    }


def numpy_rows() -> dict[str, tuple[Action, int]]:
    """NumPy's ziggurat."""
    generator, out = np.random.default_rng(), np.empty(LARGE)
    return {"numpy standard_normal float64": (lambda: generator.standard_normal(out=out), LARGE)}


def our_rows(ours: Ours) -> dict[str, tuple[Action, int]]:
    """Both paths of this library."""
    small, large = np.zeros(SMALL), np.zeros(LARGE)
    sums32, sums64 = np.zeros(LARGE, np.float32), np.zeros(LARGE)
    rows = {
        "ours NumPy, in cache": (ours.add(small, compiled=False), SMALL),
        "ours NumPy, onto 4M float64": (ours.add(large, compiled=False), LARGE),
    }
    gaussian._asked_for["numbers"] += gaussian._WORTH_COMPILING  # noqa: SLF001
    if gaussian._backend() is not ziggurat.IN_NUMPY:  # noqa: SLF001
        rows |= {
            "ours compiled, in cache": (ours.add(small, compiled=True), SMALL),
            "ours compiled, onto 4M float64": (ours.add(large, compiled=True), LARGE),
        }
    return rows | {
        "ours release() of float64 sums": (ours.release(sums64), LARGE),
        "ours release() of float32 sums": (ours.release(sums32), LARGE),
    }


def opendp_rows() -> dict[str, tuple[Action, int]] | str:
    """OpenDP's exact discrete Gaussian on a vector of integers."""
    try:
        import opendp.prelude as dp  # noqa: PLC0415
    except ImportError:
        return "opendp is not installed"
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l2_distance(T=float)
    mechanism = dp.m.make_gaussian(*space, scale=SCALE)
    zeros = [0] * EXACT
    return {"OpenDP make_gaussian, integers": (lambda: mechanism(zeros), EXACT)}


def medians(
    rows: dict[str, tuple[Action, int]], rounds: int, clock: Callable[[], float]
) -> dict[str, float]:
    """Nanoseconds per number; the rows take turns."""
    times: dict[str, list[float]] = {name: [] for name in rows}
    for number in range(rounds + 1):
        for name, (action, size) in rows.items():
            start = clock()
            action()
            if number:  # the first round warms up
                times[name].append((clock() - start) / size * 1e9)
    return {name: statistics.median(values) for name, values in times.items()}


def on_the_wall(ours: Ours) -> dict[str, tuple[Action, int]]:
    """Threads, and noise drawn while a step computes as long as the noise takes."""
    large, sums = np.zeros(LARGE), np.zeros(LARGE)
    work = ours.add(large, compiled=True)
    serial = ours.release(np.zeros(LARGE))
    pool, half = ThreadPoolExecutor(2), bytes(LARGE // 2)
    return {
        "control: hashing, 1 thread": (lambda: [hashlib.sha256(half), hashlib.sha256(half)], LARGE),
        "control: hashing, 2 threads": (
            lambda: list(pool.map(hashlib.sha256, (half, half))),
            LARGE,
        ),
        "ours, 1 thread": (ours.add(large, compiled=True), LARGE),
        "ours, 2 threads": (ours.add(large, compiled=True, threads=2), LARGE),
        "step, then release": (lambda: (work(), serial()), LARGE),
        "step with noise ahead": (ours.ahead(sums, work), LARGE),
    }


def show(title: str, results: dict[str, float], reference: str | None) -> None:
    """One table; the ratio says how many times as fast as the reference."""
    print(f"\n{title:<36}{'ns/number':>12}{f'speed / {reference}' if reference else '':>34}")
    for name, value in results.items():
        ratio = f"{results[reference] / value:34.4g}" if reference in results else ""
        print(f"{name:<36}{value:12.2f}{ratio}")


REFERENCE = "torch.randn float32"
WITH_SUM = "torch.randn float32 and add"
RELEASE = "ours release() of float32 sums"
GOALS = {
    RELEASE: (WITH_SUM, 1.0),
    "ours NumPy, onto 4M float64": (REFERENCE, 0.35),
}  # speed / that of a reference that does the same work
OVER_OPENDP = 1_000  # times as fast as OpenDP's exact sampler


def goals(results: dict[str, float]) -> list[str]:
    """One line for each goal that this run can judge."""
    lines = []
    for name, (reference, goal) in GOALS.items():
        if name in results and reference in results:
            speed = results[reference] / results[name]
            lines.append(
                f"{name}: {speed:.2f} times the speed of {reference}, goal {goal}: "
                f"{'met' if speed >= goal else 'NOT met'}"
            )
    for name, value in results.items():
        if name.startswith("OpenDP"):
            times = value / min(ours for row, ours in results.items() if row.startswith("ours"))
            verdict = "met" if times >= OVER_OPENDP else "NOT met"
            lines.append(
                f"exact noise: {times:,.0f} times as fast as OpenDP's, goal {OVER_OPENDP:,}: "
                f"{verdict}"
            )
    return lines


def main() -> None:
    """Both tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    rounds = 5 if parser.parse_args().quick else 41
    ours = Ours()
    rows: dict[str, tuple[Action, int]] = {}
    for more in (torch_rows(), numpy_rows(), our_rows(ours), opendp_rows()):
        if isinstance(more, str):
            print(more)
        else:
            rows |= more
    results = medians(rows, rounds, time.thread_time)
    show("one core, CPU time", results, REFERENCE)
    print("", *goals(results), sep="\n")
    show("on the wall", medians(on_the_wall(ours), rounds, time.perf_counter), None)


if __name__ == "__main__":
    main()
