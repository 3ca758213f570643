"""The rules' numbers are held against torch's own gradients, once, before they are trusted."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from discreet.training.engine import Engine
from discreet.training.factors.factors import Dense
from discreet.training.passes.contributions import Contributions, Piece
from discreet.training.passes.oracle import agree, tolerance_of
from support.tally import Tally

TRUTH = {"a": torch.tensor([3.0, 4.0], dtype=torch.float64)}


def given(values: list[float]) -> Contributions:
    return Contributions(
        {"a": (Piece(((2,), (1,), 0), Dense(torch.tensor([values], dtype=torch.float64))),)}, 1, 1
    )


def test_norms_and_sums_and_the_clipped_record_are_compared() -> None:
    assert agree(given([3.0, 4.0]), 0, TRUTH, 1e-8)
    assert not agree(given([3.0, 4.1]), 0, TRUTH, 1e-8)
    assert not agree(Contributions({}, 1, 1), 0, TRUTH, 1e-8)


def test_a_record_without_a_norm_must_be_seen_to_have_none() -> None:
    broken = {"a": torch.tensor([torch.nan, 1.0])}
    assert not agree(given([3.0, 4.0]), 0, broken, 1e-8)
    assert agree(given([torch.inf, 4.0]), 0, broken, 1e-8)


def test_the_tolerance_is_that_of_the_shortest_kind() -> None:
    double, single, half = (
        torch.zeros(1, dtype=kind) for kind in (torch.float64, torch.float32, torch.bfloat16)
    )
    assert tolerance_of([double]) < tolerance_of([double, single]) < tolerance_of([single, half])


@pytest.mark.parametrize("random", [False, True])
def test_two_rows_of_a_trial_are_compared_unless_the_pass_draws_random_numbers(
    random: bool,
) -> None:
    sizes = Tally()

    def loss(model: Any, x: Tensor) -> Tensor:
        sizes.append(len(x))
        losses: Tensor = model(x + torch.randn_like(x) if random else x).square().sum(1)
        return losses

    list(Engine(nn.Linear(3, 2)).passes(loss, torch.randn(9, 3), 9, 9))
    assert sizes.entries == ([7, 9] if random else [7, 1, 1, 9])


def test_dropout_does_not_hinder_the_comparison() -> None:
    sizes = Tally()

    def loss(model: Any, x: Tensor) -> Tensor:
        sizes.append(len(x))
        losses: Tensor = model(x).square().sum(1)
        return losses

    model = nn.Sequential(nn.Dropout(0.5), nn.Linear(3, 2))
    engine = Engine(model)
    list(engine.passes(loss, torch.randn(9, 3), 9, 9))
    assert sizes.entries == [7, 1, 1, 9]
    assert engine.one_by_one is None
