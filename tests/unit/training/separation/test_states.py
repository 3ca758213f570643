"""States of tensors: what they say, and that one reason is one object."""

from __future__ import annotations

import pytest

from discreet.training.separation.states import (
    FILLED,
    NOISE,
    OWN,
    PUBLIC,
    Mixed,
    Rows,
    State,
    is_public,
)


@pytest.mark.parametrize(
    ("state", "public"),
    [
        (PUBLIC, True),
        (NOISE, True),
        (FILLED, True),
        (OWN, False),
        (Rows(0), False),
        (Mixed.of("a sum"), False),
    ],
)
def test_what_depends_on_no_record_is_public(state: State, public: bool) -> None:
    assert is_public(state) is public


def test_one_reason_is_one_object() -> None:
    """Contents are compared by identity, in keys of remembered effects."""
    assert Mixed.of("a sum") is Mixed.of("a sum")
    assert Mixed.of("a sum") is not Mixed.of("a sum", kept=True)
    assert Mixed.of("a sum", kept=True).kept
    assert repr(Mixed.of("a sum")) == "Mixed('a sum')"
    assert repr(OWN) == "OWN"


def test_folded_records_are_told_from_clear_ones() -> None:
    assert Rows(1).clear
    folded = Rows(0, inner=3, outer=2)
    assert (folded.fold, folded.clear) == (6, False)
    assert folded.at(2) == Rows(2, 3, 2)
    assert folded.at(0) is folded
    assert Rows(0) != Rows(0, 2)
