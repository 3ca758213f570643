"""Batch normalisation in private runs: buffers are a function of what was released, and of nothing
else.
"""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import discreet as dp
from discreet.errors import CoupledRecords
from discreet.training import PrivateRun
from discreet.training.passes.batch_norm import PrivateBatchNorm
from support.norms import images, loss, small_cnn

GROUPS = dp.Groups({"grad/*": dp.Gaussian(1.0, 1.0), "bn/*": dp.Gaussian(1.0, 2.0)})


def plan(steps: int, batch: float = 12, mechanism: Any = GROUPS) -> dp.Plan:
    return dp.Plan(
        sampler=dp.Sampler(dp.Poisson(batch / 60), records=60, steps=steps), mechanism=mechanism
    )


def test_buffers_follow_from_releases_alone() -> None:
    """A second model, given the releases but no data, has the same buffers after every step, bit
    for bit.
    """
    model, other = small_cnn(), small_cnn()
    follower = PrivateBatchNorm(other)
    run = PrivateRun(model, plan(4), ledger=dp.Ledger.in_memory())
    for batch in run.batches(TensorDataset(*images(60))):
        released = run.backward(loss, batch)
        follower.apply({leaf: released.mean(leaf) for leaf in follower.leaves})
        for (name, buffer), (_, copy) in zip(
            model.named_buffers(), other.named_buffers(), strict=True
        ):
            assert torch.equal(buffer, copy), name
    assert int(model[1].num_batches_tracked) == 4


def test_microbatches_change_neither_statistics_nor_counter() -> None:
    buffers = []
    for microbatch in (3, 40):
        model, source = small_cnn(), dp.randomness.Source.unsafe_test_key(bytes(range(32)))
        run = PrivateRun(
            model, plan(3), ledger=dp.Ledger.in_memory(), microbatch=microbatch, source=source
        )
        for batch in run.batches(TensorDataset(*images(60))):
            run.backward(loss, batch)
        buffers.append(dict(model.named_buffers()))
    for name, one in buffers[0].items():
        torch.testing.assert_close(one, buffers[1][name], rtol=1e-4, atol=1e-5)


def test_p29_the_divisor_is_public() -> None:
    run = PrivateRun(small_cnn(), plan(2), ledger=dp.Ledger.in_memory())
    for batch in run.batches(TensorDataset(*images(60))):
        released = run.backward(loss, batch)
        assert released.divisors["bn/1"] == pytest.approx(12.0)


def test_p28_an_empty_sample_moves_buffers_by_noise() -> None:
    model = small_cnn()
    run = PrivateRun(model, plan(40, batch=0.6), ledger=dp.Ledger.in_memory())
    empty = 0
    for batch in run.batches(TensorDataset(*images(60))):
        before = model[1].running_mean.clone()
        run.backward(loss, batch)
        empty += batch.data is None
        assert not torch.equal(model[1].running_mean, before)
    assert empty
    assert int(model[1].num_batches_tracked) == 40


def test_p09_a_plan_without_a_group_for_the_statistics_is_refused_before_anything_is_charged() -> (
    None
):
    ledger = dp.Ledger.in_memory()
    gradients = dp.Groups({"grad/*": dp.Gaussian(1.0, 1.0)})
    with pytest.raises(CoupledRecords, match=r"'1', '5'.*GroupNorm.*bn/\*"):
        PrivateRun(small_cnn(), plan(2, mechanism=gradients), ledger=ledger)
    assert not ledger.charges()
    PrivateRun(small_cnn().eval(), plan(2, mechanism=gradients), ledger=ledger)


def test_one_mechanism_for_everything_takes_the_statistics_too() -> None:
    run = PrivateRun(
        small_cnn(), plan(2, mechanism=dp.Gaussian(1.0, 1.0)), ledger=dp.Ledger.in_memory()
    )
    assert {"bn/1", "bn/5"} <= set(run.plan.leaves or ())


def test_p42_a_forward_in_train_mode_between_steps_is_refused_also_before_an_empty_sample() -> None:
    model = small_cnn()
    run = PrivateRun(model, plan(3, batch=0.1), ledger=dp.Ledger.in_memory())
    batches = run.batches(TensorDataset(*images(60)))
    batch = next(batches)
    model(images(9)[0])
    with pytest.raises(CoupledRecords, match="model.eval"):
        run.backward(loss, batch)
    run.backward(loss, batch)  # nothing was released, and the statistics were set back
    assert int(model[1].num_batches_tracked) == 1


def test_running_statistics_find_those_of_the_data() -> None:
    """Fixed activations, 60 steps, a fixed key. A channel's mean starts 2 and 10 of its standard
    deviations away.

    The noise of a step is noise_std sqrt(2C)/B = 2 * 2/40 = 0.1 standard deviations in each of 2
    channels; averaged with momentum 0.1 it is 0.1 sqrt(0.1/1.9) = 0.023. The bounds leave room for
    what clipping takes away from far records.
    """
    torch.manual_seed(0)
    model = nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 2))
    x = torch.randn(200, 2) * torch.tensor([5.0, 0.1]) + torch.tensor([10.0, -1.0])
    sampler = dp.Sampler(dp.Poisson(40 / 200), records=200, steps=60)
    mechanism = dp.Groups({"grad/*": dp.Gaussian(1.0, 1.0), "bn/*": dp.Gaussian(2.0, 1.0)})
    source = dp.randomness.Source.unsafe_test_key(bytes(32))
    run = PrivateRun(
        model,
        dp.Plan(sampler=sampler, mechanism=mechanism),
        ledger=dp.Ledger.in_memory(),
        source=source,
    )
    for batch in run.batches(TensorDataset(x, (x[:, 0] > 10.0).long())):
        run.backward(loss, batch)
    norm: Any = model[0]
    np.testing.assert_allclose(norm.running_mean, x.mean(0), atol=0.35 * 5.0)
    assert abs(float(norm.running_mean[1]) + 1.0) < 0.035
    assert torch.all((norm.running_var / x.var(0) > 0.3) & (norm.running_var / x.var(0) < 1.7))
