"""What the tape sees of a forward pass: weights that meet records, and nothing of what a user's
code does else.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from discreet.errors import CoupledRecords, ModelError
from discreet.training.data.trees import tensors_in
from discreet.training.engine import Engine
from discreet.training.factors.factors import Dense, Outer
from discreet.training.passes.batch_norm import Alone, Noting
from discreet.training.passes.precision_settings import full_precision
from discreet.training.passes.sandbox import plain_forward, seeded_pass
from discreet.training.passes.tape import Tape
from discreet.training.rules import RULES
from discreet.training.rules.call import Uses
from discreet.training.separation.proof import Proof
from discreet.training.separation.states import OneByOne, Rows
from support.per_record import compare


class Taping:
    """A tape of its own, over some weights and three records."""

    def __init__(self, **parameters: Tensor) -> None:
        self.proof = Proof(3)
        self.uses = Uses(self.proof, torch.device("cpu"), lambda _use, factor: factor)
        self.tape = Tape(parameters, self.uses, RULES, Noting())

    def begin(self, rows: Tensor) -> Tensor:
        return self.proof.begin(rows, Rows(0))

    def backward(self, losses: Tensor) -> None:
        with self.proof:
            torch.autograd.grad(losses.sum(), self.uses.anchor, allow_unused=True)


def test_each_weight_that_meets_records_is_a_use_with_the_right_factor() -> None:
    weight, bias = (torch.randn(*size, requires_grad=True) for size in ((2, 4), (2,)))
    taping, rows = Taping(weight=weight, bias=bias), torch.randn(3, 4)
    x = taping.begin(rows)
    with taping.proof, taping.tape:
        losses = nn.functional.linear(x, weight, bias).square().sum(1)
    taping.backward(losses)
    factors = {use.value.leaf: use.factor for use in taping.uses.uses}  # type: ignore[union-attr]
    assert isinstance(factors["weight"], Outer)
    assert isinstance(factors["bias"], Dense)
    for row in range(3):
        loss = nn.functional.linear(rows[row], weight, bias).square().sum()
        expected = torch.autograd.grad(loss, (weight, bias))
        found = factors["weight"].dense().values[row].reshape(2, 4), factors["bias"].values[row]
        assert all(map(torch.allclose, found, expected))


def test_a_weight_that_meets_constants_is_a_weight_still() -> None:
    weight = torch.randn(4, 2, requires_grad=True)
    taping = Taping(weight=weight)
    x = taping.begin(torch.randn(3, 4))
    with taping.proof, taping.tape:
        scaled = weight * 2.0
        assert not taping.uses.uses
        losses = (x @ scaled).sum(1)
    (use,) = taping.uses.uses
    assert use.value.tensor is scaled
    taping.backward(losses)
    assert use.factor is not None


class Hyper(nn.Module):
    """Weights that a network with a step in place makes of constants."""

    coordinates: Tensor

    def __init__(self, late: str = "") -> None:
        super().__init__()
        self.make = nn.Sequential(nn.Linear(2, 6), nn.ReLU(inplace=True), nn.Linear(6, 4))
        self.register_buffer("coordinates", torch.randn(5, 2))
        self.late = late

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.make[0](self.coordinates)
        if self.late == "before":
            hidden.data.mul_(2.0)
        hidden = self.make[1](hidden)
        weight = self.make[2](hidden)
        if self.late == "after":
            hidden.data.mul_(2.0)
        out: Tensor = x @ weight.T
        return out


def test_a_weight_may_be_made_in_place() -> None:
    compare(Hyper(), losses_of, torch.randn(4, 4))


@pytest.mark.parametrize("late", ["before", "after"])
def test_t08_a_write_that_autograd_does_not_see_is_no_step_in_place(late: str) -> None:
    """Wrong: a step in place forgives whatever else was written to the same memory."""
    compare(Hyper(late), losses_of, torch.randn(4, 4), loop=True)


def test_a_weight_that_meets_several_records_at_once_is_not_taped() -> None:
    weight = torch.randn(4, 2, requires_grad=True)
    taping = Taping(weight=weight)
    x = taping.begin(torch.randn(3, 4))
    with (
        taping.proof,
        taping.tape,
        pytest.raises(OneByOne, match=r"joins a weight with several records: mean\.dim"),
    ):
        _ = x.mean(0) @ weight
    with pytest.raises(OneByOne):
        taping.proof.check()  # whoever caught it


def test_a_weight_inside_of_torch_func_is_not_taped() -> None:
    weight = torch.randn(2, requires_grad=True)
    taping = Taping(weight=weight)
    x = taping.begin(torch.randn(3, 2))
    with taping.proof, taping.tape, pytest.raises(OneByOne, match=r"torch\.func|leave for Python"):
        torch.func.vmap(lambda row: row * weight)(x)


# --- in an engine ---


class Later(nn.Module):
    """Changes its ways after some passes."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.layer, self.how, self.passes = nn.Linear(3, 2), how, 0

    def forward(self, x: Tensor) -> Tensor:
        self.passes += 1
        if self.how == "changes" and self.passes > 40:
            self.layer.weight.detach().mul_(1.0)
        else:
            x.detach().clone().mul_(1.0)  # the same names in every pass
        out: Tensor = self.layer(x)
        return out


def losses_of(model: Any, batch: Tensor) -> Tensor:
    found: Tensor = model(batch).square().sum(1)
    return found


def test_a_parameter_that_is_changed_in_a_later_pass_is_refused() -> None:
    model = Later("changes")
    engine, batch, mode = Engine(model), torch.randn(4, 3), torch.ones(4, dtype=torch.bool)
    with pytest.raises(ModelError):
        for _ in range(60):
            list(engine.passes(losses_of, batch, 4, mode))
    assert model.passes == 40  # what a pass that fails counted is put back
    steady = Later("does not")
    other = Engine(steady)
    for _ in range(60):
        list(other.passes(losses_of, batch, 4, mode))
    assert other.one_by_one is None


@pytest.mark.parametrize("how", ["backward", "grad"])
def test_a_model_that_is_differentiated_within_its_own_pass_goes_one_by_one(how: str) -> None:
    def loss(model: Any, batch: Tensor) -> Tensor:
        losses = losses_of(model, batch)
        if how == "grad":
            torch.autograd.grad(losses.sum(), model.layer.weight, retain_graph=True)
        else:
            losses.sum().backward(inputs=[losses], retain_graph=True)  # type: ignore[no-untyped-call]
        return losses

    engine, batch = Engine(Later("does not")), torch.randn(4, 3)
    list(engine.passes(loss, batch, 4, 4))
    assert engine.one_by_one is not None


def test_batch_normalisation_is_seen_also_where_dropout_is_off() -> None:
    with pytest.raises(CoupledRecords), Alone(Proof(1), Noting(), steady=True):
        nn.BatchNorm1d(3)(torch.randn(4, 3))


def test_steady_passes_draw_nothing_for_dropout() -> None:
    x = torch.randn(2, 4, 6)
    layers = (
        nn.Dropout(0.5),
        nn.AlphaDropout(0.5),
        nn.Dropout1d(0.5),
        nn.LSTM(6, 6, 2, dropout=0.5),
    )
    attention = nn.MultiheadAttention(6, 2, dropout=0.5, batch_first=True)
    before = torch.get_rng_state()
    with Alone(Proof(1), Noting(), steady=True):
        for layer in layers:
            layer(x)
        attention(x, x, x, need_weights=False)
        attention(x, x, x)
        nn.functional.scaled_dot_product_attention(x, x, x, dropout_p=0.5)
        torch.dropout(x, 0.5, train=True)
    assert torch.equal(before, torch.get_rng_state())
    nn.Dropout(0.5)(x)
    assert not torch.equal(before, torch.get_rng_state())


def test_tensors_are_found_in_their_order_wherever_they_are() -> None:
    a, b, c, d = (torch.zeros(size) for size in (1, 2, 3, 4))
    found = tensors_in(a, None, 1.0, [b, ("x", {"y": c})], OrderedDict(z=d), frozenset({1}))
    assert [len(one) for one in found] == [1, 2, 3, 4]
    assert tensors_in() == tensors_in(True, 2, "a", [], {}) == []


# --- the circumstances of a pass ---


def test_a_seed_gives_the_numbers_of_torch_and_leaves_its_generator_as_it_was() -> None:
    torch.manual_seed(5)
    plain = torch.rand(3)
    torch.manual_seed(7)
    expected = torch.rand(2)
    with seeded_pass(5):
        assert torch.equal(torch.rand(3), plain)
    torch.manual_seed(7)
    with pytest.raises(ZeroDivisionError), seeded_pass(2**64 - 1):
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
    with (
        pytest.raises(ModelError, match="writes into bias"),
        plain_forward(model, restore=False, trained=trained),
    ):
        model.bias.grad = torch.ones(2)
    assert model.weight.grad is before
    assert model.bias.grad is None
