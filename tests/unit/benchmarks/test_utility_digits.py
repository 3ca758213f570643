"""The recipe of the demo: it is found, learns from real digits, and spends what it says."""

from pathlib import Path

from benchmarks.utility.recipes import digits, recipes

import discreet as dp
from discreet.plan import Target
from discreet.randomness import Source


def test_it_is_found_learns_and_its_ledger_is_within_the_target(tmp_path: Path) -> None:
    assert recipes()["digits"] is digits.RECIPES[0]
    prepared, path = digits.prepare(tmp_path), tmp_path / "run.ledger"
    assert digits.train(prepared, Target(3.0, 1e-5), path, Source.unsafe_test_key(b"d" * 32)) > 0.93
    with dp.Ledger.open(path, "r") as ledger:
        assert 2.99 < dp.account(ledger.verify(), delta=1e-5).upper <= 3.0
    assert digits.train(prepared, None, tmp_path / "none.ledger") > 0.98
    assert not (tmp_path / "none.ledger").exists()
