"""The rule for any function: one copy of every weight for each record."""

import pytest
import torch
from torch import Tensor

from discreet.training.engine import Engine
from discreet.training.rules.copies import changes_in_place
from support.written import Written, check, cubes, draw


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("add_", True),
        ("__iadd__", True),
        ("__setitem__", True),
        ("add", False),
        ("__add__", False),
        ("__getitem__", False),
        ("requires_grad_", False),
    ],
)
def test_which_functions_change_their_first_argument(name: str, changes: bool) -> None:
    assert changes_in_place(name) is changes


def test_weights_that_meet_records_and_each_other_in_one_function() -> None:
    """Wrong: one copy of a weight for all records, whose gradient is that of their sum."""
    check(
        lambda s, x: torch.einsum("bi,ij,jk->bk", x, s.w, s.v),
        draw(5, 3),
        values={"w": draw(3, 4), "v": draw(4, 2)},
    )


def test_a_function_of_several_results() -> None:
    def both(s: Written, x: Tensor) -> Tensor:
        first, second = torch.aminmax(x.unsqueeze(1) * 1.0, dim=1)
        largest = torch.max(torch.cdist(x.unsqueeze(1), s.get_parameter("w")), 2)[0]
        return first + second + largest

    check(both, draw(5, 3), values={"w": draw(4, 3)})


def test_the_number_of_records_among_the_arguments_is_noticed() -> None:
    """Wrong: each record gets as many rows as there are records, and the first of them is taken."""

    def tiled(s: Written, x: Tensor) -> Tensor:
        return (
            torch.tile(s.get_parameter("w") * x.mean(0, keepdim=True).detach() * 0.0 + 1.0, (1,))
            * x
        )

    engine = Engine(Written(tiled, {"w": draw(1, 3)}))
    list(engine.passes(cubes, (draw(5, 3),), 5, 5))
    assert engine.one_by_one is not None
