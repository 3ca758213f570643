"""What a rule sees of a call, and what the backward pass makes of it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  (as everywhere)
from torch import Tensor, nn

from discreet.training.engine import Engine
from discreet.training.extending import register_rule
from discreet.training.factors.factors import Dense
from discreet.training.rules.call import Call, Uses
from discreet.training.rules.weights import ViewOf, whole_region
from discreet.training.separation.proof import Proof
from discreet.training.separation.states import OneByOne, Rows
from support.written import Written, cubes, draw

WEIGHT = nn.Parameter(torch.ones(2, 3))


def call_of(x: Tensor, rows: Rows | None, count: int) -> Call:
    uses = Uses(Proof(count), torch.device("cpu"), lambda _, factor: factor)
    values = {id(WEIGHT): ViewOf(WEIGHT, "w", whole_region(WEIGHT))}
    axes = {id(x): rows, id(WEIGHT): None}
    return Call(uses, values, 0, F.linear, (x,), {"weight": WEIGHT}, axes, [x, WEIGHT])


def test_arguments_by_place_or_by_name() -> None:
    x = torch.zeros(4, 3)
    call = call_of(x, Rows(0), 4)
    assert call.get_all("input", "weight", "bias") == [x, WEIGHT, None]
    assert call.get(2, "bias", 7) == 7
    assert [value.tensor for value in call.values()] == [WEIGHT]
    assert call.others() == [x]
    assert call.rows_in() == [(x, Rows(0))]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (Rows(0, inner=2), [[[0.0, 1.0]], [[2.0, 3.0]], [[4.0, 5.0]]]),
        (Rows(0, outer=2), [[[0.0], [3.0]], [[1.0], [4.0]], [[2.0], [5.0]]]),
    ],
)
def test_folded_records_are_found_again(rows: Rows, expected: list[Any]) -> None:
    """Wrong: (B, T) and (T, B) flattened are taken for the same order."""
    x = torch.arange(6.0)
    assert call_of(x, rows, 3).rows(x).tolist() == expected


def test_a_public_argument_has_no_rows() -> None:
    x = torch.zeros(3)
    with pytest.raises(OneByOne, match="no clear record axis"):
        call_of(x, None, 3).rows(x)


def test_a_users_rule_that_joins_records_is_not_believed() -> None:
    """Wrong: every record gets the sum of all gradients, and the norm of one is that of all."""

    def joining(call: Call) -> Tensor:
        x, weight = call.args
        y = x * call.plain(weight)
        return call.tap(y, (call.value(weight), lambda g: Dense((g * x).sum(0).expand_as(g))))

    scaled = register_rule(joining)(lambda x, weight: x * weight)
    engine = Engine(Written(lambda s, x: scaled(x, s.w), {"w": draw(3)}))
    list(engine.passes(cubes, (draw(5, 3),), 5, 5))
    assert engine.one_by_one is not None
