"""What the proof of separation costs: a forward and a backward pass as torch does them, with the
proof and without.

    python -m benchmarks.proof [--seconds 20]

The two take turns in one process. Shown are medians of the CPU time of one thread, operations that
the dispatcher sees, and microseconds for each of them. As in the engine, the backward pass goes
through all layers and forms no gradients of weights but that of the first; the difference is the
proof alone: no factors, no clipping, no noise.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.models import SMALL, TASKS, losses
from discreet.training.passes.sandbox import plain_forward, prepared
from discreet.training.separation.doors import Doors, opened
from discreet.training.separation.own import proving
from discreet.training.separation.proof import Proof
from discreet.training.separation.states import Rows

Pass: TypeAlias = Callable[[], None]
_gradients: Any = opened(torch.autograd.grad)


class Counted(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts operations."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Called by torch, for every operation."""
        del types
        self.operations += 1
        return func(*args, **(kwargs or {}))


def bert(records: int) -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    """A BERT of two layers, and sequences of 64 tokens."""
    from transformers import BertConfig, BertForSequenceClassification  # noqa: PLC0415  (only here)

    config = BertConfig(
        hidden_size=128, num_hidden_layers=2, num_attention_heads=2, intermediate_size=512
    )
    return BertForSequenceClassification(config), (
        torch.randint(30_000, (records, 64)),
        torch.randint(2, (records,)),
    )


def classified(model: Any, batch: Any) -> Tensor:
    """One cross-entropy for each text."""
    ids, labels = batch
    mask = torch.ones_like(ids)
    return nn.functional.cross_entropy(
        model(input_ids=ids, attention_mask=mask).logits, labels, reduction="none"
    )


def passes(
    model: nn.Module, batch: Any, loss: Callable[[Any, Any], Tensor]
) -> tuple[Pass, Pass, int]:
    """A plain pass, a proved one, and how many operations they have."""
    first, *others = model.parameters()
    for parameter in others:
        parameter.requires_grad_(False)
    parameters = [first]
    records = len(batch[0])
    shares = torch.ones(records)

    def plain() -> None:
        with plain_forward(model, restore=False):
            torch.autograd.grad(loss(model, batch), parameters, shares, allow_unused=True)

    def proved() -> None:
        proof = Proof(records)
        rows = tuple(proof.begin(tensor, Rows(0)) for tensor in batch)
        with plain_forward(model, restore=False), proving(proof), proof, Doors(proof):
            _gradients(loss(model, rows), parameters, shares, allow_unused=True)

    with plain_forward(model, restore=False):
        counted = Counted()
        with counted:
            torch.autograd.grad(loss(model, batch), parameters, shares, allow_unused=True)
    return plain, proved, counted.operations


def row(name: str, both: tuple[Pass, Pass, int], seconds: float) -> str:
    """A row of the table."""
    *contenders, operations = both
    taken: list[list[float]] = [[], []]
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(taken[0]) < 8:
        for place in (0, 1) if len(taken[0]) % 2 else (1, 0):
            before = time.process_time()
            contenders[place]()
            taken[place].append((time.process_time() - before) * 1e3)
    plain, proved = (statistics.median(samples[2:]) for samples in taken)
    each = (proved - plain) / operations * 1e3
    return (
        f"| {name} | {operations} | {plain:.2f} | {proved:.2f} | {proved / plain:.2f} | "
        f"{each:.1f} |"
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=15.0, help="for each model")
    seconds = parser.parse_args().seconds
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print("| model | operations | plain ms | proved ms | ratio | us each |")
    print("|---|---:|---:|---:|---:|---:|")
    with prepared():
        for name in ("small MLP", "MLP", "MNIST CNN", "CIFAR CNN", "LSTM", "GPT untied"):
            task = {**TASKS, **SMALL}[name]
            print(
                row(name, passes(task.model(), task.batch(task.records), losses), seconds),
                flush=True,
            )
        for records in (32, 8):
            print(
                row(f"BERT-tiny, {records} records", passes(*bert(records), classified), seconds),
                flush=True,
            )


if __name__ == "__main__":
    main()
