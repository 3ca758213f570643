"""One call as the rules see it: axes, overlaps, and constants that are alike for all records."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from discreet.training.separation.states import PUBLIC, Rows
from discreet.training.separation.table.operands import (
    Operands,
    Unknown,
    axes_of,
    overlaps,
    rules_for,
    tensors_among,
    uniform,
)


def test_tensors_are_found_in_lists_and_dictionaries_in_their_order() -> None:
    one, two, three = torch.zeros(1), torch.zeros(2), torch.zeros(3)
    found = tensors_among([one, {"a": (two, 5)}, "text", three])
    assert [tensor.numel() for tensor in found] == [1, 2, 3]


@pytest.mark.parametrize(
    ("dim", "axes"), [(None, {0, 1, 2}), ([], {0, 1, 2}), (-1, {2}), ([0, -1], {0, 2})]
)
def test_no_axis_named_stands_for_all(dim: Any, axes: set[int]) -> None:
    assert axes_of(dim, 3) == axes


@pytest.mark.parametrize(
    ("tensor", "shared"),
    [
        (torch.zeros(3, 2), False),
        (torch.zeros(2, 3).mT, False),
        (torch.zeros(1).expand(3), True),
        (torch.zeros(5).as_strided((3, 3), (1, 1)), True),
        (torch.zeros(1, 1), False),
    ],
)
def test_entries_in_one_place_are_noticed(tensor: Tensor, shared: bool) -> None:
    assert overlaps(tensor) is shared


@pytest.mark.parametrize(
    ("tensor", "alike"),
    [
        (torch.ones(4, 2), True),
        (torch.arange(4.0), False),
        (torch.tensor([0.0, -0.0, 0.0, 0.0]), False),
        (torch.full((4,), math.nan), True),
        (torch.arange(5.0), True),
    ],
    ids=["same", "by place", "signed zeros", "not a number", "of another length"],
)
def test_constants_are_compared_bit_by_bit(tensor: Tensor, alike: bool) -> None:
    """0.0 equals -0.0 and is another number; NaN equals nothing and may be the same one."""
    assert uniform(tensor, Rows(0), 4) is alike


def test_of_one_record_every_constant_is_its_own() -> None:
    assert uniform(torch.arange(4.0), Rows(0, inner=4), 1)


def call(**tensors: tuple[Tensor, Any]) -> Operands:
    states = {id(tensor): state for tensor, state in tensors.values()}
    arguments = {name: tensor for name, (tensor, _) in tensors.items()}
    return Operands("add", "Tensor", arguments, states, [torch.zeros(4, 3)], 4, {})


def test_an_argument_that_a_rule_does_not_name_is_unknown() -> None:
    """Wrong: a rule that is silent about a new argument of a later torch."""
    operands = call(self=(torch.zeros(4, 3), Rows(0)), other=(torch.zeros(4, 3), Rows(0)))
    operands.require_known("self", "other")
    with pytest.raises(Unknown):
        operands.require_known("self")


def test_records_in_different_places_do_not_agree() -> None:
    first, second = torch.zeros(4, 4), torch.ones(4, 4)
    operands = call(self=(first, Rows(0)), other=(second, Rows(1)))
    with pytest.raises(Unknown):
        operands.agreed([(first, 0), (second, 0)])


def test_a_public_argument_has_no_rows() -> None:
    operands = call(self=(torch.zeros(4, 3), Rows(0)), other=(torch.zeros(3), PUBLIC))
    assert operands.rows("other") is None
    assert operands.require_rows("self") == Rows(0)
    with pytest.raises(Unknown):
        operands.require_rows("other")


def test_one_rule_for_many_names() -> None:
    def rule(operands: Operands) -> Rows:
        return operands.require_rows("self")

    assert rules_for(" a\n b ", rule) == {"a": rule, "b": rule}
