"""The examples of docs/training.md that are meant to be run as they are, and the benchmark that it
names.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import discreet as dp
from support import pages
from support.source import ROOT


def section(heading: str) -> str:
    page = (ROOT / "docs" / "training.md").read_text()
    (text,) = re.findall(rf"^## {heading}\n(.*?)^## ", page, re.DOTALL | re.MULTILINE)
    return str(text)


def test_t04_a_run_that_stops_by_its_private_score_costs_the_whole_plan(tmp_path: Path) -> None:
    out = pages.run(section("Stopping early"), tmp_path)
    (taken,) = re.findall(r"^([0-9]+) of 100 steps$", out, re.MULTILINE)
    with dp.Ledger.open(tmp_path / "early.ledger", "r") as ledger:
        assert [charge.count for charge in ledger.verify().charges()] == [int(taken)]
        (planned,) = ledger.snapshot().counted()
        guarantee = dp.account(ledger, delta=1e-5)
    assert 15 <= int(taken) < 100  # 24 to 40 in six runs
    assert planned[1] == 100
    assert 2.9 < guarantee.upper <= 3.0
    assert (
        guarantee.upper
        > 1.5
        * dp.account([(planned[0], int(taken))], delta=1e-5, adjacency=guarantee.adjacency).upper
    )
    assert f"{taken} were charged, and all count" in out


@pytest.mark.full
def test_the_example_of_better_models_runs_and_spends_what_it_says(tmp_path: Path) -> None:
    out = pages.run(section("What makes private models better"), tmp_path)
    (accuracy,) = re.findall(r"test accuracy ([0-9.]+)%", out)
    assert float(accuracy) > 60.0  # chance is 10 %
    with dp.Ledger.open(tmp_path / "digits.ledger", "r") as ledger:
        assert [charge.count for charge in ledger.verify().charges()] == [20, 20]
        guarantee = dp.account(ledger, delta=1e-5)
    assert 2.9 < guarantee.epsilon <= 3.0
    assert str(guarantee) in out


@pytest.mark.full
def test_the_benchmark_of_copies_prints_its_table() -> None:
    options = ["--tasks", "logistic", "--records", "32", "--copies", "2", "--rounds", "1"]
    command = [sys.executable, "-m", "benchmarks.copies", *options]
    out = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert [line.split("  ")[0] for line in out.splitlines()[2:]] == [
        "one row each",
        "2 x records",
        "2 copies",
        "flattened by hand",
    ]


def test_rules_of_your_own_run_as_they_are_shown(tmp_path: Path) -> None:
    pages.run((ROOT / "docs" / "own-rules.md").read_text(), tmp_path)
