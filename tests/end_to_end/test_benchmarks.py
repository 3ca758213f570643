"""The step benchmark compares like with like, and prints and writes what it says."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.source import PACKAGE, ROOT


def run(*command: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(PACKAGE.parent)}
    result = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_contenders_take_the_same_step_and_one_that_does_not_clip_is_seen() -> None:
    lines = run("benchmarks.agreement", "--tasks", "logistic", "LSTM").splitlines()
    verdicts = {tuple(line.split()[:2]): line.split()[-1] for line in lines}
    for task in ("logistic", "LSTM"):
        assert verdicts[task, "plain"] == "differs"
        assert verdicts[task, "vmap"] == "agrees"


@pytest.mark.full
def test_the_step_benchmark_prints_and_writes_its_figures(tmp_path: Path) -> None:
    path = tmp_path / "out" / "step.json"
    out = run(
        "benchmarks.step", "--tasks", "logistic", "--contenders", "vmap", "--seconds", "0", "--no-memory", "--json", str(path)
    )
    rows = {row["contender"]: row for row in json.loads(path.read_text())["rows"]}
    assert rows.keys() == {"plain", "vmap"}
    assert f"{rows['vmap']['timing']['cpu_ms'] / rows['plain']['timing']['cpu_ms']:.2f}" in out.splitlines()[-1]
