"""Rules of users: gradients of functions, separation of custom operators, and the oracles that test both."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from discreet.errors import ModelError, ParameterError
from discreet.training import Engine, check_rule, check_separation, register_rule, register_separation
from discreet.training.factors.factors import Dense, Factor
from discreet.training.rules.call import Call
from discreet.training.rules.registry import RULES as GRADIENT_RULES
from discreet.training.separation.operation import forget_operations
from discreet.training.separation.table import RULES as SEPARATION_RULES
from discreet.training.separation.table.operands import Operands

B = 6


@pytest.fixture(autouse=True)
def _tables() -> Iterator[None]:
    """Rules of a test are gone after it."""
    gradients, separation = dict(GRADIENT_RULES), dict(SEPARATION_RULES)
    yield
    for table, before in ((GRADIENT_RULES, gradients), (SEPARATION_RULES, separation)):
        table.clear()
        table.update(before)  # type: ignore[arg-type]
    forget_operations()


class Scaling(nn.Module):
    """Calls a function of the user with its weight."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.5, 1.5, 4))
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        scaled: Tensor = self.function(x, self.weight)
        return scaled


def squares(model: Any, x: Tensor) -> Tensor:
    losses: Tensor = model(x).square().sum(1)
    return losses


def scaled_rule(call: Call) -> Any:
    x, weight = call.args

    def make(gradient: Tensor) -> Factor:
        return Dense(gradient * x.detach())

    return call.tap(x * call.plain(weight), (call.value(weight), make))


def test_a_rule_of_the_users_own_is_used_and_compared_with_torch() -> None:
    asked: list[str] = []

    def rule(call: Call) -> Any:
        asked.append(call.name)
        return scaled_rule(call)

    @register_rule(rule)
    def scaled(x: Tensor, weight: Tensor) -> Tensor:
        return x * weight

    check_rule(Scaling(scaled), squares, torch.randn(B, 4), B)
    assert "scaled" in asked


def test_a_wrong_rule_is_found_and_records_go_one_by_one() -> None:
    def wrong(call: Call) -> Any:
        x, weight = call.args
        return call.tap(x * call.plain(weight), (call.value(weight), lambda g: Dense(2.0 * g * x.detach())))

    @register_rule(wrong)
    def doubled(x: Tensor, weight: Tensor) -> Tensor:
        return x * weight

    with pytest.raises(ModelError, match="torch's own gradients"):
        check_rule(Scaling(doubled), squares, torch.randn(B, 4), B)


def test_a_rule_belongs_to_its_function_not_to_a_name() -> None:
    @register_rule(scaled_rule)
    def prelu(x: Tensor, weight: Tensor) -> Tensor:
        return x * weight

    check_rule(Scaling(prelu), squares, torch.randn(B, 4), B)
    check_rule(nn.Sequential(nn.Linear(4, 4), nn.PReLU(4)), squares, torch.randn(B, 4), B)


def test_a_rule_whose_factors_depend_on_other_records_is_not_believed() -> None:
    """Wrong: to believe that what a user's rule makes of a gradient has rows."""

    def rescaled(call: Call) -> Any:
        x, weight = call.args

        def make(gradient: Tensor) -> Dense:
            each = gradient * x.detach()
            return Dense(each / each.abs().max().clamp(min=1.0))

        return call.tap(x * call.plain(weight), (call.value(weight), make))

    @register_rule(rescaled)
    def quiet(x: Tensor, weight: Tensor) -> Tensor:
        return x * weight

    with pytest.raises(ModelError, match="the rule of quiet makes of a gradient depends on several"):
        check_rule(Scaling(quiet), squares, torch.randn(B, 4) / 100.0, B)


@torch.library.custom_op("discreet_tests::shifted", mutates_args=())
def shifted(x: Tensor, by: float) -> Tensor:
    """An operator that treats each entry by itself."""
    return x + by


@torch.library.custom_op("discreet_tests::centred", mutates_args=())
def centred(x: Tensor) -> Tensor:
    """An operator that mixes records."""
    return x - x.mean(0)


def _entry_by_entry(operands: Operands) -> Any:
    operands.require_others_public("x")
    return operands.state("x")


def test_a_custom_operator_goes_one_by_one_until_it_has_a_rule() -> None:
    model, x = nn.Linear(4, 3), torch.randn(B, 4)

    def loss(network: Any, rows: Tensor) -> Tensor:
        losses: Tensor = network(torch.ops.discreet_tests.shifted(rows, 0.5)).square().sum(1)
        return losses

    engine = Engine(model)
    assert len(list(engine.passes(loss, x, B, B))) == B
    assert "discreet_tests::shifted" in str(engine.one_by_one)
    register_separation("discreet_tests::shifted", _entry_by_entry)
    assert check_separation(torch.ops.discreet_tests.shifted, [x, 0.5], {0: 0}, B)
    engine = Engine(model)
    assert len(list(engine.passes(loss, x, B, B))) == 1
    assert engine.one_by_one is None


def test_a_false_claim_of_separation_is_found() -> None:
    register_separation("discreet_tests::centred", _entry_by_entry)
    with pytest.raises(ModelError, match="changes when other records do"):
        check_separation(torch.ops.discreet_tests.centred, [torch.randn(B, 4)], {0: 0}, B)


@pytest.mark.parametrize("name", ["aten::add", "shifted"])
def test_operators_of_torch_cannot_be_registered(name: str) -> None:
    with pytest.raises(ParameterError, match="library of your own"):
        register_separation(name, _entry_by_entry)
