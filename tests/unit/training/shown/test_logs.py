"""What a run shows: released values, a bound on epsilon that is never too small,
and nothing raw.
"""

import csv
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import discreet as dp
from discreet.training import CsvLog, Logged, PrivateRun, TensorBoardLog

RECORDS, STEPS, DELTA = 20, 12, 1e-4
DATA = TensorDataset(torch.ones(RECORDS, 2))
GROUPS: dict[str, Any] = {
    "grad/*": dp.AdaptiveClip(dp.Gaussian(1.0, 4.0), quantile=0.5, count_noise_std=5.0),
    "metric/seen": dp.Gaussian(1.0, 8.0),
}


def loss(model: nn.Module, batch: Any) -> tuple[Tensor, dict[str, Tensor]]:
    out: Tensor = model(batch[0]).squeeze(1)
    return out, {"metric/seen": torch.ones(len(out), 1)}


def plan(groups: Any = None, *, steps: int = STEPS) -> dp.Plan:
    sampler = dp.Sampler(dp.Poisson(0.5), records=RECORDS, steps=steps)
    return dp.Plan(sampler=sampler, mechanism=dp.Groups(groups or GROUPS))


def train(
    ledger: Any, its: dp.Plan | None = None, *, show: bool = False, **options: Any
) -> list[dp.aggregation.Release]:
    run = PrivateRun(
        nn.Linear(2, 1), its or plan(), ledger=ledger, statistics={"metric/seen": 1}, **options
    )
    return [run.backward(loss, batch) for batch in run.batches(DATA, progress=show)]


def test_p42_a_log_sees_what_was_released_and_nothing_else() -> None:
    seen: list[Logged] = []
    released = train(dp.Ledger.in_memory(), logs=[seen.append])
    assert [logged.step for logged in seen] == list(range(1, STEPS + 1))
    for logged, release in zip(seen, released, strict=True):
        assert set(logged.means) == {"metric/seen"}
        assert np.array_equal(logged.means["metric/seen"], release.mean("metric/seen"))
        assert logged.noise_std["metric/seen"] == 8.0 / 10.0
        assert set(logged.clip_norms) == {"grad/*"}
    values = [float(logged.means["metric/seen"][0]) for logged in seen]
    assert len(set(values)) == STEPS  # noise on each: without it, multiples of a tenth
    assert all(
        not math.isclose(10.0 * value, round(10.0 * value), abs_tol=1e-5) for value in values
    )


def test_p42_raw_values_are_logged_only_where_the_plan_names_them_without_a_guarantee() -> None:
    seen: list[Logged] = []
    ledger = dp.Ledger.in_memory()
    train(ledger, plan(GROUPS | {"metric/seen": dp.NotPrivate()}), logs=[seen.append])
    values = [10.0 * float(logged.means["metric/seen"][0]) for logged in seen]
    assert all(math.isclose(value, round(value), abs_tol=1e-5) for value in values)
    assert all(logged.epsilon is None for logged in seen)
    assert ledger.marks() == ("unsafe_no_privacy",)


def test_epsilon_in_logs_is_never_below_the_truth_and_ends_at_it() -> None:
    seen: list[Logged] = []
    its = plan()
    ledger = dp.Ledger.in_memory(
        budget=dp.Budget(plans=dp.Programme({"first": its, "second": its}))
    )
    train(ledger)  # an earlier run on the same data counts
    train(ledger, its, logs=[seen.append])
    bounds = [logged.epsilon for logged in seen]
    delta = 1e-3  # a tenth of 1/records, rounded down to a power of ten
    adjacency = its.adjacency
    for step, bound in enumerate(bounds, 1):
        truth = dp.account([(its.step, STEPS + step)], delta=delta, adjacency=adjacency)
        assert bound is not None
        assert truth.lower <= bound
    assert bounds == sorted(bounds, key=lambda bound: bound or 0.0)
    assert bounds[-1] == pytest.approx(dp.account(ledger, delta=delta).upper, rel=1e-3)


def test_csv_goes_on_in_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    for _ in range(2):
        train(dp.Ledger.in_memory(), logs=[CsvLog(path)])
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * STEPS
    assert list(rows[0]) == ["step", "batch", "epsilon", "metric/seen", "clip_norm/grad/*"]
    assert all(float(row["epsilon"]) > 0.0 for row in rows)
    path.write_text("something,else\n1,2\n")
    with pytest.raises(dp.errors.ParameterError, match="with the columns"):
        train(dp.Ledger.in_memory(), logs=[CsvLog(path)])
    assert path.read_text() == "something,else\n1,2\n"


def test_tensorboard_gets_every_number() -> None:
    class Writer:
        def __init__(self) -> None:
            self.seen: list[tuple[str, float, int]] = []

        def add_scalar(
            self, tag: str, scalar_value: float, global_step: int, walltime: float
        ) -> None:
            assert walltime == global_step  # no clock: how long a step took is not released
            self.seen.append((tag, scalar_value, global_step))

    writer = Writer()
    train(dp.Ledger.in_memory(), logs=[TensorBoardLog(writer)])
    assert {tag for tag, _, _ in writer.seen} == {"epsilon", "metric/seen", "clip_norm/grad/*"}
    assert len(writer.seen) == 3 * STEPS
    with pytest.raises(dp.errors.ParameterError, match="add_scalar"):
        TensorBoardLog("runs")  # type: ignore[arg-type]
    with pytest.raises(dp.errors.ParameterError, match="functions of what was released"):
        train(dp.Ledger.in_memory(), logs=["metrics.csv"])


def test_longer_statistics_have_a_number_for_each_coordinate() -> None:
    logged = Logged(1, 0, {"count": np.array([1.0, 2.0])}, {"count": 0.1}, {}, 0.5)
    assert logged.scalars() == {"epsilon": 0.5, "count/0": 1.0, "count/1": 2.0}


def test_a_csv_that_cannot_be_one_is_refused_before_the_run(tmp_path: Path) -> None:
    for content in (b"something,else\n", b"\xff\xfe\x00", b'"' + b"x" * 200_000):
        path = tmp_path / "metrics.csv"
        path.write_bytes(content)
        with pytest.raises(dp.errors.ParameterError, match="CsvLog"):
            CsvLog(path)
        assert path.read_bytes() == content
    with pytest.raises(dp.errors.ParameterError, match="CSV file"):
        CsvLog(tmp_path)
    with pytest.raises(dp.errors.ParameterError, match="no such folder"):
        CsvLog(tmp_path / "none" / "metrics.csv")
