"""Milliseconds of a private step with a table of which it touches a thousand rows: as a
`SparseTable`, and with noise on all rows in every step.

    python benchmarks/tables.py                  # 10^4 to 10^6 rows, some four minutes
    python benchmarks/tables.py --quick          # 10^4 and 10^5 rows, some twenty seconds
    python benchmarks/tables.py --rows 7 --sparse-alone   # 10^7 rows: dense needs 20 GB

The table has rows of 64 numbers; 250 records are expected in a step, with four ids each, spread
over all rows. The two take turns on one thread; shown is the median of their CPU time, of sampling,
`run.backward` and the optimizer together. *Settle* is what the end of a series costs (a checkpoint,
a state_dict, the end of the run), *first* the first step, in which the rules are tried out and code
is compiled. The goal is a step that is at least 20 times cheaper with 10^6 rows.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

import discreet as dp
from discreet import training

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

WIDTH, RECORDS, BATCH, IDS, STEPS = 64, 100_000, 250, 4, 1_000
RATE, GOAL = 0.1, 20.0


class Times(NamedTuple):
    """Milliseconds of CPU time."""

    first: float
    step: float
    settle: float


class Network(nn.Module):
    """A classifier of the average of rows."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.table = nn.Embedding(rows, WIDTH)
        self.head = nn.Linear(WIDTH, 2)

    def forward(self, ids: Tensor) -> Tensor:
        """Scores of each record."""
        scores: Tensor = self.head(self.table(ids).mean(1))
        return scores


def loss(model: nn.Module, batch: Any) -> Tensor:
    """One for each record."""
    ids, labels = batch
    return cross_entropy(model(ids), labels, reduction="none")


class Contender:
    """A run that takes one step at a time.

    Args:
        rows: of the table.
        tables: of the run; None for noise on all rows.
    """

    def __init__(self, rows: int, tables: Mapping[str, training.SparseTable] | None) -> None:
        self._model = Network(rows)
        ids, labels = torch.randint(rows, (RECORDS, IDS)), torch.randint(2, (RECORDS,))
        plan = dp.Plan(
            sampler=dp.Sampler(dp.Poisson(BATCH / RECORDS), records=RECORDS, steps=STEPS),
            mechanism=dp.Groups({"grad/*": dp.Gaussian(1.0, 1.1)}),
        )
        self._run = training.PrivateRun(
            self._model, plan, ledger=dp.Ledger.in_memory(), tables=tables
        )
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=RATE)
        self._batches: Iterator[training.Batch] = self._run.batches(TensorDataset(ids, labels))

    def step(self) -> float:
        """Take one, and say how many milliseconds that took."""
        start = time.process_time()
        self._run.backward(loss, next(self._batches))
        self._optimizer.step()
        self._optimizer.zero_grad()
        return 1e3 * (time.process_time() - start)

    def settle(self) -> float:
        """Settle, and say how many milliseconds that took."""
        start = time.process_time()
        self._run.settle()
        return 1e3 * (time.process_time() - start)


def measured(rows: int, steps: int, *, sparse_alone: bool) -> list[Times]:
    """Times of both, the sparse table first; they take turns."""
    contenders = [Contender(rows, {"table.weight": training.SparseTable(RATE)})]
    if not sparse_alone:
        contenders.append(Contender(rows, None))

    first = [contender.step() for contender in contenders]
    for contender in contenders:
        contender.step()
    turns = [[contender.step() for contender in contenders] for _ in range(steps)]
    medians = [statistics.median(column) for column in zip(*turns, strict=True)]
    settled = [contender.settle() for contender in contenders]
    return [Times(*column) for column in zip(first, medians, settled, strict=True)]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rows", type=int, nargs="*", help="powers of ten")
    parser.add_argument("--sparse-alone", action="store_true")
    arguments = parser.parse_args()
    powers = arguments.rows or ((4, 5) if arguments.quick else (4, 5, 6))
    steps = 5 if arguments.quick else 15
    torch.set_num_threads(1)

    print(f"{'rows':>10}{'sparse':>10}{'dense':>10}{'ratio':>8}{'settle':>10}{'first':>10}")
    for power in powers:
        sparse, *others = measured(10**power, steps, sparse_alone=arguments.sparse_alone)
        dense, ratio = (
            (f"{others[0].step:.1f}", f"{others[0].step / sparse.step:.1f}")
            if others
            else ("-", "-")
        )
        print(
            f"{10**power:>10,}{sparse.step:>10.1f}{dense:>10}{ratio:>8}"
            f"{sparse.settle:>10.0f}{sparse.first:>10.0f}"
        )
        if power == 6 and others:
            met = others[0].step >= GOAL * sparse.step
            print(f"goal: {GOAL:.0f} times at 10^6 rows: {'met' if met else 'NOT MET'}")


if __name__ == "__main__":
    main()
