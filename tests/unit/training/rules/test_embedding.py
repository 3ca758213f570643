"""Tables: repeated rows are merged, padding counts nowhere."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  (as everywhere)
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor

from discreet.errors import ModelError
from discreet.training.engine import Engine
from support.written import KINDS, SIZES, Written, check, cubes, draw, few, places


@few
@given(SIZES, st.lists(SIZES, max_size=2), SIZES, st.sampled_from([None, 0, 2, -1]), KINDS)
def test_embedding(
    m: int, middle: list[int], width: int, padding: int | None, kind: torch.dtype
) -> None:
    """Few rows, so that most are repeated."""
    check(
        lambda s, ids: F.embedding(ids, s.w, padding),
        places(4, m, *middle),
        values={"w": draw(4, width, kind=kind)},
    )


@few
@example(
    3, 2, 1, "sum", None, True, torch.float32
)  # rows that cancel, where made-up numbers are symmetric
@given(
    SIZES,
    SIZES,
    SIZES,
    st.sampled_from(["sum", "mean"]),
    st.sampled_from([None, 1]),
    st.booleans(),
    KINDS,
)
def test_embedding_bag(
    m: int, t: int, width: int, mode: str, padding: int | None, own: bool, kind: torch.dtype
) -> None:
    def forward(s: Any, ids: Tensor, scale: Tensor) -> Tensor:
        weights = scale if own and mode == "sum" else None
        return F.embedding_bag(ids, s.w, mode=mode, padding_idx=padding, per_sample_weights=weights)

    check(forward, places(4, m, t), draw(m, t, kind=kind), values={"w": draw(4, width, kind=kind)})


def test_p25_max_norm_writes_into_the_table_and_is_refused() -> None:
    """It would rescale exactly the rows that occur among the records, without noise."""
    model = Written(lambda s, ids: F.embedding(ids, s.w, max_norm=0.5), {"w": draw(11, 3)})
    before = model.get_parameter("w").detach().clone()
    with pytest.raises(ModelError, match="embedding_renorm_"):
        list(Engine(model).passes(cubes, (places(11, 5, 4),), 5, 5))
    assert torch.equal(before, model.get_parameter("w"))
