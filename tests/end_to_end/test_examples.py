"""Every example runs and leaves its figure."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.source import ROOT

SCRIPTS = sorted((ROOT / "examples" / "accounting").glob("*.py"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_reproduction_runs_and_draws(script: Path, tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        cwd=tmp_path,
        env=os.environ | {"MPLCONFIGDIR": str(tmp_path / "matplotlib")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    figures = list((tmp_path / "out").glob("*.png"))
    assert len(figures) == 1
    assert figures[0].stat().st_size > 10_000


def test_there_are_examples() -> None:
    assert len(SCRIPTS) == 4
