"""Rules of users: gradients of functions, separation of custom operators, and the oracles that test
both.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from discreet.errors import ModelError, ParameterError
from discreet.training import (
    Engine,
    check_rule,
    check_separation,
    register_rule,
    register_separation,
)
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
        return call.tap(
            x * call.plain(weight), (call.value(weight), lambda g: Dense(2.0 * g * x.detach()))
        )

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

    with pytest.raises(
        ModelError, match="the rule of quiet makes of a gradient depends on several"
    ):
        check_rule(Scaling(quiet), squares, torch.randn(B, 4) / 100.0, B)


class Looking(nn.Module):
    """Calls a function of the user with whole numbers and its weight."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(5, 4))
        self.function = function

    def forward(self, x: Tensor, ids: Tensor) -> Tensor:
        looked: Tensor = self.function(x, ids, self.weight)
        return looked


@pytest.mark.parametrize("always_one", [False, True])
def test_a_rule_is_tried_with_the_numbers_of_the_batch(*, always_one: bool) -> None:
    """Wrong: to try whole numbers as ones only, as in made-up batches."""

    def rule(call: Call) -> Any:
        x, ids, weight = call.args

        def make(gradient: Tensor) -> Factor:
            rows = torch.ones_like(ids) if always_one else ids
            places = torch.nn.functional.one_hot(rows, 5).to(gradient)
            return Dense(places[:, :, None] * gradient[:, None, :])

        return call.tap(x + call.plain(weight)[ids], (call.value(weight), make))

    @register_rule(rule)
    def looked(x: Tensor, ids: Tensor, weight: Tensor) -> Tensor:
        return x + weight[ids]

    def loss(model: Any, batch: Any) -> Tensor:
        losses: Tensor = model(*batch).square().sum(1)
        return losses

    batch = (torch.randn(B, 4), torch.tensor([1, 1, 1, 1, 1, 3]))
    if not always_one:
        check_rule(Looking(looked), loss, batch, B)
        return
    with pytest.raises(ModelError, match="other gradients than torch's own for a record"):
        check_rule(Looking(looked), loss, batch, B)


def test_a_rule_of_a_model_that_draws_random_numbers_is_not_said_to_be_right() -> None:
    @register_rule(scaled_rule)
    def scaled(x: Tensor, weight: Tensor) -> Tensor:
        return x * weight

    def noisy(model: Any, x: Tensor) -> Tensor:
        return squares(model, x + torch.randn_like(x))

    with pytest.raises(ModelError, match="draws some: nothing was compared"):
        check_rule(Scaling(scaled), noisy, torch.randn(B, 4), B)
    check_rule(nn.Sequential(nn.Dropout(0.5), Scaling(scaled)), squares, torch.randn(B, 4), B)
    with pytest.raises(ParameterError, match="at least 2"):
        check_rule(Scaling(scaled), squares, torch.randn(1, 4), 1)


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


@torch.library.custom_op("discreet_tests::longest", mutates_args=())
def longest(x: Tensor, n: Tensor) -> Tensor:
    """An operator in which the largest whole number of all records decides."""
    return x * torch.where(n.max() > 50, -1.0, 1.0)


@torch.library.custom_op("discreet_tests::any_of", mutates_args=())
def any_of(x: Tensor, n: Tensor) -> Tensor:
    """An operator in which one record's truth value decides for all."""
    return x * torch.where(n.any(), -1.0, 1.0)


@torch.library.custom_op("discreet_tests::by_place", mutates_args=())
def by_place(x: Tensor) -> Tensor:
    """An operator that treats places differently."""
    return x * torch.where(torch.arange(len(x)) % 3 == 2, -1.0, 1.0)[:, None]


@torch.library.custom_op("discreet_tests::doubled_and_written", mutates_args={"x"})
def doubled_and_written(x: Tensor) -> Tensor:
    """An operator whose result is fine, and which mixes records in its argument."""
    doubled = x * 2
    x.mul_(torch.where(x.max() > 50, -1.0, 1.0))
    return doubled


@torch.library.custom_op("discreet_tests::looked_up", mutates_args=())
def looked_up(table: Tensor, ids: Tensor) -> Tensor:
    """An operator that raises for numbers that are no rows of its table."""
    return table[ids]


@torch.library.custom_op(
    "discreet_tests::noisy", mutates_args=(), tags=(torch.Tag.nondeterministic_seeded,)
)
def noisy_operator(x: Tensor) -> Tensor:
    """An operator that adds numbers that are drawn for each entry."""
    return x + torch.randn_like(x)


@torch.library.custom_op("discreet_tests::demanding", mutates_args=())
def demanding(x: Tensor) -> Tensor:
    """An operator that bears one batch only."""
    if float(x.sum()) != 2.0 * B * 3:
        raise ValueError("not this")
    return x * 1.0


def _with_numbers(operands: Operands) -> Any:
    operands.require_others_public("x", "n")
    return operands.state("x")


def _of_ids(operands: Operands) -> Any:
    operands.require_others_public("ids")
    return operands.state("ids")


@pytest.mark.parametrize(
    ("name", "rule", "arguments", "axes", "message"),
    [
        (
            "longest",
            _with_numbers,
            [torch.ones(B, 3), torch.arange(B)],
            {0: 0, 1: 0},
            "when other records do",
        ),
        (
            "any_of",
            _with_numbers,
            [torch.ones(B, 3), torch.zeros(B, dtype=torch.bool)],
            {0: 0, 1: 0},
            "when other records do",
        ),
        ("by_place", _entry_by_entry, [torch.ones(B, 3)], {0: 0}, "put in other places"),
        (
            "doubled_and_written",
            _entry_by_entry,
            [torch.ones(B, 3)],
            {0: 0},
            "when other records do",
        ),
        (
            "demanding",
            _entry_by_entry,
            [torch.arange(B * 3.0).view(B, 3).fmod(2.0) + 1.5],
            {0: 0},
            "errors for all",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_other_false_claims_of_separation_are_found(
    name: str, rule: Any, arguments: Any, axes: Any, message: str
) -> None:
    """Wrong: to keep whole numbers and truth values as they are, to look at results only, and in
    one order of the records.
    """
    register_separation(f"discreet_tests::{name}", rule)
    copies = [argument.clone() for argument in arguments]
    with pytest.raises(ModelError, match=message):
        check_separation(getattr(torch.ops.discreet_tests, name), arguments, axes, B)
    assert all(map(torch.equal, arguments, copies))


def test_an_operator_that_draws_or_bears_few_numbers_is_judged_by_what_it_bears() -> None:
    register_separation("discreet_tests::looked_up", _of_ids)
    assert check_separation(
        torch.ops.discreet_tests.looked_up, [torch.randn(9, 2), torch.arange(B)], {1: 0}, B
    )
    register_separation("discreet_tests::noisy", _entry_by_entry)
    check_separation(torch.ops.discreet_tests.noisy, [torch.randn(B, 3)], {0: 0}, B)


@pytest.mark.parametrize(("rows", "axis"), [(B, 0), (B, -2), (3 * B, 0)])
def test_axes_may_be_negative_and_records_may_have_several_rows(rows: int, axis: int) -> None:
    register_separation("discreet_tests::shifted", _entry_by_entry)
    assert check_separation(
        torch.ops.discreet_tests.shifted, [torch.randn(rows, 4), 0.5], {0: axis}, B
    )


@pytest.mark.parametrize(
    ("axes", "records", "message"),
    [
        ({0: 0}, 1, "at least 2"),
        ({0: 0}, 4, "6 rows"),
        ({0: 2}, B, "axes that they have"),
        ({0: -3}, B, "axes that they have"),
        ({1: 0}, B, "axes that they have"),
        ({2: 0}, B, "axes that they have"),
        ({}, B, "at least one argument"),
    ],
)
def test_records_that_the_arguments_do_not_have_are_refused(
    axes: Any, records: int, message: str
) -> None:
    with pytest.raises(ParameterError, match=message):
        check_separation(torch.ops.discreet_tests.shifted, [torch.randn(B, 4), 0.5], axes, records)


def test_a_rule_that_is_no_function_is_refused() -> None:
    with pytest.raises(ParameterError, match="a function of Operands"):
        register_separation("discreet_tests::shifted", "rows")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "name",
    [
        "aten::add",
        "shifted",
        "discreet_tests::not_there",
        "nowhere::shifted",
        "discreet_tests::shifted.other",
        "::",
        5,
    ],
)
def test_operators_of_torch_and_what_is_none_cannot_be_registered(name: Any) -> None:
    with pytest.raises(ParameterError, match="library of your own"):
        register_separation(name, _entry_by_entry)
