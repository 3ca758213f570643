"""Recipes: every number is certified, and the curve says where it flattens."""

import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import discreet as dp
from discreet.mechanisms import (
    AdaptiveClip,
    Gaussian,
    Groups,
    Joint,
    Microbatches,
    Normalised,
    NotPrivate,
    Split,
)
from discreet.plan import default_delta
from discreet.plan.calibrated import epoch_steps
from discreet.recipes import noise_curve, plan_at_average_noise, plan_with_scaled_noise
from discreet.sampling import Sampler
from support.source import ROOT


@pytest.mark.parametrize("held", [{"steps": 2_000}, {"epochs": 20}])
def test_every_row_is_certified_at_its_own_numbers(held: dict[str, Any]) -> None:
    curve = noise_curve(records=60_000, epsilon=3.0, delta=1e-5, batches=[4096, 64, 512], **held)
    assert [row.expected_batch_size for row in curve.rows] == [64, 512, 4096]
    for row in curve.rows:
        assert row.steps == held.get("steps", epoch_steps(20, row.expected_batch_size, 60_000))
        assert row.average_noise == row.noise_multiplier / row.expected_batch_size
        made = dp.Plan.dpsgd(
            records=60_000,
            expected_batch_size=row.expected_batch_size,
            steps=row.steps,
            noise_multiplier=row.noise_multiplier,
        )
        assert 0.99 * 3.0 <= dp.account(made, delta=1e-5).upper <= 3.0
        assert row.guarantee.upper <= 3.0


def test_with_steps_fixed_the_noise_on_the_average_falls_and_then_stops() -> None:
    curve = noise_curve(records=60_000, epsilon=3.0, steps=2_000)
    noise = {row.expected_batch_size: row.average_noise for row in curve.rows}
    assert noise[58] / noise[117] > 1.8
    assert noise[30_000] / noise[60_000] < 1.01
    assert list(noise.values()) == sorted(noise.values(), reverse=True)
    limit = curve.rows[-1].average_noise
    knee = 60_000 * math.sqrt(3.0 / 2_000)  # the guide's rule: nothing to gain beyond it
    assert curve.flattens_at is not None
    assert knee / 8 < curve.flattens_at < knee
    assert noise[3_750] < 1.05 * limit < noise[curve.flattens_at]
    assert "flattens near 468" in str(curve)


def test_with_epochs_fixed_it_goes_on_falling_with_the_root() -> None:
    curve = noise_curve(records=60_000, epsilon=3.0, epochs=20)
    *_, half, full = curve.rows
    assert half.average_noise / full.average_noise == pytest.approx(math.sqrt(2), rel=0.1)
    assert curve.flattens_at is not None


def test_a_curve_that_does_not_reach_the_knee_says_so() -> None:
    curve = noise_curve(records=10**6, epsilon=1.0, steps=100, batches=[10, 20])
    assert curve.flattens_at is None
    assert "beyond the last row" in str(curve)


@pytest.mark.parametrize("held", [{"steps": 2_000}, {"epochs": 20}])
def test_the_smallest_batch_for_a_noise_on_the_average(held: dict[str, Any]) -> None:
    arguments: dict[str, Any] = {
        "records": 60_000,
        "average_noise": 0.0008,
        "clip_norm": 0.4,
        "epsilon": 3.0,
    } | held
    made = plan_at_average_noise(**arguments)
    batch = round(made.expected_batch_size)
    (query,) = made.step.queries
    assert isinstance(query, dp.ledger.GaussianSum)
    assert query.sensitivity == 0.4
    assert query.noise_std / batch == pytest.approx(0.0008, rel=1e-12)
    assert made.steps == held.get("steps", epoch_steps(20, batch, 60_000))
    assert made.target is not None
    assert dp.account(made, delta=made.target.delta).upper <= 3.0
    assert made.target.delta == default_delta(60_000)
    less = (
        batch * 0.98
    )  # a smaller batch at the same noise on the average costs more than the target
    smaller = dp.Plan.dpsgd(
        records=60_000, expected_batch_size=less, noise_multiplier=less * 0.0008 / 0.4, **held
    )
    assert dp.account(smaller, delta=made.target.delta).upper > 3.0


def test_the_curve_and_the_plan_agree() -> None:
    row = noise_curve(records=60_000, epsilon=3.0, steps=2_000, batches=[400]).rows[0]
    made = plan_at_average_noise(
        records=60_000, average_noise=row.average_noise, epsilon=3.0, steps=2_000
    )
    assert made.expected_batch_size == pytest.approx(400, rel=0.01)


def test_a_noise_that_no_batch_makes_private_names_the_floor() -> None:
    for held in ({"steps": 100}, {"epochs": 20}):
        with pytest.raises(dp.errors.AccountingError, match="floor"):
            plan_at_average_noise(records=1_000, average_noise=1e-6, epsilon=1.0, **held)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"records": 0}, "records"),
        ({"records": "1"}, "records"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"delta": 1.0}, "delta"),
        ({"steps": None}, "steps"),
        ({"epochs": 3}, "steps"),
        ({"steps": 0}, "steps"),
        ({"steps": None, "epochs": -1.0}, "epochs"),
    ],
)
def test_p45_bad_arguments_are_named(change: dict[str, Any], name: str) -> None:
    for recipe, more in ((noise_curve, {}), (plan_at_average_noise, {"average_noise": 0.1})):
        good: dict[str, Any] = {"records": 100, "epsilon": 1.0, "steps": 5} | more
        with pytest.raises(dp.errors.ParameterError) as refused:
            recipe(**good | change)
        assert refused.value.name == name


@pytest.mark.parametrize("batches", [[], [0], [101], [1.5], ["9"]])
def test_p45_bad_batches_are_named(batches: Any) -> None:
    with pytest.raises(dp.errors.ParameterError) as refused:
        noise_curve(records=100, epsilon=1.0, steps=5, batches=batches)
    assert refused.value.name == "batches"


@pytest.mark.parametrize("name", ["average_noise", "clip_norm"])
def test_p45_bad_scales_are_named(name: str) -> None:
    good: dict[str, Any] = {
        "records": 100,
        "average_noise": 0.1,
        "epsilon": 1.0,
        "steps": 5,
        "clip_norm": 1.0,
    }
    with pytest.raises(dp.errors.ParameterError) as refused:
        plan_at_average_noise(**good | {name: -1.0})
    assert refused.value.name == name


LEAVES = {"a": 10, "b": 2, "c": 5, "d": 1, "e": 1}
EVERY = Groups(
    {
        "a": Split(1.0, 3.0, clip="by dimension"),
        "b": AdaptiveClip(Gaussian(0.5, 2.0), quantile=0.5, count_noise_std=20.0),
        "c": Microbatches(Gaussian(1.0, 4.0), slots=4),
        "d": Joint(1.0, 5.0, {"d": 3.0}),
        "e": Normalised(1.0, 30.0),
    }
)


@pytest.mark.parametrize("sampling", [dp.Poisson(0.02), dp.FixedSize(20, 1_000), dp.Everything()])
def test_the_noise_of_all_groups_is_scaled_by_one_factor(sampling: Any) -> None:
    sampler, adjacency = Sampler(sampling, records=1_000, steps=20), dp.Adjacency.ZERO_OUT
    before = dp.Plan(sampler=sampler, mechanism=EVERY, leaves=LEAVES, adjacency=adjacency)
    for epsilon in (0.5, 8.0):
        after = plan_with_scaled_noise(before, epsilon=epsilon, delta=1e-5)
        assert 0.99 * epsilon <= dp.account(after, delta=1e-5).upper <= epsilon
        factors = [
            new.noise_std / old.noise_std
            for new, old in zip(after.queries(), before.queries(), strict=True)
        ]
        assert factors == pytest.approx([factors[0]] * len(factors), rel=1e-12)
        assert [query.sensitivity for query in after.queries()] == [
            query.sensitivity for query in before.queries()
        ]
        assert (after.sampler, after.leaves, after.unit) == (
            before.sampler,
            before.leaves,
            before.unit,
        )


def test_noise_on_the_others_does_not_make_an_open_group_private() -> None:
    open_plan = dp.Plan(
        sampler=Sampler(dp.Poisson(0.1), records=100, steps=5),
        mechanism=Groups({"a": Gaussian(1.0, 1.0), "b": NotPrivate()}),
    )
    with pytest.raises(dp.errors.AccountingError, match="b without noise"):
        plan_with_scaled_noise(open_plan, epsilon=100.0, delta=1e-5)


@pytest.mark.parametrize(
    ("change", "name"),
    [({"epsilon": 0.0}, "epsilon"), ({"delta": 0.0}, "delta"), ({"plan": 3}, "plan")],
)
def test_p45_bad_arguments_of_scaling_are_named(change: dict[str, Any], name: str) -> None:
    made = dp.Plan.dpsgd(sampling_probability=0.1, steps=5, noise_multiplier=1.0)
    good: dict[str, Any] = {"plan": made, "epsilon": 1.0, "delta": 1e-5}
    with pytest.raises(dp.errors.ParameterError) as refused:
        plan_with_scaled_noise(**good | change)
    assert refused.value.name == name


def test_the_example_runs_and_draws(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-W",
        "error",
        str(ROOT / "examples" / "choosing_batch_size.py"),
        "--records",
        "2000",
    ]
    environment = os.environ | {"MPLCONFIGDIR": str(tmp_path / "matplotlib")}
    result = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert "differentially private for one example" in result.stdout
    assert (tmp_path / "out" / "choosing_batch_size.png").stat().st_size > 10_000


def test_the_table_of_the_tutorial_is_true() -> None:
    page = (ROOT / "docs" / "tutorials" / "choosing-parameters.md").read_text()
    curve = noise_curve(
        records=60_000, epsilon=3.0, delta=1e-6, steps=2_000, batches=[58, 468, 3_750, 60_000]
    )
    for row in curve.rows:
        size = f"{row.expected_batch_size:,}"
        (line,) = [line for line in page.splitlines() if line.startswith(f"| {size} ")]
        _, _, multiplier, average, _ = (cell.strip() for cell in line.split("|"))
        assert float(multiplier) == pytest.approx(row.noise_multiplier, rel=2e-3)
        assert float(average) == pytest.approx(row.average_noise, rel=2e-2)
