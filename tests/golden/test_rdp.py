"""Rényi bounds against stored values; the source of each is in rdp.json."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from discreet.accounting import rdp
from discreet.accounting.costs import FixedSizeGaussian, Gaussian, PoissonGaussian
from discreet.accounting.rdp.sampled_gaussian import log_moment

STORED: dict[str, Any] = json.loads((Path(__file__).parent / "rdp.json").read_text())


@pytest.mark.parametrize("row", STORED["moments"], ids=str)
def test_moments_are_above_the_exact_value_and_hardly(row: dict[str, float]) -> None:
    exact = row["log_moment"]
    found = log_moment(
        row["p"], row["n"], probability=row["probability"], noise_multiplier=row["noise_multiplier"]
    )
    assert exact * (1 - 1e-15) <= found <= exact * (1 + 1e-10)


def test_epsilons_of_another_renyi_accountant_are_not_undercut_by_us_nor_we_by_them() -> None:
    for row in STORED["epsilons"]:
        found = rdp.epsilon([_cost(row)], delta=row["delta"]).value
        assert found <= row["renyi"] * (1 + 1e-7), row  # they search a fixed list of orders
        assert found >= row["renyi"] * 0.9 or not 0.5 < row["renyi"] < 30, (
            row
        )  # outside, their list is coarse or ends


def test_no_epsilon_is_below_a_certified_lower_bound() -> None:
    for row in STORED["lower"]:
        assert rdp.epsilon([_cost(row)], delta=row["delta"]).value >= row["lower"], row


def test_published_values() -> None:
    # The guide, footnote 19 and appendix C.1: 1.2 and 4.95.
    assert math.isclose(
        rdp.epsilon([(PoissonGaussian(0.005, 1.0), 200)], delta=1e-6).value, 1.2171534, rel_tol=1e-7
    )
    assert math.isclose(
        rdp.epsilon([(PoissonGaussian(0.005, 1.0), 20_000)], delta=1e-6).value,
        4.9518202,
        rel_tol=1e-7,
    )
    assert math.isclose(
        rdp.epsilon([(Gaussian(1.0), 1)], delta=1e-6).value, 5.2215344, rel_tol=1e-7
    )
    assert 0.08322 < rdp.composed([(PoissonGaussian(0.005, 1.0), 200)], 10.29) < 0.08323


@pytest.mark.parametrize(
    ("steps", "lower", "older"),
    [(200, 6.493349430995812, 10.725126244753529), (20_000, 33.621345, 66.9529)],
)
def test_fixed_size_is_between_a_certified_lower_bound_and_the_older_theorem(
    steps: int, lower: float, older: float
) -> None:
    found = rdp.epsilon([(FixedSizeGaussian(5_000, 1_000_000, 1.0), steps)], delta=1e-6).value
    assert lower < found < 0.8 * older


def _cost(row: dict[str, Any]) -> tuple[PoissonGaussian, int]:
    return PoissonGaussian(row["probability"], row["noise_multiplier"]), int(row["steps"])
