"""What a parameter becomes on its way to the records, and how gradients come back from it."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from torch import Tensor

from discreet.training.factors.factors import Dense
from discreet.training.rules.weights import Derived, TableRows, view_of, whole_region
from discreet.training.separation.states import OneByOne
from support.per_record import assert_factor

KINDS = st.sampled_from([torch.float32, torch.float64])
few = settings(max_examples=25, deadline=None)


def numbers(seed: int, *shape: int, kind: torch.dtype) -> Tensor:
    return torch.randn(
        *shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    ).to(kind)


def tensor(*shape: int, seed: int = 0) -> Tensor:
    return numbers(seed, *shape, kind=torch.float32)


def test_a_view_beside_the_parameter_is_not_a_part_of_it() -> None:
    memory = torch.zeros(10)
    parameter = torch.nn.Parameter(memory[2:8])
    assert view_of(parameter[1:3], parameter) == ((2,), (1,), 1)
    assert view_of(memory[0:4], parameter) is None
    assert view_of(memory[6:10], parameter) is None
    assert (
        view_of(parameter.detach().as_strided((4, 2), (1, 1)), parameter) is None
    )  # overlaps itself
    assert view_of(torch._neg_view(parameter.detach()), parameter) is None
    assert view_of(parameter * 1.0, parameter) is None


class Python(torch.autograd.Function):
    """Its backward pass is written in Python."""

    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        return x * 3.0

    @staticmethod
    def backward(ctx: object, *gradients: Tensor) -> Tensor:
        raise AssertionError("it ran where nobody looks")


def test_t08_python_in_the_backward_pass_of_a_weight_does_not_run() -> None:
    parameter = torch.nn.Parameter(torch.ones(4))
    changed = Python.apply(parameter.exp()) * 2.0  # type: ignore[no-untyped-call]
    with pytest.raises(OneByOne, match="in Python"):
        list(Derived(changed, (("one", parameter),)).lift(Dense(torch.ones(3, 4))))


def test_values_computed_from_parameters() -> None:
    one, two = (torch.nn.Parameter(numbers(n, 4, kind=torch.float64)) for n in (1, 2))
    tensor = one.exp() * two
    values = numbers(3, 3, 4, kind=torch.float64)
    found = {
        leaf: f for leaf, _, f in Derived(tensor, (("one", one), ("two", two))).lift(Dense(values))
    }
    assert_factor(found["one"], values * (one.exp() * two).detach(), 1e-10)
    assert_factor(found["two"], values * one.exp().detach(), 1e-10)


@pytest.mark.parametrize("shape", [(), (3,), (2, 0, 3), (2, 3, 4)])
def test_the_whole_of_a_parameter_is_its_memory_in_order(shape: tuple[int, ...]) -> None:
    """Wrong: strides in the order of the axes, from the first."""
    sizes, strides, offset = whole_region(torch.zeros(shape))
    assert (sizes, offset) == (shape, 0)
    assert math.prod(shape) == 0 or strides == torch.zeros(shape).stride()


def test_rows_at_fixed_places_give_their_gradients_to_these_rows() -> None:
    """Wrong: the gradient of the rows taken for one of the whole table."""
    table = torch.nn.Parameter(numbers(0, 5, 3, kind=torch.float64))
    ids = torch.tensor([4, 1])
    values = numbers(1, 2, 2, 3, kind=torch.float64)
    ((leaf, region, factor),) = TableRows(table[ids], "w", whole_region(table), ids).lift(
        Dense(values)
    )
    truth = torch.zeros(2, 5, 3, dtype=torch.float64)
    truth[:, ids] = values
    assert (leaf, region) == ("w", whole_region(table))
    assert_factor(factor, truth, 1e-10)
