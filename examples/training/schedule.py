"""Training in phases: less noise and a smaller clip norm later on, settled in advance and
calibrated together.
"""

from __future__ import annotations

import torch
from private import accuracy, digits, loss
from torch import nn

import discreet as dp
from discreet import training


def main() -> None:
    """Train in two phases on one ledger, then test."""
    train, test = digits()
    model = nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10))
    plan = dp.Plan.dpsgd(records=len(train), expected_batch_size=256, steps=1, noise_multiplier=1.0)
    phases = [
        dp.Phase(steps=60, noise=1.3, clip_norm=1.0),
        dp.Phase(steps=60, noise=1.0, clip_norm=0.5),
    ]
    schedule = dp.Programme.phases(plan, phases).calibrated(epsilon=3.0, delta=1e-5)
    schedule.save("schedule.toml")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.4, momentum=0.9)
    with dp.Ledger.open(
        "schedule.ledger", budget=dp.Budget(epsilon=3.0, delta=1e-5, plans=schedule)
    ) as ledger:
        for name, part in schedule.plans.items():
            with training.PrivateRun(model, part, ledger=ledger, label=name) as run:
                for batch in run.batches(train):
                    run.backward(loss, batch)
                    optimizer.step()
                    optimizer.zero_grad()
        print(dp.account(ledger, delta=1e-5))
    print(f"test accuracy {accuracy(model, test):.1%}")


if __name__ == "__main__":
    main()
