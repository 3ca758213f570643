"""The benchmarks of training compare like with like, and print and write what they say."""

import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median

import pytest

from support.source import PACKAGE, ROOT


def run(*command: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(PACKAGE.parent)}
    result = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.mark.full
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
        "benchmarks.step",
        "--tasks",
        "logistic",
        "--contenders",
        "vmap",
        "--seconds",
        "0",
        "--no-memory",
        "--json",
        str(path),
    )
    rows = {row["contender"]: row for row in json.loads(path.read_text())["rows"]}
    assert rows.keys() == {"plain", "vmap"}
    assert (
        f"{rows['vmap']['timing']['cpu_ms'] / rows['plain']['timing']['cpu_ms']:.2f}"
        in out.splitlines()[-1]
    )


@pytest.mark.full
def test_the_benchmark_of_whole_runs_compares_as_many_steps_of_each_kind(tmp_path: Path) -> None:
    path = tmp_path / "whole.json"
    out = run("benchmarks.whole_run", "--tiny", "--repeats", "2", "--json", str(path))
    for name, kinds in json.loads(path.read_text())["runs"].items():
        assert f"{name}: 4 steps of 16 of 64 records" in out
        assert {run["steps"] for runs in kinds.values() for run in runs} == {4}
        assert all(
            run["begin"] > 0 and run["first"] > 0 and run["rest"] > 0
            for runs in kinds.values()
            for run in runs
        )
        assert len(kinds["private"]) == 2


@pytest.mark.full
def test_two_hundred_honest_audits_are_never_above_the_claim_and_not_empty(tmp_path: Path) -> None:
    path = tmp_path / "audits.json"
    closing = run("benchmarks.audits", "honest", "--json", str(path)).splitlines()[-1]
    assert closing.startswith("200 honest audits: 0 above the claim")
    rows = json.loads(path.read_text())
    assert median(row["scaled"] / row["claim"] for row in rows if row["scaled"] is not None) > 0.5
    assert median(row["one_run"] for row in rows) > 0.1


@pytest.mark.full
def test_an_audit_reaches_seventy_percent_of_the_claim(tmp_path: Path) -> None:
    path = tmp_path / "audits.json"
    run("benchmarks.audits", "reached", "--json", str(path))
    rows = json.loads(path.read_text())
    assert len(rows) == 8
    assert min(row["reached"] for row in rows) >= 0.7
