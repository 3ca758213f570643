"""What a run says of itself: the guarantee of its ledger, and logs that are functions."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import discreet as dp
from discreet.errors import ParameterError
from discreet.randomness import Source
from discreet.training import Logged, PrivateRun

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


def test_a_log_that_is_no_function_is_refused_before_anything_is_charged() -> None:
    """Wrong: it is called, and fails, after the first step was charged."""
    ledger = dp.Ledger.in_memory()
    with pytest.raises(ParameterError, match="functions of what was released"):
        train(ledger, logs=["metrics.csv"])
    assert not ledger.snapshot().charged()
