"""Linear maps: torch's gradients of single records, for every shape and form."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  (as everywhere)
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from discreet.training.rules import linear
from support.written import FORMS, KINDS, SIZES, check, draw, few


@few
@given(SIZES, st.lists(SIZES, max_size=2), SIZES, SIZES, st.booleans(), KINDS, FORMS)
def test_linear(
    m: int, middle: list[int], p: int, q: int, bias: bool, kind: torch.dtype, form: str | None
) -> None:
    values = {"w": draw(q, p, kind=kind)} | ({"c": draw(q, kind=kind)} if bias else {})
    check(
        lambda s, x: F.linear(x, s.w, s.c if bias else None),
        draw(m, *middle, p, kind=kind),
        form=form,
        values=values,
    )


@few
@given(SIZES, st.lists(SIZES, max_size=2), SIZES, SIZES, KINDS, FORMS)
def test_matmul(
    m: int, middle: list[int], p: int, q: int, kind: torch.dtype, form: str | None
) -> None:
    check(
        lambda s, x: x @ s.w,
        draw(m, *middle, p, kind=kind),
        form=form,
        values={"w": draw(p, q, kind=kind)},
    )


@few
@given(SIZES, SIZES, SIZES, SIZES, KINDS, FORMS)
def test_addmm_of_rows_one_after_the_other(
    m: int, t: int, p: int, q: int, kind: torch.dtype, form: str | None
) -> None:
    def forward(s: Any, x: Tensor) -> Tensor:
        return torch.addmm(s.c, x.view(-1, x.shape[-1]), s.w).view(m_of(x), t, q)

    check(
        forward,
        draw(m, t, p, kind=kind),
        form=form,
        values={"w": draw(p, q, kind=kind), "c": draw(q, kind=kind)},
    )


def m_of(x: Tensor) -> int:
    return x.shape[0]


@few
@given(SIZES, SIZES, SIZES, SIZES, KINDS)
def test_bilinear(m: int, t: int, p: int, r: int, kind: torch.dtype) -> None:
    values = {"w": draw(2, p, r, kind=kind), "c": draw(2, kind=kind)}
    check(
        lambda s, x, y: F.bilinear(x, y, s.w, s.c),
        draw(m, t, p, kind=kind),
        draw(m, t, r, kind=kind),
        values=values,
    )


def test_a_weight_and_a_gradient_of_two_precisions() -> None:
    """Wrong: the shorter of the two counts, or their product fails."""
    a, b = linear._alike(draw(2, 1, 3).float(), draw(2, 1, 4))
    assert a.dtype == b.dtype == torch.float64
