"""Several augmentations of each record: what a private step takes, against one with as many records
as there are copies.

    # logistic, MLP and MNIST CNN, 4 copies; a few minutes
    python -m benchmarks.copies
    python -m benchmarks.copies --tasks "CIFAR CNN" --copies 8

All but the first see as many rows: K times the records, K copies of each, or K copies that the loss
flattens into the batch. The augmentation is the identity, so that what is timed is the step. CPU
time of one thread, in turns, medians.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

import discreet as dp
from benchmarks.models import TASKS, Batch, losses
from discreet.training import Batch as Sampled
from discreet.training import PrivateRun, augmented

STEPS = 64


def private(
    model: nn.Module, batch: Batch, loss: Callable[[nn.Module, Batch], Tensor]
) -> Callable[[], None]:
    """Steps of a private run over all of these records."""
    sampler = dp.Sampler(dp.Everything(), records=len(batch[0]), steps=STEPS)
    run = PrivateRun(
        model,
        dp.Plan(sampler=sampler, mechanism=dp.Gaussian(1.0, 1.0)),
        ledger=dp.Ledger.in_memory(),
    )
    samples = run.batches(torch.utils.data.TensorDataset(*batch), progress=False)

    def step() -> None:
        sampled: Sampled = next(samples)
        run.backward(loss, sampled)
        model.zero_grad()

    return step


def by_hand(copies: int) -> Callable[[nn.Module, Batch], Tensor]:
    """A loss that flattens the copies into the batch by itself."""

    def loss(model: nn.Module, batch: Batch) -> Tensor:
        rows = tuple(
            part.unsqueeze(1).expand(-1, copies, *part.shape[1:]).flatten(0, 1) for part in batch
        )
        return losses(model, (rows[0], rows[1])).view(-1, copies).mean(1)

    return loss


def measured(ways: dict[str, Callable[[], None]], rounds: int) -> dict[str, float]:
    """Milliseconds of CPU time of each, in turns; the first step of each is not counted."""
    for step in ways.values():
        step()
    samples: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, step in ways.items():
            start = time.process_time()
            step()
            samples[name].append(1e3 * (time.process_time() - start))
    return {name: statistics.median(taken) for name, taken in samples.items()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--tasks",
        nargs="+",
        choices=TASKS,
        default=["logistic", "MLP", "MNIST CNN"],
        metavar="TASK",
    )
    parser.add_argument("--copies", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--records", type=int, help="instead of half of the task's own")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    copies = asked.copies
    for task in (TASKS[name] for name in asked.tasks):
        records = asked.records or task.records // 2
        batch = task.batch(records)
        ways = {
            "one row each": private(task.model(), batch, losses),
            f"{copies} x records": private(task.model(), task.batch(copies * records), losses),
            f"{copies} copies": private(
                task.model(), batch, augmented(losses, lambda rows: rows, copies=copies)
            ),
            "flattened by hand": private(task.model(), batch, by_hand(copies)),
        }
        found = measured(ways, min(asked.rounds, STEPS - 2))
        print(f"\n{task.name}, {records} records: CPU ms, ratio to one row each")
        for name, taken in found.items():
            print(f"{name:<20}{taken:>10.1f}{taken / found['one row each']:>8.2f}", flush=True)


if __name__ == "__main__":
    main()
