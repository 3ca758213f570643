"""What an operation made of the states of its arguments; what no rule knows is not proved."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from discreet.training.separation.books import Books
from discreet.training.separation.operation import operation_of
from discreet.training.separation.outcomes import Outcomes, constants_before
from discreet.training.separation.states import PUBLIC, Mixed, Rows
from discreet.training.separation.table.operands import Operands
from support.states import B, assert_follows, assert_joins, numbers, state_of

X = numbers(B, 3)


def test_of_public_arguments_everything_is_public() -> None:
    assert state_of(lambda _: numbers(3) + 1.0, X) is PUBLIC


def test_a_sum_is_told_where_it_is_used_and_not_where_it_is_made() -> None:
    assert_follows(lambda x: (x.sum(0), x * 2.0)[1], X, Rows(0))
    assert_joins(lambda x: x - x.sum(0), X, "a sum over records")


def test_memory_that_grew_holds_what_nobody_has_written() -> None:
    assert_joins(lambda x: x.clone().resize_(2 * B, 3), X)


def broken(error: Exception | None, states: object = None) -> Callable[[Operands], Any]:
    def rule(operands: Operands) -> Any:
        if error is not None:
            raise error
        return states

    return rule


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (broken(ZeroDivisionError()), "its rule stumbled (ZeroDivisionError)"),
        (broken(None, [Rows(0), Rows(0)]), "a rule that does not fit its results"),
        (broken(None, "rows"), "a rule that does not fit its results"),
    ],
    ids=["it raises", "too many states", "no state"],
)
def test_a_rule_that_is_wrong_proves_nothing(rule: Callable[[Operands], Any], words: str) -> None:
    """Called by itself: what operations do is remembered for the whole process."""
    outcomes = Outcomes(Books(B, lambda: "", lambda: None), B, lambda _: None)
    (state,) = outcomes._by_rule(
        operation_of(torch.ops.aten.cumsum.default), rule, {"self": X}, {id(X): Rows(0)}, [X], {}
    )
    assert isinstance(state, Mixed)
    assert words in state.why


def test_constants_that_are_about_to_be_overwritten_are_copied() -> None:
    """Afterwards nobody could say whether they were alike for all records."""
    public, record = torch.zeros(3), torch.zeros(3)
    copies = constants_before([public, record], {id(public): PUBLIC, id(record): Rows(0)})
    assert copies.keys() == {id(public)}
    public.add_(1.0)
    assert copies[id(public)].tolist() == [0.0] * 3


def test_states_of_several_results_are_told_apart() -> None:
    def largest(x: Tensor) -> Tensor:
        values, places = x.max(1)
        return values + places

    assert_follows(largest, X, Rows(0))
    assert isinstance(state_of(lambda x: x.max(0).values, X), Mixed)
