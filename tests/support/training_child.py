"""A training that is meant to be killed: it saves every few steps, and resumes from its last
checkpoint if there is one.

    python training_child.py

Then, for each line "terms folder" on standard input, a fork trains there.

The terms are "odometer": steps that a kill lost are taken again, and cost more; or "list": they are
lost. This process says "started <pid>" and, when the fork has ended, "ended <status>". What the
fork does is witnessed in files
that survive it: `drawn` gets a byte before the noise of a step is drawn, `noise` the noise itself
    after it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss
from torch.utils.data import TensorDataset

import discreet as dp
from discreet.training import PrivateRun, step

STEPS = 80
EVERY = 4
RECORDS = 64
DELTA = 1e-5
NOISE = 16  # bytes of a step in the file `noise`


class Count:
    """How many optimizer steps the model went through, over all processes."""

    def __init__(self) -> None:
        self.steps = 0

    def state_dict(self) -> dict[str, int]:
        return {"steps": self.steps}

    def load_state_dict(self, state: dict[str, int], /) -> None:
        self.steps = state["steps"]


def plan() -> dp.Plan:
    return dp.Plan(
        sampler=dp.Sampler(dp.Poisson(0.25), records=RECORDS, steps=STEPS),
        mechanism=dp.Groups(
            {
                "grad/*": dp.AdaptiveClip(
                    dp.Gaussian(1.0, 3.0), quantile=0.5, count_noise_std=20.0
                ),
                "metric/nothing": dp.Gaussian(1.0, 9.0),
            }
        ),
    )


def data() -> TensorDataset:
    generator = torch.Generator().manual_seed(3)
    return TensorDataset(
        torch.randn(RECORDS, 4, generator=generator), torch.randn(RECORDS, 2, generator=generator)
    )


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))


def loss(model: nn.Module, batch: Any) -> tuple[Tensor, dict[str, Tensor]]:
    """And a statistic that is zero for every record: what is released of it is the noise."""
    x, y = batch
    return mse_loss(model(x), y, reduction="none").sum(1), {
        "metric/nothing": x.new_zeros(len(x), 2)
    }


def train(terms: str, folder: Path) -> None:
    """From the last checkpoint, or from the beginning, to the last step, or to the last that a list
    has.
    """
    drawn, noise = (
        os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for name in ("drawn", "noise")
    )
    right = step.Stepping.release

    def witnessed(self: step.Stepping, sample: Any, sums: Any) -> Any:
        os.write(drawn, b".")
        return right(self, sample, sums)

    step.Stepping.release = witnessed  # type: ignore[method-assign]
    model, count = network(), Count()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    checkpoint = folder / "checkpoint"
    listed = terms == "list"
    budget = dp.Budget(plans=plan()) if listed else dp.Odometer(delta=DELTA)
    with PrivateRun(
        model, plan(), ledger=folder / "ledger", budget=budget, statistics={"metric/nothing": 2}
    ) as run:
        if checkpoint.exists():
            run.load(checkpoint, optimizer=optimizer, scheduler=scheduler, others={"count": count})
        for batch in run.batches(data(), until_budget=listed):
            released = run.backward(loss, batch)
            os.write(noise, released["metric/nothing"].tobytes())
            optimizer.step()
            optimizer.zero_grad()
            scheduler.step()
            count.steps += 1
            if run.step % EVERY == 0 or run.step == STEPS:
                run.save(
                    checkpoint, optimizer=optimizer, scheduler=scheduler, others={"count": count}
                )


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    """Fork for each line: importing torch takes longer than the training."""
    torch.set_num_threads(1)
    say("ready")
    for line in sys.stdin:
        pid = os.fork()
        if not pid:
            try:
                terms, folder = line.strip().split(" ", 1)
                train(terms, Path(folder))
            except BaseException as error:  # noqa: BLE001  (a fork must not return into the loop)
                sys.stderr.write(f"{error!r}\n")
                sys.stderr.flush()
                os._exit(1)
            os._exit(0)
        say(f"started {pid}")
        _, status = os.waitpid(pid, 0)
        say(f"ended {os.waitstatus_to_exitcode(status)}")


if __name__ == "__main__":
    main()
