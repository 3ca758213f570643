"""A budget beside a real ledger: the last step that fits is taken, the next one is refused, in every process."""

import multiprocessing
from dataclasses import replace
from pathlib import Path

import pytest

import discreet as dp
from support.examples import INFO

STEP = dp.Step(dp.Poisson(0.05), dp.GaussianSum("grad", 1.0, 1.5))
BUDGET = dp.Budget(epsilon=1.0, delta=1e-6)


def steps_that_fit(path: Path, info: dp.RunInfo) -> int:
    taken = 0
    with dp.Ledger.open(path, guard=BUDGET) as ledger:
        ledger.begin(info)
        with pytest.raises(dp.BudgetExceeded):
            for _ in ledger.steps(STEP, 10_000, block=1):
                taken += 1
    return taken


def test_p38_the_last_step_that_fits_is_taken_and_no_other(tmp_path: Path) -> None:
    taken = steps_that_fit(tmp_path / "a.ledger", INFO)
    with dp.Ledger.open(tmp_path / "a.ledger", "r") as ledger:
        assert sum(charge.count for charge in ledger.verify().charges()) == taken
        assert dp.account(ledger, delta=1e-6, tolerance=1e-4).upper <= 1.0
    one_more = dp.account([(STEP, taken + 1)], delta=1e-6, adjacency=INFO.adjacency, tolerance=1e-4)
    assert one_more.lower > 1.0
    assert steps_that_fit(tmp_path / "a.ledger", replace(INFO, label="another run")) == 0


def _spend(path: Path) -> None:
    with dp.Ledger.open(path, guard=BUDGET) as ledger:
        ledger.begin(INFO)
        try:
            for _ in ledger.steps(STEP, 10_000, block=1):
                pass
        except dp.BudgetExceeded:
            pass


def test_two_processes_together_stay_within_one_budget(tmp_path: Path) -> None:
    workers = [multiprocessing.get_context("spawn").Process(target=_spend, args=(tmp_path / "a.ledger",)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(timeout=120)
        assert worker.exitcode == 0
    alone = steps_that_fit(tmp_path / "b.ledger", INFO)
    with dp.Ledger.open(tmp_path / "a.ledger", "r") as ledger:
        assert sum(charge.count for charge in ledger.verify().charges()) == alone


def test_p39_a_run_that_chooses_from_outputs_is_filtered_and_stops_earlier(tmp_path: Path) -> None:
    adaptive = replace(INFO, parameters=dp.Parameters.CHOSEN_FROM_OUTPUTS)
    filtered = steps_that_fit(tmp_path / "a.ledger", adaptive)
    assert 0 < filtered < steps_that_fit(tmp_path / "b.ledger", INFO)
    with dp.Ledger.open(tmp_path / "a.ledger", "r") as ledger:
        with pytest.raises(dp.AccountingError, match="Budget"):
            dp.account(ledger, delta=1e-6)
        guarantee = BUDGET.guarantee(ledger.charges(), marks=ledger.marks())
    assert guarantee.upper == 1.0
    assert "filter" in guarantee.accountant
    assert "admitted by this budget" in str(guarantee)
