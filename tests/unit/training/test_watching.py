"""What is watched in every pass, what is not, and the circumstances of a pass."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import pytest
import torch
from torch import nn

from discreet.errors import CoupledRecords, ModelError
from discreet.training import guards, recording
from discreet.training.engine import Engine
from discreet.training.quiet import full_precision, plain_forward, seeded
from discreet.training.steady import Steady
from discreet.training.structure import tensors_in

_SEEN = ("instance_norm", "randperm", "backward", "grad", "copy_", "add_", "__iadd__", "__setitem__", "embedding_renorm_")


@pytest.mark.parametrize("name", _SEEN)
def test_names_that_may_couple_records_or_change_parameters_are_looked_at_in_every_pass(name: str) -> None:
    assert recording._guarded(name)


def test_what_the_guards_refuse_is_among_the_names_they_are_asked_about() -> None:
    """Wrong: a guard that learns a new name, and is not asked about it."""
    source = (guards.refuse_coupling, guards.refuse_shuffling)
    named = {constant for function in source for constant in function.__code__.co_consts if isinstance(constant, str)}
    assert named & {"instance_norm", "randperm"} == guards.GUARDED
    assert not any(map(recording._guarded, ("linear", "relu", "conv2d", "cross_entropy_loss", "requires_grad_")))


class Later(nn.Module):
    """Changes its ways after some passes."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.layer, self.how, self.passes = nn.Linear(3, 2), how, 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.passes += 1
        if self.how == "changes" and self.passes > 40:
            self.layer.weight.detach().mul_(1.0)
        else:
            x.detach().clone().mul_(1.0)  # the same names in every pass
        out: torch.Tensor = self.layer(x)
        return out


def losses(model: Any, batch: torch.Tensor) -> torch.Tensor:
    found: torch.Tensor = model(batch).square().sum(1)
    return found


def test_a_parameter_that_is_changed_in_a_later_pass_is_refused() -> None:
    model = Later("changes")
    engine, batch, mode = Engine(model), torch.randn(4, 3), torch.ones(4, dtype=torch.bool)
    with pytest.raises(ModelError):
        for _ in range(60):
            list(engine.passes(losses, batch, 4, mode))
    assert model.passes > 40
    steady = Later("does not")
    other = Engine(steady)
    for _ in range(60):
        list(other.passes(losses, batch, 4, mode))


def test_batch_normalisation_is_seen_also_where_dropout_is_off() -> None:
    with pytest.raises(CoupledRecords), Steady():
        nn.BatchNorm1d(3)(torch.randn(4, 3))


def test_tensors_are_found_in_their_order_wherever_they_are() -> None:
    a, b, c, d = (torch.zeros(size) for size in (1, 2, 3, 4))
    found = tensors_in(a, None, 1.0, [b, ("x", {"y": c})], OrderedDict(z=d), frozenset({1}))
    assert [len(one) for one in found] == [1, 2, 3, 4]
    assert tensors_in() == tensors_in(True, 2, "a", [], {}) == []


def test_a_seed_gives_the_numbers_of_torch_and_leaves_its_generator_as_it_was() -> None:
    torch.manual_seed(5)
    plain = torch.rand(3)
    torch.manual_seed(7)
    expected = torch.rand(2)
    with seeded(5):
        assert torch.equal(torch.rand(3), plain)
    torch.manual_seed(7)
    with pytest.raises(ZeroDivisionError), seeded(2**64 - 1):
        torch.rand(3)
        raise ZeroDivisionError
    assert torch.equal(torch.rand(2), expected)


def test_products_are_full_also_where_autocast_is_on() -> None:
    x = torch.randn(4, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (x @ x).dtype == torch.bfloat16
        with full_precision(torch.device("cpu")):
            assert (x @ x).dtype == torch.float32
        assert (x @ x).dtype == torch.bfloat16
    with full_precision(torch.device("cpu")):
        assert (x @ x).dtype == torch.float32


def test_gradients_are_put_back_and_whoever_writes_one_is_named() -> None:
    model, before = nn.Linear(3, 2), torch.ones(2, 3)
    trained = {"grad/weight": model.weight, "grad/bias": model.bias}
    model.weight.grad = before
    with plain_forward(model, restore=False, trained=trained):
        during = [parameter.grad for parameter in model.parameters()]
    assert during == [None, None]
    assert model.weight.grad is before
    with pytest.raises(ModelError, match="writes into bias"), plain_forward(model, restore=False, trained=trained):
        model.bias.grad = torch.ones(2)
    assert model.weight.grad is before
    assert model.bias.grad is None
