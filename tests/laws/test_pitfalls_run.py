"""Pitfalls of whole runs: precision of noise, accumulation, runs that end early, objects that stay
the user's own.

Each test shows what the wrong implementation gives beside what a run does.
"""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import discreet as dp
from discreet.randomness import Source
from discreet.training import PrivateRun
from unit.training.test_run import KEY, data, gradients, keyed, loss, network, plan

NOISY = dp.Groups({"grad/*": dp.Gaussian(1.0, 1.0)})


def nothing(model: nn.Module, batch: Any) -> Tensor:
    return 0.0 * loss(model, batch)


def test_p21_half_precision_is_noised_in_full_and_rounded_once() -> None:
    """The same key, once for a float32 and once for a bfloat16 model: the second gradient is the
    first, rounded.
    """
    its = plan(NOISY)
    full, half = network(), network().bfloat16()
    run = keyed(full, its)
    run.backward(nothing, next(run.batches(data())))
    run = keyed(half, its)
    run.backward(
        nothing, next(run.batches(TensorDataset(data().tensors[0].bfloat16(), data().tensors[1])))
    )
    assert torch.equal(gradients(half), gradients(full).bfloat16())
    in_half = (
        gradients(full) * its.expected_batch_size
    ).bfloat16() / its.expected_batch_size  # noise of eight bits
    assert not torch.equal(in_half.bfloat16(), gradients(half))


def test_p31_accumulation_over_two_draws_is_two_steps() -> None:
    """An optimizer that steps after every second batch: six draws, six charges, not three."""
    model, ledger = network(), dp.Ledger.in_memory()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run = PrivateRun(model, plan(NOISY, steps=6), ledger=ledger)
    updates = 0
    for number, batch in enumerate(run.batches(data()), 1):
        run.backward(loss, batch)
        if number % 2 == 0:
            optimizer.step()
            optimizer.zero_grad()
            updates += 1
    (charge,) = ledger.charges()
    assert (charge.count, updates) == (6, 3)
    as_one = dp.account([(charge.step, updates)], delta=1e-5, adjacency=dp.Adjacency.ADD_OR_REMOVE)
    assert dp.account(ledger, delta=1e-5).lower > 1.2 * as_one.upper


@pytest.mark.parametrize("taken", [1, 3, 10])
def test_p41_what_ran_is_charged_and_not_what_was_planned(taken: int) -> None:
    """A loop that ends after `taken` of ten steps: the ledger says so. One that asks for more gets
    nothing.
    """
    its, ledger = plan(NOISY, steps=10), dp.Ledger.in_memory()
    run = PrivateRun(network(), its, ledger=ledger)
    batches = run.batches(data())
    for _ in range(taken):
        run.backward(loss, next(batches))
    if taken == its.steps:
        assert next(batches, None) is None
    batches.close()  # type: ignore[attr-defined]
    (charge,) = ledger.charges()
    assert (charge.count, charge.unsettled) == (taken, 0)
    with pytest.raises(dp.errors.SampleMisuse):
        next(run.batches(data()))


def test_p47_optimizers_and_models_stay_what_they_were() -> None:
    """A deep copy of an optimizer in the midst of a run steps as the original does; no hook, no
    name is left behind.
    """
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    names, kind, step = list(model.state_dict()), type(optimizer), torch.optim.Adam.step
    run = PrivateRun(
        model, plan(NOISY), ledger=dp.Ledger.in_memory(), source=Source.unsafe_test_key(KEY)
    )
    for batch in run.batches(data()):
        run.backward(loss, batch)
        other_model, other = copy.deepcopy((model, optimizer))
        pairs = list(zip(model.parameters(), other_model.parameters(), strict=True))
        for mine, theirs in pairs:
            theirs.grad = (
                None if mine.grad is None else mine.grad.clone()
            )  # torch copies parameters without their gradients
        for one in (optimizer, other):
            one.step()
        assert all(torch.equal(mine, theirs) for mine, theirs in pairs)
        optimizer.zero_grad()
    assert type(optimizer) is kind
    assert torch.optim.Adam.step is step
    assert list(model.state_dict()) == names
    for module in model.modules():
        for kept in (
            "_forward_hooks",
            "_forward_pre_hooks",
            "_backward_hooks",
            "_backward_pre_hooks",
        ):
            assert not getattr(module, kept)
    for parameter in model.parameters():
        assert not parameter._backward_hooks
        assert set(vars(parameter)) == set()
