"""What a claim rests on, and whether the ledger shows it."""

from dataclasses import replace

import pytest

import discreet as dp
from support.reports import DELTA, INFO, items, ledger_of, step_of


@pytest.mark.parametrize(
    ("info", "basis"),
    [
        (replace(INFO, numerics=dp.Numerics.EXACT), "(numerics: exact) by the engine"),
        (replace(INFO, numerics=dp.Numerics.IDEALISED), "(numerics: idealised) relied on"),
        (replace(INFO, randomness=dp.units.Randomness.UNSAFE_TEST_KEY), "cannot be predicted NO"),
        (replace(INFO, adjacency=dp.Adjacency.ZERO_OUT), "number of records is public relied on"),
    ],
    ids=["exact", "idealised", "test key", "public number"],
)
def test_whether_an_assumption_holds_follows_the_ledger(
    info: dp.ledger.RunInfo, basis: str
) -> None:
    report = dp.Report.of(ledger_of((step_of(dp.Poisson(0.05)), 3), info=info), delta=DELTA)
    assert basis in items(report, "json")["3b"]


def test_users_whose_rows_the_sampler_groups_are_not_relied_on() -> None:
    owners = dp.Owners.from_ids([0, 0, 1, 2])
    plan = dp.Plan(
        sampler=dp.Sampler(dp.Poisson(0.5), records=3, steps=2, owners=owners),
        mechanism=dp.Gaussian(1.0, 2.0),
        unit=dp.Unit.USER,
    )
    report = dp.Report.of(ledger_of((plan.step, 2), info=plan.run_info()), delta=DELTA, plan=plan)
    assert "Each record holds everything of one user by the engine" in items(report, "json")["3b"]


def test_a_mark_is_an_assumption_that_does_not_hold() -> None:
    ledger = ledger_of((step_of(dp.Poisson(0.05)), 3))
    ledger.mark(ledger.runs()[0].number, "unsafe_own_draw")
    assert " NO " in items(dp.Report.of(ledger, delta=DELTA), "json")["3b"]
