"""The examples of audits: without privacy an attack finds what was planted, with it no more than
the guarantee allows.
"""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from support.source import ROOT

EXAMPLES = ROOT / "examples" / "auditing"
SMALL = ("--runs", "3", "--steps", "120", "--digits", "100")


@pytest.fixture
def one_thread() -> Any:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_digits_with_and_without_privacy(one_thread: None, tmp_path: Path) -> None:
    """Small, in this process; three runs of each kind."""
    digits = runpy.run_path(str(EXAMPLES / "digits.py"))
    data, results = digits["Data"].load(100), {}
    for kind in digits["KINDS"]:
        runs = [digits["attacked"](kind, data, 80, 2.0) for _ in range(3)]
        results[kind] = digits["found"](data, runs, digits["spiked"](kind, data, 30, 2.0))
    plain, private = (results[kind] for kind in digits["KINDS"])
    attack = "canaries, loss threshold"
    assert plain.attacks[attack].auc > 0.8
    assert 0.4 < private.attacks[attack].auc < 0.7
    assert np.median(plain.exposures) > 3.0
    assert np.median(private.exposures) < 2.5
    assert (
        plain.bounds["gradient canaries"].lower > 2.0
    )  # the claim of the other: it would be refuted

    def limit(epsilon: float) -> float:
        return 0.0 if epsilon >= 2.0 else 1.0

    shown = digits["table"](results, limit, 2.0)
    assert len(re.findall(r"members found at (?:1.0|0.1)% false alarms", shown)) == 8
    digits["draw"](results, limit, 2.0, tmp_path / "audit.png")
    assert (tmp_path / "audit.png").stat().st_size > 10_000


@pytest.mark.full
def test_codes_are_remembered_without_privacy_only(
    one_thread: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The median of about eight codes that were in: 10 bits, against a median of 1 by chance.

    Eight codes of a model that knows nothing have a median above 6 bits with probability below C(8,
    4) 2^-24 < 1e-5; with epsilon 2 the same needs four that reach 6 bits, each with probability
    0.12 at most.
    """
    monkeypatch.setattr(sys, "argv", ["secret_codes.py", "--steps", "180"])
    runpy.run_path(str(EXAMPLES / "secret_codes.py"), run_name="__main__")
    plain, private = (
        [float(bits) for bits in re.findall(r"([0-9.]+) bits", line)]
        for line in capsys.readouterr().out.splitlines()
        if "median" in line
    )
    assert plain[0] > 6.0 > private[0]
    assert plain[1] < 6.0


@pytest.mark.full
def test_the_whole_script_runs_in_processes(tmp_path: Path) -> None:
    result = subprocess.run(
        [
            sys.executable,
            "-W",
            "error",
            str(EXAMPLES / "digits.py"),
            *SMALL,
            "--write",
            "audit.png",
        ],
        cwd=tmp_path,
        env=os.environ | {"OMP_NUM_THREADS": "1", "MPLCONFIGDIR": str(tmp_path / "matplotlib")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-4000:]
    assert "epsilon at least, gradient canaries" in result.stdout
    assert (tmp_path / "audit.png").stat().st_size > 10_000
