"""Tables at the end of a report: every charge with its noise and its share."""

import json
from dataclasses import replace

import pytest

import discreet as dp
from discreet.report.sections.tables import cost_share, share_words
from support.reports import DELTA, INFO, STEP, ledger_of


@pytest.mark.parametrize(
    "query",
    [
        dp.ledger.LaplaceSum("grad", 1.0, 20.0),
        dp.ledger.ExponentialChoice("grad", 1.0, 20.0),
        dp.ledger.CorrelatedGaussianSum(
            "grad", 1.0, 20.0, 2.0, rounds=8, participations=2, separation=4
        ),
    ],
    ids=lambda query: type(query).__name__,
)
def test_other_queries_than_gaussian_sums(query: dp.ledger.Query) -> None:
    step = dp.ledger.Step(dp.Everything(), [query, dp.ledger.GaussianSum("metric", 1.0, 30.0)])
    report = dp.Report.of(ledger_of((step, 2)), delta=DELTA)
    assert "metric" in report.html() and "metric" in report.markdown()  # noqa: PT018
    assert (
        report.guarantee.upper
        == dp.account([(step, 2)], delta=DELTA, adjacency=INFO.adjacency).upper
    )


def test_randomized_response() -> None:
    info = replace(INFO, adjacency=dp.Adjacency.REPLACE_ONE)
    step = dp.ledger.Step(dp.Everything(), dp.ledger.RandomizedResponse("grad", 2, 0.6))
    report = dp.Report.of(ledger_of((step, 1), info=info), delta=DELTA)
    assert "the true one with probability 0.6" in report.html()


def test_shares_of_groups_sum_to_one() -> None:
    step = dp.ledger.Step(
        dp.Poisson(0.05),
        [dp.ledger.GaussianSum("grad", 3.0, 15.0), dp.ledger.GaussianSum("metric", 4.0, 15.0)],
    )
    (bars,) = json.loads(dp.Report.of(ledger_of((step, 3)), delta=DELTA).json())["groups"]
    assert {bar["name"]: pytest.approx(bar["share"]) for bar in bars["bars"]} == {
        "grad": 9 / 25,
        "metric": 16 / 25,
    }


def test_shares_of_what_is_no_gaussian_are_counted_apart() -> None:
    laplace = dp.ledger.LaplaceSum("count", 1.0, 20.0)
    step = dp.ledger.Step(dp.Everything(), [laplace, dp.ledger.GaussianSum("grad", 1.0, 30.0)])
    assert [cost_share(query, step) for query in step.queries] == [None, 1.0]
    assert share_words(None) == "—"
    assert share_words(0.12345) == "12.3 %"


def test_anybody_can_check_the_report_with_the_commands_it_names() -> None:
    ledger = ledger_of((STEP, 2))
    named = dict(json.loads(dp.Report.of(ledger, delta=DELTA).json())["commands"])
    assert f"discreet verify LEDGER --head {ledger.head()}" in named
    assert "discreet account LEDGER --delta 1e-05" in named
