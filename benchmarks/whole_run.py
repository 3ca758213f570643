"""Wall clock of whole private training runs against the same loop without privacy, the runs taking
turns.

    python -m benchmarks.whole_run                            # every task; some minutes
    python -m benchmarks.whole_run --tasks "digits MLP"       # one of them
    python -m benchmarks.whole_run --json out/whole_run.json  # the figures as JSON, too

A private run is everything from `PrivateRun(...)` on a new ledger in a file, over the first step
with its checks, to the last step and the closing of the ledger. It is compared with two plain loops
of as many steps of the same expected size on the same data, model and optimizer:

    loader    what people write: a DataLoader with shuffle=True, which collates records one by one
    tensors   rows of the same tensors taken at once, as a private run does where it can; nothing
              faster is known to us

The ratio to `loader` is what a user notices; the ratio to `tensors` says what privacy costs once
the DataLoader's share is taken away. Finding the noise for a target (`Plan.dpsgd`) happens once
before a run, and is shown apart.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import discreet as dp
from benchmarks.models import mnist_cnn, vectors
from discreet.training import PrivateRun

EPSILON, DELTA, CLIP_NORM = 3.0, 1e-5, 1.0
LOADER, TENSORS, PRIVATE = "loader", "tensors", "private"
MILLI = 1e3


@dataclass(frozen=True)
class Task:
    """A model, a data set, and how long it is trained.

    Attributes:
        name: as it stands in the table.
        model: builds the model.
        shape: of one record.
        records: in the data set; random numbers, which take the time that others take.
        batch: expected number of records of a step.
        epochs: how often each record is expected to be seen.
    """

    name: str
    model: Callable[[], nn.Module]
    shape: tuple[int, ...]
    records: int
    batch: int
    epochs: int


def digits_mlp() -> nn.Module:
    """The network of `examples/training`; 2,410 parameters."""
    return nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10))


def digits_cnn() -> nn.Module:
    """One convolution and one linear layer on 8 x 8 images; 2,986 parameters."""
    return nn.Sequential(nn.Conv2d(1, 16, 5), nn.Tanh(), nn.Flatten(), nn.Linear(256, 10))


TASKS = {
    task.name: task
    for task in (
        Task("digits MLP", digits_mlp, (64,), 1437, 256, 20),
        Task("digits CNN", digits_cnn, (1, 8, 8), 1437, 256, 20),
        Task("MNIST CNN", mnist_cnn, (1, 28, 28), 60_000, 512, 1),
    )
}


@dataclass(frozen=True)
class Taken:
    """Milliseconds of one run on the wall: before its first step, of its first step, of all others;
    and of CPU in all.
    """

    begin: float
    first: float
    rest: float
    cpu: float
    steps: int

    @property
    def total(self) -> float:
        """All of it."""
        return self.begin + self.first + self.rest

    @property
    def step(self) -> float:
        """A step after the first."""
        return self.rest / max(1, self.steps - 1)


def each(model: nn.Module, batch: list[Tensor]) -> Tensor:
    """One loss for each record."""
    images, labels = batch
    return functional.cross_entropy(model(images), labels, reduction="none")


def loaded(data: TensorDataset, batch: int, steps: int) -> Iterator[list[Tensor]]:
    """Batches as a DataLoader gives them."""
    loader = DataLoader(data, batch_size=batch, shuffle=True, drop_last=True)
    done = 0
    while True:
        for one in loader:
            yield one
            done += 1
            if done == steps:
                return


def indexed(data: TensorDataset, batch: int, steps: int) -> Iterator[list[Tensor]]:
    """The same without a DataLoader."""
    done = 0
    while True:
        for rows in torch.split(torch.randperm(len(data)), batch):
            if len(rows) == batch:
                yield [tensor[rows] for tensor in data.tensors]
                done += 1
            if done == steps:
                return


class Clock:
    """Notes when a run begins its first step, ends it, and ends."""

    def __init__(self) -> None:
        self._cpu = time.process_time()
        self._marks = [time.perf_counter()]
        self._steps = 0

    def step(self) -> None:
        """A step is over."""
        self._steps += 1
        if self._steps == 1:
            self.mark()

    def mark(self) -> None:
        """Now."""
        self._marks.append(time.perf_counter())

    def taken(self) -> Taken:
        """The run is over."""
        self.mark()
        begin, first, rest = (
            MILLI * (after - before)
            for before, after in zip(self._marks[:-1], self._marks[1:], strict=True)
        )
        return Taken(begin, first, rest, MILLI * (time.process_time() - self._cpu), self._steps)


def plain_run(
    batches: Callable[[TensorDataset, int, int], Iterator[list[Tensor]]],
    task: Task,
    data: TensorDataset,
) -> Taken:
    """The loop that everybody writes."""
    steps = plan_of(task).steps
    clock = Clock()
    model = task.model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    clock.mark()
    for batch in batches(data, task.batch, steps):
        functional.cross_entropy(model(batch[0]), batch[1]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
        clock.step()
    return clock.taken()


def private_run(task: Task, data: TensorDataset) -> Taken:
    """The same with privacy, from nothing to a closed ledger."""
    plan = plan_of(task)
    with tempfile.TemporaryDirectory() as folder:
        clock = Clock()
        model = task.model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        with dp.Ledger.open(Path(folder) / "train.ledger") as ledger:
            run = PrivateRun(model, plan, ledger=ledger)
            clock.mark()
            for batch in run.batches(data):
                run.backward(each, batch)
                optimizer.step()
                optimizer.zero_grad()
                clock.step()
        return clock.taken()


RUNS: dict[str, Callable[[Task, TensorDataset], Taken]] = {
    LOADER: partial(plain_run, loaded),
    TENSORS: partial(plain_run, indexed),
    PRIVATE: private_run,
}

_plans: dict[Task, tuple[dp.Plan, float]] = {}


def plan_of(task: Task) -> dp.Plan:
    """Of the task; found once."""
    if task not in _plans:
        start = time.perf_counter()
        plan = dp.Plan.dpsgd(
            records=task.records,
            expected_batch_size=task.batch,
            epochs=task.epochs,
            clip_norm=CLIP_NORM,
            epsilon=EPSILON,
            delta=DELTA,
        )
        _plans[task] = plan, MILLI * (time.perf_counter() - start)
    return _plans[task][0]


def measured(task: Task, repeats: int) -> dict[str, list[Taken]]:
    """Runs of all kinds, which take turns in an order that rotates. What torch imports late is
    imported before.
    """
    torch.manual_seed(0)
    tiny = Task(task.name, task.model, task.shape, 64, 16, 1)
    for run in RUNS.values():
        run(tiny, TensorDataset(*vectors(tiny.records, tiny.shape)))
    plan_of(task)
    data = TensorDataset(*vectors(task.records, task.shape))
    taken: dict[str, list[Taken]] = {name: [] for name in RUNS}
    turns = list(RUNS)
    for _ in range(repeats):
        for name in turns:
            taken[name].append(RUNS[name](task, data))
        turns = [*turns[1:], turns[0]]
    return taken


def median(runs: list[Taken], field: str) -> float:
    """Of one figure."""
    return float(statistics.median(getattr(run, field) for run in runs))


def show(task: Task, taken: dict[str, list[Taken]]) -> None:
    """The table of one task, and where the difference comes from."""
    plan, found = plan_of(task), _plans[task][1]
    print(
        f"\n{task.name}: {plan.steps} steps of {task.batch} of {task.records:,} records; plan "
        f"found in {found:.0f} ms"
    )
    titles = ("total ms", "begin", "1st step", "a step", "CPU ms")
    print(
        f"{'':<10}"
        + "".join(f"{title:>10}" for title in (*titles, "/ loader", "/ tensors", "CPU / ldr"))
    )
    for name, runs in taken.items():
        figures = [median(runs, field) for field in ("total", "begin", "first", "step", "cpu")]
        ratios = [
            statistics.median(a.total / b.total for a, b in zip(runs, taken[base], strict=True))
            for base in (LOADER, TENSORS)
        ]
        ratios.append(
            statistics.median(a.cpu / b.cpu for a, b in zip(runs, taken[LOADER], strict=True))
        )
        cells = [f"{figure:.2f}" if figure < 100 else f"{figure:.0f}" for figure in figures] + [
            f"{one:.2f}" for one in ratios
        ]
        print(f"{name:<10}" + "".join(f"{cell:>10}" for cell in cells), flush=True)
    ours, base = taken[PRIVATE], taken[LOADER]
    more = {
        field: median(ours, field) - median(base, field)
        for field in ("total", "begin", "first", "rest")
    }
    print(
        f"private - loader: {more['total']:+.0f} ms, of which begin {more['begin']:+.0f}, first "
        f"step {more['first']:+.0f}, "
        f"{plan.steps - 1} further steps {more['rest']:+.0f}"
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--tasks",
        nargs="+",
        choices=TASKS,
        default=list(TASKS),
        metavar="TASK",
        help=", ".join(TASKS),
    )
    parser.add_argument("--repeats", type=int, default=5, help="runs of each kind")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--tiny", action="store_true", help="a few steps on few records, to see that it works"
    )
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the figures there as well")
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    print(
        f"torch {torch.__version__}, {asked.threads} thread(s), {os.cpu_count()} cores, "
        f"{asked.repeats} runs of each kind"
    )
    figures = {}
    for name in asked.tasks:
        task = (
            TASKS[name]
            if not asked.tiny
            else Task(name, TASKS[name].model, TASKS[name].shape, 64, 16, 1)
        )
        taken = measured(task, asked.repeats)
        show(task, taken)
        figures[name] = {kind: [asdict(run) for run in runs] for kind, runs in taken.items()}
    if asked.json is not None:
        asked.json.parent.mkdir(parents=True, exist_ok=True)
        asked.json.write_text(
            json.dumps({"torch": torch.__version__, "runs": figures}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
