"""Every sampling policy through `account`, against stored values; the source of each is in
sampling_policies.json.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from discreet.accounting.accountant import account
from discreet.accounting.costs import PoissonGaussian
from discreet.accounting.tight.analyses.groups import group_epsilon
from discreet.accounting.tight.analyses.shuffled import shuffled_lower
from discreet.ledger.events import (
    BallsInBins,
    FixedSize,
    GaussianSum,
    Sampling,
    Shuffled,
    Step,
    TruncatedPoisson,
)
from discreet.units import Adjacency, Guarantee

STORED: dict[str, Any] = json.loads((Path(__file__).parent / "sampling_policies.json").read_text())


def _account(
    sampling: Sampling,
    row: dict[str, Any],
    steps: int,
    adjacency: Adjacency,
    *,
    epsilon: float | None = None,
) -> Guarantee:
    step = Step(sampling, [GaussianSum("sum", 1.0, row["noise_multiplier"])])
    if epsilon is not None:
        return account([(step, steps)], epsilon=epsilon, adjacency=adjacency)
    return account([(step, steps)], delta=row["delta"], adjacency=adjacency)


@pytest.mark.parametrize("row", STORED["truncated"], ids=str)
def test_truncated_poisson_is_never_looser_than_the_library(row: dict[str, Any]) -> None:
    sampling = TruncatedPoisson(row["probability"], row["limit"], row["records"])
    found = _account(sampling, row, row["steps"], Adjacency.ADD_OR_REMOVE)
    assert 0.8 * row["upper"] <= found.upper <= row["upper"] * (1 + 1e-3)
    assert found.lower == 0.0


@pytest.mark.parametrize("row", STORED["fixed_size"], ids=str)
def test_fixed_size_lies_between_two_data_sets_and_the_renyi_bound(row: dict[str, Any]) -> None:
    found = _account(
        FixedSize(row["size"], row["records"]), row, row["steps"], Adjacency.REPLACE_ONE
    )
    assert row["lower"] <= found.upper <= row["upper"]


@pytest.mark.parametrize("row", STORED["shuffled"], ids=str)
def test_shuffled_lies_between_the_published_lower_bound_and_no_amplification(
    row: dict[str, Any],
) -> None:
    found = _account(Shuffled(row["batches"]), row, 1, Adjacency.ZERO_OUT)
    lower = shuffled_lower(
        batches=row["batches"],
        noise_multiplier=row["noise_multiplier"],
        epochs=1,
        delta=row["delta"],
    )
    assert row["lower"] * (1 - 2e-5) <= lower <= found.upper
    assert abs(found.upper - row["upper"]) <= 2e-6 * row["upper"]
    assert row["poisson"] < lower


@pytest.mark.parametrize("row", STORED["groups"], ids=str)
def test_groups(row: dict[str, Any]) -> None:
    cost = PoissonGaussian(row["probability"], row["noise_multiplier"])
    found = group_epsilon([(cost, row["steps"])], size=row["size"], delta=row["delta"])
    assert found.lower <= row["upper"]
    assert found.upper <= row["upper"] * (1 + 1e-3)


@pytest.mark.parametrize("row", STORED["balls_in_bins"], ids=str)
def test_balls_in_bins(row: dict[str, Any]) -> None:
    found = _account(
        BallsInBins(row["batches"]), row, 1, Adjacency.ADD_OR_REMOVE, epsilon=row["epsilon"]
    )
    assert 0.98 * row["delta"] <= found.delta <= 1.02 * row["delta"]
    assert found.delta < row["poisson"]
