"""`discreet ledger export`, `import`, `budget` and `stop`: copies are whole, rows are for good."""

from pathlib import Path

import pytest

import discreet as dp
from support.command import PLAN, answered, executed, in_process


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    path = tmp_path / "a.ledger"
    executed(path, PLAN).close()
    return path


def test_an_export_comes_back_with_its_head(ledger: Path, tmp_path: Path) -> None:
    copy, back = tmp_path / "a.jsonl", tmp_path / "b.ledger"
    out = answered("ledger", "export", ledger, copy)
    assert answered("ledger", "import", copy, back)["head"] == out["head"]
    assert in_process("ledger", "import", copy, back).code == 2


def test_another_budget_is_a_row_with_its_reason(ledger: Path) -> None:
    found = answered("ledger", "budget", ledger, "--epsilon", 9, "--delta", 1e-6, "--reason", "why")
    assert (found["epsilon"], found["epsilon_before"], found["delta"]) == (9.0, None, 1e-6)
    with dp.Ledger.open(ledger, "r") as after:
        assert after.head() == found["head"]
        assert after.snapshot().history[-1].reason == "why"


def test_a_budget_that_is_spent_already_is_refused_and_nothing_is_written(ledger: Path) -> None:
    before = ledger.read_bytes()
    done = in_process(
        "ledger", "budget", ledger, "--epsilon", 1e-3, "--delta", 1e-6, "--reason", "x"
    )
    assert done.code == 2
    assert ledger.read_bytes() == before


def test_a_run_is_stopped_for_a_public_reason(tmp_path: Path) -> None:
    path = tmp_path / "a.ledger"
    with dp.Ledger.open(path) as ledger:
        run = ledger.begin(PLAN.run_info(), [(PLAN.step, PLAN.steps)])
        list(run.steps(PLAN.step, 3))
        number = run.number
    found = answered("ledger", "stop", path, "--run", number, "--reason", "power failure")
    assert (found["charged"], found["planned"]) == (3, PLAN.steps)
    assert in_process("ledger", "stop", path, "--run", 99, "--reason", "x").code == 2


def test_an_export_is_a_copy_and_takes_no_rows(ledger: Path, tmp_path: Path) -> None:
    copy = tmp_path / "a.jsonl"
    answered("ledger", "export", ledger, copy)
    before = copy.read_bytes()
    assert in_process("ledger", "stop", copy, "--run", 2, "--reason", "x").code == 2
    assert copy.read_bytes() == before
