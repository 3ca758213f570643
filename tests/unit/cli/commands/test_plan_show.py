"""`discreet plan show`: the plan in a run's own row."""

from dataclasses import replace
from pathlib import Path

import discreet as dp
from support.command import PLAN, execute, in_process


def test_the_plan_in_the_row_is_shown_as_a_file_that_can_be_loaded(tmp_path: Path) -> None:
    path = tmp_path / "a.ledger"
    with dp.Ledger.open(path, budget=dp.Odometer(delta=1e-6)) as ledger:
        execute(ledger, PLAN)
        execute(ledger, PLAN, label="resumed")
    done = in_process("plan", "show", path)
    assert done.code == 0, done.err
    assert "0.01" in done.out
    assert "1.1" in done.out


def test_of_several_plans_one_must_be_named(tmp_path: Path) -> None:
    path = tmp_path / "a.ledger"
    shorter = replace(PLAN, sampler=dp.Sampler(dp.Poisson(0.01), records=60_000, steps=7))
    with dp.Ledger.open(path, budget=dp.Odometer(delta=1e-6)) as ledger:
        execute(ledger, PLAN)
        number = execute(ledger, shorter).number
    done = in_process("plan", "show", path)
    assert done.code == 2
    assert "2 different plans" in done.err
    assert in_process("plan", "show", path, "--run", number).code == 0
    assert in_process("plan", "show", path, "--run", 99).code == 2


def test_a_ledger_without_a_run_has_no_plan(tmp_path: Path) -> None:
    path = tmp_path / "a.ledger"
    dp.Ledger.open(path).close()
    done = in_process("plan", "show", path)
    assert done.code == 2
    assert "a ledger with a run" in done.err
