"""What a run shows: released values, a bound on epsilon that is never too small, and nothing raw."""

import csv
import io
import math
import os
import pty
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import discreet as dp
from discreet.randomness import Source
from discreet.training import CsvLog, Logged, PrivateRun, TensorBoardLog
from discreet.training.shown import progress
from discreet.training.shown.progress import Meter

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


def test_p42_raw_values_are_logged_only_where_the_plan_names_them_and_then_there_is_no_guarantee() -> (
    None
):
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


def test_the_bar_shows_steps_epsilon_and_private_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    text = io.StringIO()
    console = Console(file=text, force_terminal=True, width=140)
    monkeypatch.setattr(progress, "Console", lambda stderr: console)
    its = dp.Plan.dpsgd(
        records=RECORDS, expected_batch_size=10, steps=STEPS, epsilon=3.0, delta=DELTA
    )
    run = PrivateRun(nn.Linear(2, 1), its, ledger=dp.Ledger.in_memory())
    for batch in run.batches(DATA, progress=True):
        run.backward(lambda model, data: loss(model, data)[0], batch)
    shown = text.getvalue()
    assert f"{STEPS}/{STEPS}" in shown
    assert "at the end, target 3)" in shown  # which nothing enforces
    assert "/s" in shown
    text.truncate(0)
    train(dp.Ledger.in_memory(), show=True)
    assert "metric/seen" in text.getvalue()


def test_no_bar_without_a_terminal(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Lines:
        """What a user puts in the place of a standard stream."""

        def write(self, _: str) -> None: ...

    monkeypatch.setattr(sys, "stdout", Lines())
    run = PrivateRun(
        nn.Linear(2, 1), plan(), ledger=dp.Ledger.in_memory(), statistics={"metric/seen": 1}
    )
    for batch in run.batches(DATA):
        run.backward(loss, batch)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("why", ["filter", "odometer", "marked"])
def test_where_no_running_bound_is_valid_none_is_shown(why: str) -> None:
    budgets: dict[str, Any] = {
        "filter": dp.Filter(epsilon=20.0, delta=DELTA),
        "odometer": dp.Odometer(delta=DELTA),
    }
    its = plan().for_leaves({"grad/x": 1, "metric/seen": 1})
    ledger = dp.Ledger.in_memory(budget=budgets.get(why))
    run = ledger.begin(its.run_info(), [(its.step, STEPS)])
    if why == "marked":
        assert Meter(ledger, its, delta=DELTA, steps=STEPS).at_end is not None
        run.mark("unsafe_something")
    meter = Meter(ledger, its, delta=DELTA, steps=STEPS)
    assert meter.at_end is None
    assert meter.after(3) is None


@pytest.mark.parametrize(
    "budget",
    [dp.Filter(epsilon=20.0, delta=DELTA), dp.Odometer(delta=DELTA)],
    ids=["filter", "odometer"],
)
def test_a_run_whose_steps_may_be_chosen_shows_no_epsilon_on_its_way(
    budget: dp.Filter | dp.Odometer,
) -> None:
    seen: list[Logged] = []
    train(
        dp.Ledger.in_memory(budget=budget),
        logs=[seen.append],
        parameters=dp.units.Parameters.CHOSEN_FROM_OUTPUTS,
    )
    assert [logged.epsilon for logged in seen] == [None] * STEPS


def test_the_bound_at_the_end_is_that_of_the_whole_list_though_less_is_charged() -> None:
    its = plan().for_leaves({"grad/x": 1, "metric/seen": 1})
    ledger = dp.Ledger.in_memory(
        budget=dp.Budget(plans=dp.Programme({"first": its, "second": its}))
    )
    ledger.begin(its.run_info(), [(its.step, STEPS)])
    meter = Meter(ledger, its, delta=DELTA, steps=STEPS)
    whole = dp.account([(its.step, 2 * STEPS)], delta=DELTA, adjacency=its.adjacency)
    assert meter.at_end is not None
    assert meter.at_end == pytest.approx(whole.upper, rel=1e-3)
    assert meter.at_end >= whole.lower


def test_the_guarantee_is_that_of_the_ledger() -> None:
    ledger = dp.Ledger.in_memory()
    run = PrivateRun(nn.Linear(2, 1), plan(), ledger=ledger, statistics={"metric/seen": 1})
    with pytest.raises(dp.errors.AccountingError):
        run.guarantee()
    for batch in run.batches(DATA):
        run.backward(loss, batch)
    assert run.guarantee() == dp.account(ledger, delta=1e-3)
    assert run.guarantee(1e-6) == dp.account(ledger, delta=1e-6)


def test_the_guarantee_is_of_all_runs_of_the_ledger() -> None:
    its = plan().for_leaves({"grad/weight": 2, "grad/bias": 1, "metric/seen": 1})
    ledger = dp.Ledger.in_memory(budget=dp.Odometer(delta=1e-3))
    run = PrivateRun(nn.Linear(2, 1), its, ledger=ledger, statistics={"metric/seen": 1})
    for batch in run.batches(DATA):
        run.backward(loss, batch)
    alone = run.guarantee()
    assert alone == dp.account(ledger)
    train(ledger)
    assert run.guarantee() == dp.account(ledger)
    assert run.guarantee().upper > alone.upper
    assert (run.guarantee().if_fixed or 0.0) > dp.account(its, delta=1e-3).upper


def test_a_ledger_by_path_is_closed_with_the_run_and_a_budget_holds(tmp_path: Path) -> None:
    budget = dp.Budget(epsilon=1.0, delta=DELTA)
    path = tmp_path / "a.ledger"
    shown: list[float | None] = []
    logs = [lambda logged: shown.append(logged.epsilon)]
    with PrivateRun(
        nn.Linear(2, 1),
        plan(),
        ledger=path,
        budget=budget,
        statistics={"metric/seen": 1},
        logs=logs,
    ) as run:
        with pytest.raises(dp.errors.BudgetExceeded, match=r"of which \d+ fit"):
            run.batches(DATA)
        assert run.ledger.runs() == ()
        batches = run.batches(DATA, until_budget=True)
        taken = [run.backward(loss, batch).step for batch in batches]
        assert 0 < len(taken) < STEPS
        assert (
            run.guarantee().upper <= max(epsilon for epsilon in shown if epsilon is not None) <= 1.0
        )
        assert run.guarantee().upper <= 1.0
        one_more = dp.account(
            [(run.plan.step, len(taken) + 1)], delta=DELTA, adjacency=run.plan.adjacency
        )
        assert one_more.upper > 1.0
    with pytest.raises(dp.errors.LedgerMisuse, match="an open ledger"):
        run.ledger.charges()
    with (
        dp.Ledger.open(path) as ledger,
        pytest.raises(dp.errors.ParameterError, match="given with the path"),
    ):
        PrivateRun(
            nn.Linear(2, 1), plan(), ledger=ledger, budget=budget, statistics={"metric/seen": 1}
        )


def test_under_a_filter_the_guarantee_is_the_budget(tmp_path: Path) -> None:
    budget = dp.Filter(epsilon=20.0, delta=DELTA)
    chosen = dp.units.Parameters.CHOSEN_FROM_OUTPUTS
    with PrivateRun(
        nn.Linear(2, 1),
        plan(),
        ledger=tmp_path / "a",
        budget=budget,
        statistics={"metric/seen": 1},
        parameters=chosen,
    ) as run:
        for batch in run.batches(DATA, until_budget=True):
            run.backward(loss, batch)
            break  # because of what was seen
        assert run.guarantee().upper == 20.0


def test_no_epsilon_is_shown_for_a_run_with_a_test_key() -> None:
    """Its noise can be subtracted."""
    seen: list[Logged] = []
    train(dp.Ledger.in_memory(), logs=[seen.append], source=Source.unsafe_test_key(bytes(32)))
    assert {logged.epsilon for logged in seen} == {None}


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


def test_a_budget_that_is_none_leaves_no_ledger_behind(tmp_path: Path) -> None:
    with pytest.raises(dp.errors.ParameterError, match="budget"):
        PrivateRun(
            nn.Linear(2, 1),
            plan(),
            ledger=tmp_path / "a",
            budget=3.0,  # type: ignore[arg-type]
            statistics={"metric/seen": 1},
        )
    assert list(tmp_path.iterdir()) == []


_PRINTS = """
import discreet as dp, torch
from discreet.training import PrivateRun
plan = dp.Plan(sampler=dp.Sampler(dp.Poisson(0.5), records=9, steps=2), mechanism=dp.Gaussian(1.0, 1.0))
run = PrivateRun(torch.nn.Linear(2, 1), plan, ledger=dp.Ledger.in_memory())
for batch in run.batches(torch.utils.data.TensorDataset(torch.ones(9, 2))):
    run.backward(lambda model, data: model(data[0]).squeeze(1), batch)
    print("a line of the user")
"""


def test_what_a_user_prints_goes_where_it_was_sent_while_the_bar_shows(tmp_path: Path) -> None:
    """As in: python train.py > lines."""
    ours, theirs = pty.openpty()
    with (tmp_path / "lines").open("wb") as lines:
        environment = os.environ | {"TERM": "xterm", "PYTHONPATH": os.pathsep.join(sys.path)}
        child = subprocess.Popen(
            [sys.executable, "-c", _PRINTS], stdout=lines, stderr=theirs, env=environment
        )
        os.close(theirs)
        shown = b""
        with suppress(OSError):  # the terminal is gone when the child is
            while part := os.read(ours, 65536):
                shown += part
        os.close(ours)
        assert child.wait(timeout=60) == 0
    assert (tmp_path / "lines").read_text() == "a line of the user\n" * 2
    assert b"2/2" in shown
    assert b"a line" not in shown
