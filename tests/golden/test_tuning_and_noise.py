"""Tuning and the Gaussian mechanism against stored values; sources are in the files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from discreet.accounting.accountant import account
from discreet.accounting.calibration.calibrate import solve
from discreet.accounting.calibration.unknowns import NoiseMultiplier
from discreet.accounting.costs import PoissonGaussian
from discreet.accounting.tuning import PoissonTrials, TruncatedNegativeBinomial, selection_epsilon
from discreet.ledger.events import Everything, GaussianSum, Poisson, Step
from discreet.units import Adjacency

HERE = Path(__file__).parent
NOISE: list[dict[str, float]] = json.loads((HERE / "gaussian_noise.json").read_text())["rows"]
TUNING: list[dict[str, Any]] = json.loads((HERE / "tuning.json").read_text())["rows"]
ONE_EPOCH = [(PoissonGaussian(0.005, 1.0), 200)]


@pytest.mark.parametrize("row", NOISE, ids=str)
def test_analytic_gaussian_noise(row: dict[str, float]) -> None:
    found = solve(
        NoiseMultiplier(Everything(), 1),
        epsilon=float(row["epsilon"]),
        delta=row["delta"],
        tolerance=1e-6,
    )
    assert found.value == pytest.approx(row["analytic"], rel=3e-6)
    assert found.value >= row["analytic"] * (1 - 1e-6)


def test_p40_the_classic_formula_under_noises_at_epsilon_ten() -> None:
    row = next(row for row in NOISE if row["epsilon"] == 10)
    step = Step(Everything(), [GaussianSum("sum", 1.0, row["classic"])])
    assert account([(step, 1)], delta=row["delta"], adjacency=Adjacency.ADD_OR_REMOVE).lower > 10.0


@pytest.mark.parametrize(
    "row",
    [row for row in TUNING if "RepeatAndSelect" in row["method"]],
    ids=lambda row: str(row["case"]),
)
def test_tuning(row: dict[str, Any]) -> None:
    known = row["parameters"]
    trials = (
        PoissonTrials(float(known["mu"]))
        if "mu" in known
        else TruncatedNegativeBinomial(known["shape"], known["gamma"])
    )
    found = selection_epsilon(ONE_EPOCH, trials, delta=row["delta"]).value
    assert row["epsilon"] * (1 - 2e-3) <= found <= row["epsilon"] * (1 + 1e-6)


def test_poisson_trials_with_the_tight_delta() -> None:
    stored = {row["method"]: row["epsilon"] for row in TUNING}
    step = Step(Poisson(0.005), [GaussianSum("sum", 1.0, 1.0)])

    def delta_of(epsilon: float) -> float:
        return account(
            [(step, 200)], epsilon=epsilon, adjacency=Adjacency.ADD_OR_REMOVE, tolerance=1e-3
        ).delta

    found = selection_epsilon(ONE_EPOCH, PoissonTrials(100.0, delta_of), delta=1e-6).value
    assert found == pytest.approx(stored["fine orders"], rel=1e-3)
    assert found < 2.63  # what the guide prints
