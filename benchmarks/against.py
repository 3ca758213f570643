"""One private step of this tree against the same step of another tree of the library, in turns.

    # every model of benchmarks/models.py, and a small one
    python -m benchmarks.against OTHER/src
    python -m benchmarks.against OTHER/src --tasks MLP --seconds 20

Each tree has a process of its own, which takes a step when it is told to. The two take turns, so
that whatever else the machine does hits both alike. Shown are medians of the CPU time of one
thread, their ratio, and the quartiles of the ratios of neighbouring steps.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import final

ROOT = Path(__file__).parents[1]
_WARM_UP = 4


@final
class Tree:
    """A process that takes steps with the library of one tree.

    Args:
        source: the `src` folder of the tree.
        task: name of the model.
        contender: who takes the step.
    """

    def __init__(self, source: Path, task: str, contender: str) -> None:
        threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.against", "--serve", task, contender],
            cwd=ROOT,
            env={**os.environ, **threads, "PYTHONPATH": f"{source}:{ROOT}"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def step(self) -> float:
        """Milliseconds of CPU time that one step takes."""
        process = self._process
        if process.stdin is None or process.stdout is None:
            raise SystemExit("The process of a tree has no pipes.")
        process.stdin.write("step\n")
        process.stdin.flush()
        answer = process.stdout.readline()
        if not answer:
            raise SystemExit("The process of a tree has ended; its own message is above.")
        return float(answer)

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()


def serve(task: str, contender: str) -> None:
    """Take a step for every line of standard input, and print what it took."""
    import warnings  # noqa: PLC0415  (only a process of a tree needs the library)

    import torch  # noqa: PLC0415

    from benchmarks.models import SMALL, TASKS  # noqa: PLC0415
    from benchmarks.peers import CONTENDERS, builder  # noqa: PLC0415

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    chosen = {**TASKS, **SMALL}[task]
    step = CONTENDERS[contender](builder(contender, chosen)(), chosen.batch(chosen.records), 1.0)
    for _ in range(_WARM_UP):
        step()
    for _ in sys.stdin:
        before = time.process_time()
        step()
        print((time.process_time() - before) * 1e3, flush=True)


def compare(task: str, other: Path, seconds: float) -> str:
    """A row of the table."""
    trees = [
        Tree(other, task, "ours"),
        Tree(ROOT / "src", task, "ours"),
        Tree(ROOT / "src", task, "plain"),
    ]
    samples: list[list[float]] = [[], [], []]
    try:
        for tree in trees:
            tree.step()
        end = time.perf_counter() + seconds
        while time.perf_counter() < end or len(samples[0]) < 5:
            for place in sorted(range(3), key=lambda place: (place + len(samples[0])) % 3):
                samples[place].append(trees[place].step())
    finally:
        for tree in trees:
            tree.close()
    before, after, plain = map(statistics.median, samples)
    ratios = [new / old for old, new in zip(samples[0], samples[1], strict=True)]
    low, _, high = statistics.quantiles(ratios, n=4)
    return (
        f"| {task} | {plain:.2f} | {before:.2f} | {after:.2f} | {after / before:.3f} | {low:.2f} "
        f"to {high:.2f} "
        f"| {before / plain:.2f} | {after / plain:.2f} | {len(ratios)} |"
    )


def main() -> None:
    """Compare and print."""
    from benchmarks.models import SMALL, TASKS  # noqa: PLC0415  (see `serve`)

    names = [*TASKS, *SMALL]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("other", type=Path, nargs="?")
    parser.add_argument(
        "--tasks", nargs="+", choices=names, default=names, metavar="TASK", help=", ".join(names)
    )
    parser.add_argument("--seconds", type=float, default=30.0, help="for each task")
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(*options.serve)
        return
    if options.other is None or not (options.other / "discreet").is_dir():
        parser.error("name the `src` folder of the other tree")
    print(
        "| model | plain ms | other ms | this ms | this / other | quartiles | other / plain | "
        "this / plain | steps |"
    )
    print("|---|---:|---:|---:|---:|---|---:|---:|---:|")
    for task in options.tasks:
        print(compare(task, options.other.resolve(), options.seconds), flush=True)


if __name__ == "__main__":
    main()
