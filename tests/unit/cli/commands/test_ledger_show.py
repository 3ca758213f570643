"""`discreet ledger show`: what a ledger is held to, its runs, and what is charged."""

from pathlib import Path

import discreet as dp
from support.command import PLAN, answered, execute, in_process


def test_runs_charges_and_marks_are_shown(tmp_path: Path) -> None:
    path = tmp_path / "a.ledger"
    with dp.Ledger.open(path, budget=dp.Odometer(delta=1e-6)) as ledger:
        execute(ledger, PLAN, label="first")
        execute(ledger, PLAN, label="second").mark("unsafe_example")
    found = answered("ledger", "show", path)
    assert [run["label"] for run in found["runs"]] == ["first", "second"]
    assert sum(charge["count"] for charge in found["charges"]) == 2 * PLAN.steps
    assert found["marks"] == ["unsafe_example"]
    words = in_process("ledger", "show", path).out
    assert "first" in words
    assert "unsafe_example" in words


def test_a_ledger_to_which_nothing_was_charged_says_so(tmp_path: Path) -> None:
    path = tmp_path / "a.ledger"
    dp.Ledger.open(path).close()
    done = in_process("ledger", "show", path)
    assert done.code == 0
    assert "Nothing was charged." in done.out
    assert answered("ledger", "show", path)["charges"] == []
