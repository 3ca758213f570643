"""Tight brackets against stored values; the source of each is in tight.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from discreet.accounting.costs import Gaussian, PoissonGaussian
from discreet.accounting.tight import tight_delta, tight_epsilon

STORED: dict[str, Any] = json.loads((Path(__file__).parent / "tight.json").read_text())


def _poisson(
    row: dict[str, Any], *, replace: bool = False
) -> tuple[tuple[PoissonGaussian, int], ...]:
    return ((PoissonGaussian(row["probability"], row["noise_multiplier"], replace), row["count"]),)


@pytest.mark.parametrize("row", STORED["oracles"], ids=str)
def test_twelve_oracles_to_eight_digits(row: dict[str, Any]) -> None:
    found = tight_epsilon(_poisson(row), row["delta"])
    assert found.lower <= row["epsilon"] <= found.upper
    assert found.estimate == pytest.approx(row["epsilon"], rel=5e-9)
    assert found.upper - found.lower <= 1e-3 * found.upper


@pytest.mark.parametrize(
    "row",
    STORED["poisson"],
    ids=lambda row: f"{row['probability']},{row['noise_multiplier']},{row['count']}",
)
def test_every_stored_poisson_value_is_bracketed(row: dict[str, Any]) -> None:
    found = tight_epsilon(_poisson(row), row["delta"])
    if row["estimate"] is not None:
        rounding = 1e-8 * row["estimate"]  # the stored digits
        assert found.lower - rounding <= row["estimate"] <= found.upper + rounding
    low, high = row["bracket"]
    if high is not None:
        assert found.lower <= high * (1 + 1e-5)
    assert found.upper >= low * (1 - 1e-5)


def test_most_stored_poisson_brackets_are_narrow() -> None:
    widths = []
    for row in STORED["poisson"]:
        found = tight_epsilon(_poisson(row), row["delta"])
        if 0.0 < found.upper < 900.0:
            widths.append((found.upper - found.lower) / found.upper)
    assert sum(width > 1e-3 for width in widths) <= 0.01 * len(widths)


def test_p36_small_delta_is_not_below_the_truth() -> None:
    # A pessimistic PLD with an untilted transform reports 33.72 here; the truth is 35.3465.
    found = tight_epsilon(((PoissonGaussian(1e-3, 0.6), 10**6),), 1e-12)
    assert found.lower > 35.3
    assert found.upper >= 35.3464988


@pytest.mark.parametrize("row", STORED["gaussian"], ids=str)
def test_gaussians_without_sampling(row: dict[str, Any]) -> None:
    found = tight_epsilon(((Gaussian(row["noise_multiplier"]), row["count"]),), row["delta"])
    assert found.estimate == pytest.approx(row["epsilon"], abs=1e-6)
    assert 0.0 <= found.upper - found.lower <= 1e-9 * found.upper


@pytest.mark.parametrize("row", STORED["replace_one"], ids=str)
def test_p35_poisson_under_replace_one(row: dict[str, Any]) -> None:
    found = tight_epsilon(_poisson(row, replace=True), row["delta"])
    assert found.lower <= row["upper"]
    assert found.estimate == pytest.approx(
        row["upper"], rel=3e-4
    )  # the stored value is a pessimistic one


@pytest.mark.parametrize("row", STORED["one_step"], ids=str)
def test_one_step_delta(row: dict[str, Any]) -> None:
    found = tight_delta(((PoissonGaussian(row["q"], row["z"]), 1),), row["q"] * row["eps"])
    assert found.estimate == pytest.approx(row["delta"], rel=1e-6)
    assert found.upper - found.lower <= 1e-9 * found.upper
