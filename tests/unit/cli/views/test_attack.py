"""What an attacker can do at most: few points, and a bound all the same."""

import math
from dataclasses import replace

import pytest

import discreet as dp
from discreet.accounting import hit_rate, profile_of
from discreet.cli.views.attack import attack
from discreet.report.facts.curves import FALSE_POSITIVES
from support.reports import INFO as REPORTED

INFO = replace(REPORTED, groups=("g",))
STEPS = {
    "full batch": (dp.ledger.Step(dp.Everything(), dp.ledger.GaussianSum("g", 1.0, 3.0)), 1),
    "sampled": (dp.ledger.Step(dp.Poisson(0.01), dp.ledger.GaussianSum("g", 1.0, 1.1)), 500),
    "weak": (dp.ledger.Step(dp.Everything(), dp.ledger.GaussianSum("g", 1.0, 0.1)), 1),
}


@pytest.mark.parametrize("name", STEPS)
def test_the_bound_is_at_least_the_best_one_known_and_near_it(name: str) -> None:
    plan = dp.ledger.Snapshot(
        runs=(dp.ledger.RunRecord(info=INFO, charged=(STEPS[name],)),), schema=1
    )
    found = attack(plan, dp.account(plan, delta=1e-6))
    assert found is not None
    best = hit_rate(profile_of(plan), false_positive_rate=FALSE_POSITIVES)
    assert best * (1.0 - 1e-3) <= found <= min(1.0, 1.2 * best + 1e-3)


def test_without_a_guarantee_nothing_is_bounded() -> None:
    plan = dp.ledger.Snapshot(
        runs=(dp.ledger.RunRecord(info=INFO, charged=(STEPS["sampled"],)),),
        marks=("unsafe_example",),
        schema=1,
    )
    guarantee = dp.account(plan, delta=1e-6)
    assert math.isinf(guarantee.upper)
    assert attack(plan, guarantee) is None


def test_a_filter_is_judged_by_its_claim_alone() -> None:
    ledger = dp.Ledger.in_memory(budget=dp.Filter(epsilon=2.0, delta=1e-6))
    list(ledger.begin(INFO).steps(STEPS["full batch"][0], 1))
    found = attack(ledger, dp.account(ledger, delta=1e-6))
    assert found == pytest.approx(math.exp(2.0) * FALSE_POSITIVES + 1e-6)
