"""On what data trials are made: private data need a ledger that is held to something."""

from pathlib import Path

import pytest

import discreet as dp
from discreet.tuning import Private, Public, Synthetic, tune_for_compute
from support.tunings import (
    BUDGET,
    PLAN,
    RATES,
    honest,
    private,
)


@pytest.mark.parametrize(
    "budget", [None, dp.Budget(epsilon=2.0, delta=1e-5)], ids=["nothing", "a budget without plans"]
)
def test_a_ledger_for_the_steps_of_its_first_run_is_refused(budget: dp.Budget | None) -> None:
    ledger = dp.Ledger.in_memory(budget=budget)
    with pytest.raises(dp.errors.ParameterError, match=r"dp\.Filter.*planned_trials"):
        Private(ledger, "patients", records=5, noise_std=1.0)


def test_a_ledger_to_read_only_is_refused(tmp_path: Path) -> None:
    dp.Ledger.open(tmp_path / "a.ledger", budget=BUDGET).close()
    with dp.Ledger.open(tmp_path / "a.ledger", "r") as ledger:
        data = private(ledger=ledger)
        with pytest.raises(dp.errors.LedgerMisuse, match="append"):
            tune_for_compute(honest(data), PLAN, learning_rates=RATES, data=data)


def test_data_have_names() -> None:
    for kind in (Public, Synthetic):
        with pytest.raises(dp.errors.ParameterError, match="name"):
            kind("")
    with pytest.raises(dp.errors.ParameterError, match="noise_std"):
        Private(
            dp.Ledger.in_memory(budget=dp.Filter(epsilon=1.0, delta=1e-5)),
            "x",
            records=5,
            noise_std=0.0,
        )
