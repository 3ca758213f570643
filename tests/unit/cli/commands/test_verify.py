"""`discreet verify`: a ledger is whole, has the head that was noted, and kept to its plans."""

from dataclasses import replace
from pathlib import Path

import pytest

import discreet as dp
from support.command import PLAN, answered, execute, executed, in_process


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    path = tmp_path / "a.ledger"
    executed(path, PLAN).close()
    return path


def test_rows_may_be_added_after_a_head_was_noted(tmp_path: Path) -> None:
    path = tmp_path / "a.ledger"
    with dp.Ledger.open(path, budget=dp.Odometer(delta=1e-6)) as ledger:
        execute(ledger, PLAN)
        head = ledger.head()
        execute(ledger, PLAN, label="second")
    answered("verify", path, "--head", head)


def test_another_head_and_a_damaged_file_are_a_no(ledger: Path) -> None:
    assert in_process("verify", ledger, "--head", "0" * 64).code == 1
    damaged = ledger.read_bytes().replace(b'"probability":0.01', b'"probability":0.02')
    ledger.write_bytes(damaged)
    found = answered("verify", ledger, code=1)
    assert found["sound"] is False
    assert found["row"] > 0


def test_a_ledger_that_deviates_from_the_plan_is_a_no(ledger: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    PLAN.save(plan)
    assert in_process("verify", ledger, "--plan", plan, "--delta", 1e-6).code == 0
    other = replace(PLAN, mechanism=dp.Gaussian(clip_norm=1.0, noise_multiplier=9.0))
    plan.unlink()
    other.save(plan)
    assert in_process("verify", ledger, "--plan", plan, "--delta", 1e-6).code == 1


def test_a_mark_is_a_no(ledger: Path) -> None:
    with dp.Ledger.open(ledger) as writable:
        writable.mark(writable.runs()[0].number, "unsafe_example")
    assert in_process("verify", ledger).code == 1
