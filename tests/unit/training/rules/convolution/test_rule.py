"""The rule of convolutions: arguments by place or name, records of several rows, and refusals."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  (as everywhere)

from discreet.training.engine import Engine
from discreet.training.rules.convolution.geometry import Convolution
from discreet.training.rules.convolution.rule import Convolved
from support.per_record import assert_factor
from support.written import Written, check, cubes, draw

VALUES = {"w": draw(4, 1, 3, 3), "c": draw(4)}


@pytest.mark.parametrize(
    "options", [{}, {"stride": (1, 2)}, {"padding": "same"}, {"padding": 1, "dilation": 2}]
)
def test_options_by_name(options: dict[str, Any]) -> None:
    """Wrong: an option that is not there is None, and not torch's default."""
    check(lambda s, x: F.conv2d(x, s.w, s.c, groups=2, **options), draw(3, 2, 5, 6), values=VALUES)


def test_a_transposed_convolution_takes_its_options_in_another_order() -> None:
    """Wrong: groups in the place of the output padding, as in a convolution."""
    check(
        lambda s, x: F.conv_transpose2d(x, s.w, None, 2, 1, 1, 2),
        draw(3, 4, 3, 3),
        values={"w": draw(4, 1, 3, 3)},
    )


@pytest.mark.parametrize("form", ["streamed", "folded", "unfolded"])
def test_rows_of_one_record_are_added_up_before_they_are_measured(form: str) -> None:
    """Wrong: the norms of copies are added up, or copies of another record are joined."""
    how = Convolution.of((2, 3, 3), padding=1)
    x, g = draw(6, 3, 5), draw(6, 2, 5)
    truth = how.unfolded(x, g).view(2, 3, 2, 3, 3).sum(1)
    joined = Convolved(how, x, g).joined(3).forms()[form]()
    assert_factor(joined, truth, 1e-10)
    assert_factor(Convolved(how, x, g).joined(1).joined(3), truth, 1e-10)


def test_a_record_that_is_left_out_is_left_out_with_all_of_its_copies() -> None:
    how, x, g = Convolution.of((2, 3, 3), padding=1), draw(6, 3, 5), draw(6, 2, 5)
    x[4] = torch.nan
    kept = Convolved(how, x, g).joined(3).keep(torch.tensor([True, False]))
    squares, _ = kept.measured()
    assert squares.isfinite().all()
    assert float(squares[1]) < 1e-30


def test_what_torch_refuses_is_an_error_of_torch() -> None:
    """The geometry is made of what torch has accepted, and checks nothing again."""
    engine = Engine(Written(lambda s, x: F.conv2d(x, s.w, padding="reflect"), VALUES))
    with pytest.raises((RuntimeError, ValueError), match="padding"):
        list(engine.passes(cubes, (draw(3, 1, 5, 6),), 3, 3))
