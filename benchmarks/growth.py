"""How time and memory of a private step grow with the sample, the sequence and the model: the
tables of docs/growth.md.

    python -m benchmarks.growth > docs/growth.md
    # one series, another contender
    python -m benchmarks.growth --series batch --contender "opacus ghost"

One series varies one number. Each row is measured as in `benchmarks/step.py`: both contenders take
turns in one process.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from dataclasses import replace
from functools import partial

import torch

from benchmarks.measure import Row, Setting, measured
from benchmarks.models import TASKS, Task, gpt, mlp, vectors
from benchmarks.peers import CONTENDERS

SAMPLES = (64, 128, 256, 512, 1024, 2048, 4096)
LENGTHS = (32, 64, 128, 256, 512, 1024)
WIDTHS = {
    10**4: 12,
    10**5: 112,
    10**6: 679,
    10**7: 2790,
    10**8: 9611,
}  # parameters, about: width of the hidden layers
HEADER = """# How the cost of a step grows

`{command}`, one thread, torch {torch}. Medians of the CPU time of steps that take turns; peak
memory over what is resident without a step."""

Series = tuple[
    str, str, dict[str, Task]
]  # the sentence, the name of what varies, a task for each of its values

SERIES: dict[str, Series] = {
    "batch": (
        "The MLP of `benchmarks/models.py` (1.86 million parameters).",
        "records",
        {f"{records:,}": replace(TASKS["MLP"], records=records) for records in SAMPLES},
    ),
    "sequence": (
        "The untied GPT, 8 records.",
        "positions",
        {f"{length:,}": gpt(length, 8, tied=False) for length in LENGTHS},
    ),
    "parameters": (
        "An MLP with two hidden layers of one width, 64 records.",
        "parameters",
        {
            f"{size:.0e}": Task("MLP", partial(mlp, width), vectors, 64)
            for size, width in WIDTHS.items()
        },
    ),
}


def line(value: str, plain: Row, other: Row) -> str:
    """One row of Markdown."""
    if plain.timing is None or other.timing is None:
        return f"| {value} | {plain.problem or other.problem} |"
    cells = [value]
    for base, taken in ((plain.timing.cpu_ms, other.timing.cpu_ms), (plain.peak_mb, other.peak_mb)):
        cells += (
            ["-"] * 3
            if base is None or taken is None
            else [f"{base:,.1f}", f"{taken:,.1f}", f"{taken / base:.2f}"]
        )
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Print Markdown."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--series", nargs="+", choices=SERIES, default=list(SERIES))
    parser.add_argument(
        "--contender", choices=[name for name in CONTENDERS if name != "plain"], default="ours"
    )
    parser.add_argument(
        "--seconds", type=float, default=10.0, help="about how long the rounds of a row go on"
    )
    parser.add_argument(
        "--malloc", action="store_true", help="glibc keeps freed memory, for both alike"
    )
    asked = parser.parse_args()
    setting = Setting(1, asked.malloc, asked.seconds)
    name: str = asked.contender
    command = shlex.join(["python", "-m", "benchmarks.growth", *sys.argv[1:]])
    print(HEADER.format(command=command, torch=torch.__version__.partition("+")[0]))
    for title, (sentence, varies, tasks) in (
        (key.capitalize(), SERIES[key]) for key in asked.series
    ):
        print(f"\n## {title}\n\n{sentence}\n")
        print(
            f"| {varies} | plain ms | {name} ms | ratio | plain MB | {name} MB | ratio "
            f"|\n|{'---:|' * 7}"
        )
        for value, task in tasks.items():
            plain, other = measured(task, ["plain", name], setting, memory=True)
            print(line(value, plain, other), flush=True)


if __name__ == "__main__":
    main()
