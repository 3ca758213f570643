"""The recipe of the demo: it is found, learns from real digits, and spends what it says."""

from pathlib import Path

import pytest
from benchmarks.utility.recipes import digits, recipes

import discreet as dp
from discreet.plan import Target
from discreet.randomness import Source
from discreet.training.extras import demo
from support.utility import epsilon_of_charges


def test_it_is_found_learns_and_its_ledger_is_within_the_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "_WAVES", 100)  # faster, and not as good
    assert recipes()["digits"] is digits.RECIPES[0]
    prepared, path = digits.prepare(tmp_path), tmp_path / "run.ledger"
    assert digits.train(prepared, Target(3.0, 1e-5), path, Source.unsafe_test_key(b"d" * 32)) > 0.85
    with dp.Ledger.open(path, "r") as ledger:
        assert 2.99 < epsilon_of_charges(ledger, 1e-5) <= 3.0
    assert digits.train(prepared, None, tmp_path / "none.ledger") > 0.95
    assert not (tmp_path / "none.ledger").exists()
