"""How often a loss is run, on what, and what it returns: one loss for each row, and rows of
statistics.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import discreet as dp
from discreet.errors import ModelError
from discreet.training import PrivateRun
from discreet.training.engine import Engine
from discreet.training.passes.contributions import losses_and_statistics, plain_result
from support.tally import Tally


def test_losses_alone_and_with_statistics() -> None:
    losses, moments = torch.ones(3, requires_grad=True), {"bn/1": torch.zeros(3, 4)}
    assert losses_and_statistics((losses, {}), 3, {}) == (losses, {})
    kept, found = losses_and_statistics((losses, {"metric/a": losses * 2}), 3, moments)
    assert kept is losses
    assert list(found) == ["bn/1", "metric/a"]
    assert not found["metric/a"].requires_grad


@pytest.mark.parametrize(
    "result", [torch.ones(()), torch.ones(2), torch.ones(3, 1), [1.0, 2.0, 3.0], None]
)
def test_p10_anything_but_one_loss_for_each_row_is_refused(result: Any) -> None:
    with pytest.raises(ModelError, match="one loss for each record"):
        losses_and_statistics(plain_result(result), 3, {})


@pytest.mark.parametrize("values", [1.0, torch.ones(()), torch.ones(2)])
def test_statistics_without_a_row_for_each_record_are_refused(values: Any) -> None:
    with pytest.raises(ModelError, match="one row of 'metric/a'"):
        losses_and_statistics((torch.ones(3), {"metric/a": values}), 3, {})


def test_a_name_of_moments_is_taken() -> None:
    with pytest.raises(ModelError, match="private batch-norm"):
        losses_and_statistics(
            (torch.ones(3), {"bn/1": torch.ones(3)}), 3, {"bn/1": torch.ones(3, 2)}
        )


def test_the_first_step_runs_the_loss_four_times_and_a_later_one_once() -> None:
    sizes = Tally()

    def loss(model: Any, batch: Any) -> Tensor:
        sizes.append(len(batch[0]))
        losses: Tensor = model(batch[0]).square().sum(1)
        return losses

    plan = dp.Plan(
        sampler=dp.Sampler(dp.Everything(), records=20, steps=3),
        mechanism=dp.Groups({"grad/*": dp.Gaussian(1.0, 1.0)}),
    )
    run = PrivateRun(
        nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)),
        plan,
        ledger=dp.Ledger.in_memory(),
    )
    steps = []
    for batch in run.batches(TensorDataset(torch.randn(20, 3))):
        run.backward(loss, batch)
        steps.append(sizes.entries)
        sizes.clear()
    assert steps == [[7, 1, 1, 20], [20], [20]]
    assert run.engine.one_by_one is None


def test_every_pass_has_a_batch_of_its_own() -> None:
    """What a loss does to its batch in place is seen by no other pass, and not by the caller."""

    def loss(model: Any, x: Tensor) -> Tensor:
        assert float(x.detach()[0, 0]) == 1.0
        x.fill_(7.0)
        losses: Tensor = model(x).square().sum(1)
        return losses

    x = torch.ones(4, 3)
    engine = Engine(nn.Linear(3, 2))
    engine.compute_one_by_one()
    list(engine.passes(loss, x, 4, 4))
    assert torch.equal(x, torch.ones(4, 3))
