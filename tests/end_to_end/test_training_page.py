"""The example of docs/training.md that is meant to be run as it is, and the benchmark that it names."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import discreet as dp
from support import pages
from support.source import ROOT

HEADING = "## What makes private models better"


@pytest.mark.full
def test_the_example_of_better_models_runs_and_spends_what_it_says(tmp_path: Path) -> None:
    (section,) = re.findall(rf"^{HEADING}\n(.*?)^## ", (ROOT / "docs" / "training.md").read_text(), re.DOTALL | re.MULTILINE)
    out = pages.run(section, tmp_path)
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
