"""The demo is real: it learns, charges what it planned, and its statement has what a statement needs."""

import re
import subprocess
import sys
from pathlib import Path

import discreet as dp
from support.source import ROOT


def test_the_demo_trains_and_writes_ledger_and_statement(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", str(ROOT / "examples" / "demo.py"), "--into", str(tmp_path), "--epsilon", "3"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    private, plain = map(float, re.findall(r"test accuracy ([\d.]+)%; without privacy ([\d.]+)%", result.stdout)[0])
    assert 88.0 < private < plain  # chance is 10 %; over many runs the private one lies between 91 % and 96 %

    with dp.Ledger.open(tmp_path / "demo.ledger", "r") as ledger:
        (charge,) = ledger.verify().charges()
        assert (charge.count, charge.unsettled) == (120, 0)
        guarantee = dp.account(ledger, delta=1e-5)
        assert 2.99 < guarantee.upper <= 3.0
        statement = (tmp_path / "report.md").read_text()
        for item in (*str(guarantee).splitlines(), ledger.head(), "120", "Poisson", "noise_std", "exact", "python"):
            assert item in statement
