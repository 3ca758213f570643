"""No claim of the proof about torch's own operators is false, and none that was made is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
CLAIMED = HERE / "claimed.txt"
ALL_SAMPLES = "  # all samples"

# About 40 s on one processor.
QUICK = ("--samples", "5", "--choices", "4", "--claims", "1", "--changes", "noise", "nan")
FULL = ("--samples", "1000000", "--choices", "12", "--claims", "1000000", "--seconds", "120")
SHARED = ("--samples", "20", "--choices", "3", "--claims", "4", "--changes", "noise")
OTHER_NUMBERS = ("--samples", "10", "--choices", "6", "--claims", "6", "--seconds", "20")


def _outcome(tmp_path: Path, *options: str) -> dict[str, Any]:
    """In a process of its own, which may die and start others."""
    report = tmp_path / "report.json"
    command = [sys.executable, "-m", "separation.opdb", *options, "--json", str(report)]
    path = os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    subprocess.run(command, env=environment, check=True, capture_output=True)
    outcome: dict[str, Any] = json.loads(report.read_text())
    return outcome


def _must_be_claimed(*, all_samples: bool) -> set[str]:
    """Operators of which some claim of records must be made; some of them in rare samples only."""
    lines = CLAIMED.read_text().splitlines()
    names = {line.removesuffix(ALL_SAMPLES) for line in lines}
    rare = {line.removesuffix(ALL_SAMPLES) for line in lines if line.endswith(ALL_SAMPLES)}
    return names if all_samples else names - rare


def _check(outcome: dict[str, Any]) -> None:
    assert outcome["wrong"] == []
    assert outcome["crashed"] == []
    assert "out of time" not in outcome["counts"] or outcome["budget"]["samples"] > 5


def test_no_claim_is_false_and_none_is_lost(tmp_path: Path) -> None:
    outcome = _outcome(tmp_path, *QUICK)
    _check(outcome)
    assert outcome["counts"]["comparisons"] > 5_000
    assert _must_be_claimed(all_samples=False) <= set(outcome["claimed"])


def test_no_claim_is_false_where_entries_share_their_memory(tmp_path: Path) -> None:
    """The kernel of the median orders entries in a copy that has the strides of its argument."""
    _check(_outcome(tmp_path, *SHARED, "--only", "median", "--layout", "expanded first"))


@pytest.mark.full
@pytest.mark.parametrize("layout", ["expanded first", "expanded last", "with gaps"])
def test_no_claim_is_false_for_other_layouts(tmp_path: Path, layout: str) -> None:
    _check(_outcome(tmp_path, *OTHER_NUMBERS, "--layout", layout))


@pytest.mark.full
def test_no_claim_is_false_in_any_sample(tmp_path: Path) -> None:
    outcome = _outcome(tmp_path, *FULL)
    _check(outcome)
    assert _must_be_claimed(all_samples=True) <= set(outcome["claimed"])


@pytest.mark.full
@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "complex64", "int64", "bool"])
def test_no_claim_is_false_for_other_numbers(tmp_path: Path, dtype: str) -> None:
    _check(_outcome(tmp_path, *OTHER_NUMBERS, "--dtypes", dtype))
