"""How a step is measured: contenders take turns in one fresh process for time, each has its own
fresh process for memory.

Time: one warm-up for each contender, then rounds in which each takes one step, in an order that
rotates, so that whatever else the machine does hits all of them alike. Shown are medians. A
contender that takes more than SLOW times as long as plain takes part in the first round only.

Memory: the largest resident set of the second step, less what was resident with model and sample
before the contender was built. The libraries are warm by then: a step on two records with another
model came before. So buffers that a contender keeps from step to step count, compiled code does
not. Linux only.
"""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import os
import platform
import statistics
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import ParamSpec, TypeVar

import torch

from benchmarks.models import Task
from benchmarks.peers import CONTENDERS, Step, builder

SLOW = 30.0
FEWEST, MOST = 3, 101  # rounds
NOISE_MULTIPLIER = 1.0

_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1  # names of glibc's mallopt
_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Setting:
    """What is the same for all contenders.

    Attributes:
        threads: of torch and of its libraries.
        keep_memory: the C library keeps freed memory for the process, so that page faults do not
            hide arithmetic.
        seconds: about how long the rounds of one task go on.
    """

    threads: int = 1
    keep_memory: bool = False
    seconds: float = 40.0


@dataclass(frozen=True)
class Timing:
    """What one contender takes.

    Attributes:
        first_ms: CPU time of the first step, with whatever is done only once.
        cpu_ms: median of the CPU time of the other steps.
        wall_ms: median of their time on the wall.
        spread: half the distance of the quartiles of the CPU time, as a share of the median.
        rounds: how many these were.
    """

    first_ms: float
    cpu_ms: float
    wall_ms: float
    spread: float
    rounds: int


def in_fresh_process(
    function: Callable[_Arguments, _Result], *args: _Arguments.args, **kwargs: _Arguments.kwargs
) -> _Result:
    """The function's result, from a process that has done nothing else."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *args, **kwargs).result()


def keep_freed_memory() -> None:
    """Tell glibc to take blocks below 1 GiB from its heap and to give nothing below 2 GiB back."""
    if platform.libc_ver()[0] != "glibc":
        raise SystemExit("--malloc needs glibc; this system has another C library.")
    libc = ctypes.CDLL(None)
    if not (libc.mallopt(_MMAP_THRESHOLD, 2**30) and libc.mallopt(_TRIM_THRESHOLD, 2**31 - 1)):
        raise SystemExit("--malloc: this glibc refuses the thresholds.")


def _prepare(setting: Setting) -> None:
    warnings.simplefilter(
        "ignore"
    )  # opacus and vmap warn about how they work; the tables show what that costs
    torch.set_num_threads(setting.threads)
    torch.manual_seed(0)
    if setting.keep_memory:
        keep_freed_memory()


def _problem(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"


def _clocks() -> tuple[float, float]:
    return time.process_time(), time.perf_counter()


def _taken(step: Step) -> tuple[float, float]:
    """Milliseconds of CPU and wall time."""
    cpu, wall = _clocks()
    step()
    cpu_after, wall_after = _clocks()
    return (cpu_after - cpu) * 1e3, (wall_after - wall) * 1e3


def _timing(first_ms: float, samples: list[tuple[float, float]]) -> Timing:
    cpu, wall = ([sample[clock] for sample in samples] for clock in (0, 1))
    quartiles = statistics.quantiles(cpu, n=4, method="inclusive") if len(cpu) > 1 else [cpu[0]] * 3
    median = statistics.median(cpu)
    return Timing(
        first_ms,
        median,
        statistics.median(wall),
        (quartiles[2] - quartiles[0]) / 2 / median,
        len(samples),
    )


def timings(
    task: Task, names: list[str], setting: Setting
) -> tuple[dict[str, Timing], dict[str, str]]:
    """What each contender takes, and why some cannot; to be called in a fresh process. Plain must
    be among the names.
    """
    _prepare(setting)
    steps: dict[str, Step] = {}
    first: dict[str, float] = {}
    problems: dict[str, str] = {}
    for name in names:
        try:
            step = CONTENDERS[name](
                builder(name, task)(), task.batch(task.records), NOISE_MULTIPLIER
            )
            first[name], _ = _taken(step)
        except Exception as error:  # noqa: BLE001  (whatever stops a peer belongs in the table)
            problems[name] = _problem(error)
        else:
            steps[name] = step
    end = time.perf_counter() + setting.seconds
    samples: dict[str, list[tuple[float, float]]] = {
        name: [_taken(step)] for name, step in steps.items()
    }
    turns = [
        name for name, taken in samples.items() if taken[0][0] <= SLOW * samples["plain"][0][0]
    ]
    for done in range(1, MOST):
        if done >= FEWEST and time.perf_counter() > end:
            break
        turns = [*turns[1:], turns[0]]
        for name in turns:
            samples[name].append(_taken(steps[name]))
    return {name: _timing(first[name], taken) for name, taken in samples.items()}, problems


def _resident(field: str) -> float:
    """Megabytes from the kernel's own account of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return float(line.split()[1]) * 1024 / 1e6
    raise SystemExit(f"/proc/self/status has no {field}.")


def _settle() -> None:
    """Give back what is free."""
    gc.collect()
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)


def peak_memory(task: Task, name: str, setting: Setting) -> float:
    """Megabytes that a step needs over what is resident without it; to be called in a fresh
    process.
    """
    _prepare(setting)
    contender, model = CONTENDERS[name], builder(name, task)
    contender(model(), task.batch(2), NOISE_MULTIPLIER)()
    given = model(), task.batch(task.records)
    _settle()
    before = _resident("VmRSS")
    step = contender(*given, NOISE_MULTIPLIER)
    step()
    Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from here
    step()
    return _resident("VmHWM") - before


@dataclass(frozen=True)
class Row:
    """One contender on one task; None where it was not measured."""

    task: str
    contender: str
    timing: Timing | None
    peak_mb: float | None
    problem: str = ""


def measured(task: Task, names: list[str], setting: Setting, *, memory: bool) -> list[Row]:
    """A row for each contender."""
    os.environ |= dict.fromkeys(
        ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(setting.threads)
    )
    try:
        times, problems = in_fresh_process(timings, task, names, setting)
    except BrokenProcessPool:
        raise SystemExit(
            f"{task.name}: the process was killed, perhaps for want of memory. Leave "
            "contenders out."
        ) from None
    rows = []
    for name in names:
        peak, problem = None, problems.get(name, "")
        if memory and not problem:
            try:
                peak = in_fresh_process(peak_memory, task, name, setting)
            except (BrokenProcessPool, OSError) as error:
                problem = f"no figure for memory: {type(error).__name__}"
        rows.append(Row(task.name, name, times.get(name), peak, problem))
    return rows
