"""Time and peak memory of one private step, as a ratio to a plain step of SGD in the same run.

    python -m benchmarks.step                              # all models and contenders; 15 minutes
    python -m benchmarks.step --tasks MLP LSTM --malloc    # some of them, with freed memory kept
    python -m benchmarks.step --tasks "small MLP" BERT-tiny # short steps, which are in no table
    python -m benchmarks.step --json out/step.json         # the figures as JSON, too

A step is the forward, the backward, clipping, noise and the optimizer. Peers draw their noise as
they do (torch.randn); ours is exact and from the cryptographic source. CPU time of one thread is
what repeats on a busy machine; with --threads above one, the ratios of the last table are those of
the time on the wall. How it is measured: `benchmarks/measure.py`.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

import torch

from benchmarks.measure import Row, Setting, measured
from benchmarks.models import SMALL, TASKS, Task
from benchmarks.peers import CONTENDERS

TITLES = ("CPU ms", "ratio", "spread", "first ms", "wall ms", "ratio", "peak MB", "ratio", "rounds")


def ratio(value: float | None, base: float | None) -> str:
    """A ratio, or a dash."""
    return "-" if value is None or not base else f"{value / base:.2f}"


def cells(row: Row, base: Row) -> list[str]:
    """The figures of one contender, or what stops it."""
    if row.timing is None or base.timing is None:
        return [f"  {row.problem}"]
    time, plain = row.timing, base.timing
    figures = [
        f"{time.cpu_ms:.1f}",
        ratio(time.cpu_ms, plain.cpu_ms),
        f"{time.spread:.0%}",
        f"{time.first_ms:.1f}",
        f"{time.wall_ms:.1f}",
        ratio(time.wall_ms, plain.wall_ms),
        "-" if row.peak_mb is None else f"{row.peak_mb:.0f}",
        ratio(row.peak_mb, base.peak_mb),
        str(time.rounds),
    ]
    return [f"{figure:>10}" for figure in figures] + ([f"  {row.problem}"] if row.problem else [])


def show(task: Task, rows: list[Row]) -> None:
    """The table of one task."""
    parameters = sum(parameter.numel() for parameter in task.model().parameters())
    print(
        f"\n{task.name}: {task.records:,} records, {parameters:,} "
        f"parameters{'; ' if task.remark else ''}{task.remark}"
    )
    print(f"{'':<14}" + "".join(f"{title:>10}" for title in TITLES))
    base = next(row for row in rows if row.contender == "plain")
    for row in rows:
        print(f"{row.contender:<14}" + "".join(cells(row, base)), flush=True)


def summary(title: str, figures: dict[tuple[str, str], float | None]) -> None:
    """Ratios of all tasks; figures by task and contender."""
    tasks, contenders = (list(dict.fromkeys(names)) for names in zip(*figures, strict=True))
    print(f"\n{title:<26}" + "".join(f"{task:>12}" for task in tasks))
    for name in contenders:
        print(
            f"{name:<26}"
            + "".join(f"{ratio(figures[task, name], figures[task, 'plain']):>12}" for task in tasks)
        )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--tasks",
        nargs="+",
        choices={**TASKS, **SMALL},
        default=list(TASKS),
        metavar="TASK",
        help=f"{', '.join(TASKS)}; not in the tables: {', '.join(SMALL)}",
    )
    parser.add_argument(
        "--contenders",
        nargs="+",
        choices=CONTENDERS,
        default=list(CONTENDERS),
        metavar="NAME",
        help=", ".join(CONTENDERS),
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--seconds",
        type=float,
        default=Setting.seconds,
        help="about how long the rounds of a task go on",
    )
    parser.add_argument(
        "--malloc", action="store_true", help="glibc keeps freed memory, for all contenders alike"
    )
    parser.add_argument("--no-memory", action="store_true", help="time only")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the figures there as well")
    asked = parser.parse_args()
    setting = Setting(asked.threads, asked.malloc, asked.seconds)
    names = list(dict.fromkeys(["plain", *asked.contenders]))
    print(
        f"torch {torch.__version__}, {setting.threads} thread(s), "
        f"{'freed memory kept' if asked.malloc else 'malloc as it is'}"
    )
    rows: list[Row] = []
    for task in ({**TASKS, **SMALL}[name] for name in asked.tasks):
        of_task = measured(task, names, setting, memory=not asked.no_memory)
        show(task, of_task)
        rows += of_task
    title, clock = (
        ("ratio to plain, CPU time", "cpu_ms")
        if asked.threads == 1
        else ("ratio to plain, wall time", "wall_ms")
    )
    summary(title, {(row.task, row.contender): getattr(row.timing, clock, None) for row in rows})
    if not asked.no_memory:
        summary("ratio to plain, memory", {(row.task, row.contender): row.peak_mb for row in rows})
    if asked.json is not None:
        asked.json.parent.mkdir(parents=True, exist_ok=True)
        figures = {
            "torch": torch.__version__,
            "setting": asdict(setting),
            "rows": [asdict(row) for row in rows],
        }
        asked.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
