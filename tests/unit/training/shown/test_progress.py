"""Epsilon while a run goes on, which is never too small, and the bar that shows it."""

import io
import os
import pty
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import discreet as dp
from discreet.training import Logged, PrivateRun
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


_PRINTS = """
import discreet as dp, torch
from discreet.training import PrivateRun
sampler = dp.Sampler(dp.Poisson(0.5), records=9, steps=2)
plan = dp.Plan(sampler=sampler, mechanism=dp.Gaussian(1.0, 1.0))
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
