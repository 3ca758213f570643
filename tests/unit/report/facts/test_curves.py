"""Numbers behind the charts: certified at every point, and never below the truth."""

import itertools
import json
import math
from dataclasses import replace

import pytest

import discreet as dp
from discreet.accounting import hit_rate, profile_of
from discreet.report.facts.curves import unamplified
from support.reports import DELTA, INFO, STEP, ledger_of, step_of


def test_epsilon_over_steps_ends_in_the_claim_and_is_certified_before() -> None:
    other = step_of(dp.Poisson(0.02), 3.0)
    ledger = ledger_of((STEP, 40), (other, 30))
    report = dp.Report.of(ledger, delta=DELTA)
    points = json.loads(report.json())["spending"]["points"]
    assert points[0] == [0.0, 0.0]
    assert points[-1] == [70.0, report.guarantee.upper]
    assert len(points) == 21
    assert all(one[0] < two[0] and one[1] <= two[1] for one, two in itertools.pairwise(points))
    for steps, epsilon in points[1:]:
        exact = dp.account(
            [(STEP, min(int(steps), 40)), (other, max(int(steps) - 40, 0))],
            delta=DELTA,
            adjacency=INFO.adjacency,
        )
        assert exact.lower <= epsilon <= exact.upper * 1.01


def test_the_named_point_lies_on_the_curve_and_bounds_the_best_attack() -> None:
    """One full-batch Gaussian of multiplier 1: the best attack at 1 % finds Phi(Phi^-1(0.01) + 1) =
    0.09236.
    """
    document = json.loads(
        dp.Report.of(ledger_of((step_of(dp.Everything(), 1.0), 1)), delta=DELTA).json()
    )
    rate, hits, words = document["tradeoff"]["named"]
    assert rate == 0.01
    assert 0.09236 <= hits <= 0.09236 * 1.05
    assert words == f"at 1 %: {math.ceil(1000 * hits) / 10:g} %"
    near = [y for x, y in document["tradeoff"]["points"] if abs(x - 0.01) < 1e-9]
    assert near == [pytest.approx(hits, abs=1e-9)]


@pytest.mark.parametrize(
    ("step", "count"),
    [(STEP, 500), (step_of(dp.Poisson(0.01), 0.6), 300), (step_of(dp.Everything(), 3.0), 90)],
    ids=["0.6", "5", "17"],
)
def test_the_attackers_best_is_near_the_best_limit_known(step: dp.ledger.Step, count: int) -> None:
    ledger = ledger_of((step, count))
    hits = json.loads(dp.Report.of(ledger, delta=DELTA).json())["claim"]["hit_rate_at_1_percent"]
    assert hits <= 1.01 * hit_rate(profile_of(ledger), false_positive_rate=0.01)


def test_without_amplification_a_full_truncated_sample_changes_in_two_records() -> None:
    sampling = dp.ledger.TruncatedPoisson(0.05, 90, 1000)
    for adjacency, noise in (
        (dp.Adjacency.ADD_OR_REMOVE, 2.5),
        (dp.Adjacency.ZERO_OUT, 5.0),
        (dp.Adjacency.REPLACE_ONE, 2.5),
    ):
        ledger = ledger_of((step_of(sampling), 4), info=replace(INFO, adjacency=adjacency))
        found = unamplified(
            ledger.snapshot(), DELTA, dp.account(ledger, delta=DELTA, accountant="rdp")
        )
        known = dp.account(
            [(step_of(dp.Everything(), noise), 4)],
            delta=DELTA,
            adjacency=dp.Adjacency.ADD_OR_REMOVE,
        )
        assert found is not None
        assert found.upper == pytest.approx(known.upper, rel=1e-9)


def test_a_ledger_with_many_different_steps_gets_fewer_points_and_still_its_claim() -> None:
    ledger = ledger_of(*[(step_of(dp.Everything(), 50.0 + i), 1) for i in range(400)])
    report = dp.Report.of(ledger, delta=DELTA)
    document = json.loads(report.json())
    assert len(document["spending"]["points"]) == 5
    assert document["spending"]["points"][-1] == [400.0, report.guarantee.upper]
    assert len(document["charges"]["rows"]) == 301
    assert document["charges"]["rows"][-1]["cells"][0] == "and 100 more, in the ledger"
    assert len(report.html()) < 1_000_000
