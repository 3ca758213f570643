"""Layers that normalise within a record: torch's gradients of single records."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812  (as everywhere)
from hypothesis import given
from hypothesis import strategies as st

from support.written import KINDS, SIZES, check, draw, few


@few
@given(
    SIZES,
    st.lists(SIZES, max_size=2),
    st.lists(st.sampled_from([2, 3, 5]), min_size=1, max_size=2),
    st.booleans(),
    KINDS,
)
def test_layer_norm(
    m: int, middle: list[int], shape: list[int], bias: bool, kind: torch.dtype
) -> None:
    values = {"w": draw(*shape, kind=kind)} | ({"c": draw(*shape, kind=kind)} if bias else {})
    check(
        lambda s, x: F.layer_norm(x, tuple(shape), s.w, s.c if bias else None, 0.1),
        draw(m, *middle, *shape, kind=kind),
        values=values,
    )


@few
@given(
    SIZES, st.lists(SIZES, max_size=2), st.sampled_from([1, 3]), st.sampled_from([None, 0.1]), KINDS
)
def test_rms_norm(
    m: int, middle: list[int], width: int, eps: float | None, kind: torch.dtype
) -> None:
    check(
        lambda s, x: F.rms_norm(x, (width,), s.w, eps),
        draw(m, *middle, width, kind=kind),
        values={"w": draw(width, kind=kind)},
    )


@few
@given(SIZES, st.sampled_from([1, 2, 6]), st.sampled_from([(3,), (2, 3)]), st.booleans(), KINDS)
def test_group_norm(
    m: int, groups: int, sizes: tuple[int, ...], bias: bool, kind: torch.dtype
) -> None:
    values = {"w": draw(6, kind=kind)} | ({"c": draw(6, kind=kind)} if bias else {})
    check(
        lambda s, x: F.group_norm(x, groups, s.w, s.c if bias else None, 0.1),
        draw(m, 6, *sizes, kind=kind),
        values=values,
    )


@few
@given(SIZES, st.sampled_from([(3,), (2, 3)]), KINDS)
def test_instance_norm(m: int, sizes: tuple[int, ...], kind: torch.dtype) -> None:
    values = {"w": draw(2, kind=kind), "c": draw(2, kind=kind)}
    check(
        lambda s, x: F.instance_norm(x, weight=s.w, bias=s.c, eps=0.1),
        draw(m, 2, *sizes, kind=kind),
        values=values,
    )


def test_batch_norm_with_fixed_statistics() -> None:
    """Wrong: dw without the statistics, as if x were normalised already."""
    mean, variance = draw(2), draw(2).abs() + 0.5
    check(
        lambda s, x: F.batch_norm(x, mean, variance, s.w, s.c),
        draw(5, 2, 3),
        values={"w": draw(2), "c": draw(2)},
    )
