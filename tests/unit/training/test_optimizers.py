"""Optimizers and schedules of torch as they are: they see released gradients, and go on from a
checkpoint with the average.
"""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer
from torch.optim.lr_scheduler import (
    CosineAnnealingLR,
    LinearLR,
    LRScheduler,
    OneCycleLR,
    SequentialLR,
)

import discreet as dp
from discreet.training import PrivateRun, WeightAverage
from unit.training.test_run import data, loss, network, plan

STEPS = 6


def warm_up_then_cosine(optimizer: Optimizer) -> LRScheduler:
    parts = [LinearLR(optimizer, 0.1, total_iters=2), CosineAnnealingLR(optimizer, STEPS - 2)]
    return SequentialLR(optimizer, parts, milestones=[2])


KINDS: dict[str, tuple[Callable[[Any], Optimizer], Callable[[Any], LRScheduler]]] = {
    "momentum, cosine": (
        lambda p: SGD(p, lr=0.5, momentum=0.9, nesterov=True),
        lambda o: CosineAnnealingLR(o, STEPS),
    ),
    "Adam, linear": (lambda p: Adam(p, lr=0.1), lambda o: LinearLR(o, 1.0, 0.0, total_iters=STEPS)),
    "AdamW, one cycle": (
        lambda p: AdamW(p, lr=0.1),
        lambda o: OneCycleLR(o, 0.3, total_steps=STEPS),
    ),
    "momentum, warm up": (
        lambda p: SGD(p, lr=0.5, momentum=0.9, weight_decay=0.01),
        warm_up_then_cosine,
    ),
}


class Training:
    """What a user has, private or not."""

    def __init__(self, kind: str, **average: Any) -> None:
        make_optimizer, make_scheduler = KINDS[kind]
        self.model = network()
        self.optimizer = make_optimizer(self.model.parameters())
        self.scheduler = make_scheduler(self.optimizer)
        self.average = WeightAverage(self.model, **average)

    def step(self, given: list[Tensor] | None = None) -> None:
        for parameter, gradient in zip(
            self.model.parameters(), given or [], strict=given is not None
        ):
            parameter.grad = gradient.clone()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.scheduler.step()
        self.average.update()

    def everything(self) -> list[Any]:
        with self.average.applied():
            averaged = copy.deepcopy(self.model.state_dict())
        states = (self.model, self.optimizer, self.scheduler, self.average)
        return [plain(averaged), *(plain(thing.state_dict()) for thing in states)]


def plain(state: Any) -> Any:
    """In a form that can be compared."""
    if isinstance(state, Tensor):
        return state.tolist()
    if isinstance(state, dict):
        return {name: plain(part) for name, part in state.items() if not callable(part)}
    return [plain(part) for part in state] if isinstance(state, (list, tuple)) else state


def released(model: nn.Module) -> list[Tensor]:
    return [
        parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_optimizer_schedule_and_average_see_releases_and_nothing_else(kind: str) -> None:
    """A twin without data, which is only given what was released, has the same weights, rates and
    averages, bit for bit.
    """
    private, twin = Training(kind, decay=0.8), Training(kind, decay=0.8)
    with PrivateRun(private.model, plan(steps=STEPS), ledger=dp.Ledger.in_memory()) as run:
        for batch in run.batches(data()):
            run.backward(loss, batch)
            twin.step(released(private.model))
            private.step()
    assert twin.everything() == private.everything()
    assert private.scheduler.last_epoch == STEPS


@pytest.mark.parametrize("average", [{"start": 2}, {"start": 5}, {"decay": 0.8}])
@pytest.mark.parametrize("kind", KINDS)
def test_they_go_on_from_a_checkpoint_with_the_average(
    kind: str, average: dict[str, Any], tmp_path: Path
) -> None:
    with dp.Ledger.open(tmp_path / "a.ledger") as ledger:
        first = Training(kind, **average)
        run = PrivateRun(first.model, plan(steps=STEPS), ledger=ledger)
        for batch in run.batches(data()):
            run.backward(loss, batch)
            first.step()
            if run.step == 4:
                break
        run.save(
            tmp_path / "c",
            optimizer=first.optimizer,
            scheduler=first.scheduler,
            others={"average": first.average},
        )
        second = Training(kind, **average)
        again = PrivateRun(second.model, plan(steps=STEPS), ledger=ledger)
        again.load(
            tmp_path / "c",
            optimizer=second.optimizer,
            scheduler=second.scheduler,
            others={"average": second.average},
        )
        assert second.everything() == first.everything()
        for batch in again.batches(data()):
            again.backward(loss, batch)
            first.step(released(second.model))
            second.step()
        assert second.average.steps == STEPS
        assert second.everything() == first.everything()


def test_another_average_is_refused_with_the_checkpoint_and_nothing_is_loaded(
    tmp_path: Path,
) -> None:
    kind = "Adam, linear"
    with dp.Ledger.open(tmp_path / "a.ledger") as ledger:
        first, other = Training(kind, decay=0.8), Training(kind, decay=0.9)
        first.step([torch.ones_like(parameter) for parameter in first.model.parameters()])
        PrivateRun(first.model, plan(steps=STEPS), ledger=ledger).save(
            tmp_path / "c", others={"average": first.average}
        )
        before = other.everything()
        with pytest.raises(dp.errors.CheckpointError, match=r"fits the average.*decay=0\.9"):
            PrivateRun(other.model, plan(steps=STEPS), ledger=ledger).load(
                tmp_path / "c", others={"average": other.average}
            )
        assert other.everything() == before
