"""The example of docs/training.md that is meant to be run as it is."""

import re
from pathlib import Path

import discreet as dp
from support import pages
from support.source import ROOT

HEADING = "## What makes private models better"


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
