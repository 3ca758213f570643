"""A budget in a real ledger: the last step that fits is taken, the next one is refused, in every
process.
"""

import multiprocessing
from pathlib import Path

import pytest

import discreet as dp
from discreet.ledger import RunRecord, Snapshot
from support.examples import INFO

STEP = dp.ledger.Step(dp.Poisson(0.05), dp.ledger.GaussianSum("grad", 1.0, 1.5))
LIST = dp.Budget(epsilon=1.0, delta=1e-6)
FILTER = dp.Filter(epsilon=1.0, delta=1e-6)
ORDERED = dp.Filter(
    epsilon=3.0, delta=1e-6, order=9.0
)  # whose analysis does not depend on the first run


def steps_that_fit(path: Path, budget: dp.Budget | dp.Filter) -> int:
    """Begin a run with as many steps as the ledger admits, take them, and see one more refused."""
    with dp.Ledger.open(path, budget=budget) as ledger:
        fitting = ledger.fitting(INFO, STEP, 10_000)
        run = ledger.begin(INFO, [(STEP, fitting)] if fitting else [])
        taken = sum(1 for _ in run.steps(STEP, fitting)) if fitting else 0
        with pytest.raises(dp.errors.BudgetExceeded):
            run.reserve(STEP, count=1)
    return taken


def charged(path: Path) -> int:
    with dp.Ledger.open(path, "r") as ledger:
        return ledger.verify().snapshot().steps


def test_p38_the_last_step_that_fits_is_taken_and_no_other(tmp_path: Path) -> None:
    taken = steps_that_fit(tmp_path / "a.ledger", LIST)
    assert charged(tmp_path / "a.ledger") == taken
    with dp.Ledger.open(tmp_path / "a.ledger", "r") as ledger:
        assert dp.account(ledger, delta=1e-6, tolerance=1e-4).upper <= 1.0
    one_more = dp.account([(STEP, taken + 1)], delta=1e-6, adjacency=INFO.adjacency, tolerance=1e-4)
    assert one_more.lower > 1.0
    assert steps_that_fit(tmp_path / "a.ledger", LIST) == 0


def test_p38_a_run_that_planned_nothing_takes_all_that_fits_in_blocks_that_do_not(
    tmp_path: Path,
) -> None:
    whole = steps_that_fit(tmp_path / "a.ledger", ORDERED)
    assert whole > 2
    with dp.Ledger.open(tmp_path / "b.ledger", budget=ORDERED) as ledger:
        taken = 0
        with pytest.raises(dp.errors.BudgetExceeded):
            for _ in ledger.begin(INFO).steps(STEP, 10_000, block=whole - 1):
                taken += 1
    assert charged(tmp_path / "b.ledger") == taken == whole


def _listed(steps: int) -> dp.Budget:
    return dp.Budget(plans=Snapshot(runs=(RunRecord(info=INFO, charged=((STEP, steps),)),)))


def _spend(path: Path) -> None:
    """Without a word about a budget: the file has one."""
    with dp.Ledger.open(path) as ledger:
        run = ledger.begin(INFO)
        try:
            for _ in run.steps(STEP, 10_000, block=1):
                pass
        except dp.errors.BudgetExceeded:
            pass


@pytest.mark.parametrize("budget", [ORDERED, _listed(100)], ids=["filter", "list"])
def test_two_processes_together_stay_within_one_budget(
    tmp_path: Path, budget: dp.Budget | dp.Filter
) -> None:
    path = tmp_path / "a.ledger"
    dp.Ledger.open(path, budget=budget).close()
    workers = [
        multiprocessing.get_context("spawn").Process(target=_spend, args=(path,)) for _ in range(2)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(timeout=120)
        assert worker.exitcode == 0
    assert charged(path) == steps_that_fit(tmp_path / "b.ledger", budget) > 0


def test_p39_a_filter_stops_earlier_than_a_list_and_states_its_whole_budget(tmp_path: Path) -> None:
    filtered = steps_that_fit(tmp_path / "a.ledger", FILTER)
    assert 0 < filtered < steps_that_fit(tmp_path / "b.ledger", LIST)
    with dp.Ledger.open(tmp_path / "a.ledger", "r") as ledger:
        with pytest.raises(dp.errors.AccountingError):
            dp.account(ledger, delta=1e-7)
        guarantee = dp.account(ledger)
    assert (guarantee.upper, guarantee.delta) == (1.0, 1e-6)
    assert "filter" in guarantee.accountant
    assert "admitted every charge" in str(guarantee)
