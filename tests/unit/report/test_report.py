"""Reports on every kind of ledger, and their files."""

import itertools
import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import discreet as dp
from discreet.accounting import hit_rate, profile_of
from discreet.report.curves import unamplified
from support.reports import DELTA, INFO, STEP, audit_of, executed, extend, items, ledger_of, planned, step_of

FILTERED = replace(INFO, parameters=dp.Parameters.CHOSEN_FROM_OUTPUTS)
BUDGET = dp.Budget(epsilon=2.0, delta=DELTA)


def status(report: dp.Report) -> str:
    return str(json.loads(report.json())["status"]["key"])


# --- what it claims ---


def test_the_claim_is_the_accountants() -> None:
    ledger = ledger_of((STEP, 20))
    report = dp.Report.of(ledger, delta=DELTA)
    assert report.guarantee == dp.account(ledger, delta=DELTA)
    claim = json.loads(report.json())["claim"]
    assert (claim["epsilon_upper"], claim["epsilon_lower"]) == (report.guarantee.upper, report.guarantee.lower)
    assert claim["epsilon_rdp"] == dp.account(ledger, delta=DELTA, accountant="rdp").upper
    assert claim["holds"]
    assert status(report) == "holds"


def test_delta_comes_from_the_argument_then_the_target_then_the_budget() -> None:
    plan = planned(epsilon=2.0)
    ledger = executed(plan)
    assert dp.Report.of(ledger, delta=1e-7, plan=plan).guarantee.delta == 1e-7
    assert dp.Report.of(ledger, plan=plan, budget=dp.Budget(epsilon=3.0, delta=1e-4)).guarantee.delta == DELTA
    assert dp.Report.of(ledger, budget=dp.Budget(epsilon=3.0, delta=1e-4)).guarantee.delta == 1e-4
    with pytest.raises(dp.ParameterError, match="delta"):
        dp.Report.of(ledger)
    with pytest.raises(dp.ParameterError, match="delta"):
        dp.Report.of(ledger, plan=planned())


@pytest.mark.parametrize("name", ["plan", "audit", "budget"])
def test_arguments_of_another_kind_are_refused(name: str) -> None:
    with pytest.raises(dp.ParameterError, match=name):
        dp.Report.of(ledger_of((STEP, 1)), delta=DELTA, **{name: "x"})  # type: ignore[arg-type]


def test_several_runs_with_different_steps_are_one_claim() -> None:
    ledger = ledger_of((STEP, 20))
    extend(ledger, (step_of(dp.Everything(), 30.0), 3), (step_of(dp.Poisson(0.02), 4.0), 7), info=replace(INFO, label="second"))
    report = dp.Report.of(ledger, delta=DELTA)
    assert report.guarantee == dp.account(ledger, delta=DELTA)
    document = json.loads(report.json())
    assert [row["cells"][:2] for row in document["charges"]["rows"]] == [["first", "20"], ["second", "3"], ["second", "7"]]
    assert [row["cells"][0] for row in document["runs"]["rows"]] == ["first", "second"]
    assert len(document["groups"]) == 3


@pytest.mark.parametrize(
    "query",
    [
        dp.LaplaceSum("grad", 1.0, 20.0),
        dp.ExponentialChoice("grad", 1.0, 20.0),
        dp.CorrelatedGaussianSum("grad", 1.0, 20.0, 2.0, rounds=8, participations=2, separation=4),
    ],
    ids=lambda query: type(query).__name__,
)
def test_other_queries_than_gaussian_sums(query: dp.ledger.Query) -> None:
    step = dp.Step(dp.Everything(), [query, dp.GaussianSum("metric", 1.0, 30.0)])
    report = dp.Report.of(ledger_of((step, 2)), delta=DELTA)
    assert "metric" in report.html() and "metric" in report.markdown()  # noqa: PT018
    assert report.guarantee.upper == dp.account([(step, 2)], delta=DELTA, adjacency=INFO.adjacency).upper


def test_randomized_response() -> None:
    info = replace(INFO, adjacency=dp.Adjacency.REPLACE_ONE)
    step = dp.Step(dp.Everything(), dp.RandomizedResponse("grad", 2, 0.6))
    report = dp.Report.of(ledger_of((step, 1), info=info), delta=DELTA)
    assert "the true one with probability 0.6" in report.html()


def test_unsettled_steps_count_and_are_named() -> None:
    ledger = ledger_of((STEP, 20))
    ledger.reserve(STEP, count=12)
    report = dp.Report.of(ledger, delta=DELTA)
    assert report.guarantee.upper == dp.account([(STEP, 32)], delta=DELTA, adjacency=INFO.adjacency).upper
    assert [(found.severity, found.text[:14]) for found in report.deviations] == [("note", "12 steps of 32")]
    assert "12 steps were reserved and not settled; they count in full" in items(report, "json")["3b"]


def test_nothing_taken_costs_nothing() -> None:
    ledger = dp.Ledger.in_memory()
    ledger.begin(INFO)
    ledger.reserve(STEP, count=5).settle()
    report = dp.Report.of(ledger, delta=DELTA)
    assert report.guarantee.upper == 0.0
    assert report.html()


def test_an_empty_ledger_has_no_report() -> None:
    ledger = dp.Ledger.in_memory()
    with pytest.raises(dp.AccountingError):
        dp.Report.of(ledger, delta=DELTA)
    ledger.begin(INFO)
    with pytest.raises(dp.AccountingError):
        dp.Report.of(ledger, delta=DELTA)


@pytest.mark.parametrize("other", [{"unit": dp.Unit.USER}, {"adjacency": dp.Adjacency.ZERO_OUT}], ids=str)
def test_runs_that_protect_different_things_have_no_common_report(other: dict[str, object]) -> None:
    ledger = ledger_of((STEP, 2))
    extend(ledger, (STEP, 2), info=replace(INFO, **other))  # type: ignore[arg-type]
    with pytest.raises(dp.AccountingError):
        dp.Report.of(ledger, delta=DELTA)
    marked = dp.Ledger.in_memory()
    for info in (INFO, replace(INFO, **other)):  # type: ignore[arg-type]
        marked.begin(info)
        marked.mark("unsafe_no_privacy")
    with pytest.raises(dp.AccountingError):
        dp.Report.of(marked, delta=DELTA)


# --- no guarantee ---


def test_a_marked_ledger_has_no_guarantee_and_no_curve() -> None:
    ledger = ledger_of((STEP, 20))
    ledger.mark("unsafe_example")
    report = dp.Report.of(ledger, delta=DELTA)
    document = json.loads(report.json())
    assert status(report) == "void"
    assert not document["claim"]["holds"]
    assert document["tradeoff"] is None is document["spending"]
    assert document["sentence"].startswith("There is no guarantee")
    for text in (report.html(), report.markdown(), report.json()):
        assert "NO GUARANTEE: voided by unsafe_example" in text
    assert [found.severity for found in report.deviations] == ["wrong"]


def test_a_plan_without_privacy_charges_nothing_and_has_no_guarantee() -> None:
    plan = dp.Plan(sampler=dp.Sampler(dp.Poisson(0.1), records=100, steps=3), mechanism=dp.NotPrivate())
    ledger = dp.Ledger.in_memory()
    ledger.begin(plan.run_info("baseline"))
    ledger.mark("unsafe_no_privacy")
    report = dp.Report.of(ledger, delta=DELTA, plan=plan)
    assert math.isinf(report.guarantee.upper)
    assert report.guarantee.voided_by == ("unsafe_no_privacy",)
    assert status(report) == "void"
    assert json.loads(report.json())["claim"]["epsilon_upper"] == "infinity"
    assert "NOT PRIVATE" in report.html()


def test_an_infinite_epsilon_is_no_guarantee() -> None:
    report = dp.Report.of(ledger_of((step_of(dp.Everything(), 1e-200), 2)), delta=DELTA)
    assert math.isinf(report.guarantee.upper)
    assert status(report) == "void"
    assert "no finite epsilon" in report.markdown()


def test_a_weak_guarantee_is_a_finite_one() -> None:
    report = dp.Report.of(ledger_of((step_of(dp.Everything(), 0.01), 2)), delta=DELTA)
    assert 10.0 < report.guarantee.upper < math.inf
    assert status(report) == "holds"
    assert "tier 3" in report.markdown()
    assert "factor of e^" in report.html()


# --- steps chosen from outputs ---


def test_p39_a_filtered_ledger_needs_its_budget_and_claims_all_of_it() -> None:
    ledger = ledger_of((STEP, 5), info=FILTERED)
    with pytest.raises(dp.AccountingError, match="budget="):
        dp.Report.of(ledger, delta=DELTA)
    report = dp.Report.of(ledger, budget=BUDGET)
    assert (report.guarantee.upper, report.guarantee.delta) == (2.0, DELTA)
    document = json.loads(report.json())
    assert document["spending"] is None
    assert document["claim"]["epsilon_rdp"] is None
    assert math.exp(2.0) * 0.01 + DELTA <= document["claim"]["hit_rate_at_1_percent"] < 0.0739 + 2 * DELTA
    assert "filter" in items(report, "md")["3a"]
    assert "Under a filter" in items(report, "md")["3c"]


def test_p39_a_filter_proves_nothing_at_another_delta_or_under_another_budget() -> None:
    ledger = ledger_of((STEP, 5), info=FILTERED)
    with pytest.raises(dp.ParameterError, match="delta"):
        dp.Report.of(ledger, delta=1e-9, budget=BUDGET)
    with pytest.raises(dp.AccountingError, match="admitted"):
        dp.Report.of(ledger, budget=dp.Budget(epsilon=0.01, delta=DELTA))


# --- charts ---


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
            [(STEP, min(int(steps), 40)), (other, max(int(steps) - 40, 0))], delta=DELTA, adjacency=INFO.adjacency
        )
        assert exact.lower <= epsilon <= exact.upper * 1.01


def test_the_named_point_lies_on_the_curve_and_bounds_the_best_attack() -> None:
    """One full-batch Gaussian of multiplier 1: the best attack at 1 % finds Phi(Phi^-1(0.01) + 1) = 0.09236."""
    document = json.loads(dp.Report.of(ledger_of((step_of(dp.Everything(), 1.0), 1)), delta=DELTA).json())
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
def test_the_attackers_best_is_near_the_best_limit_known(step: dp.Step, count: int) -> None:
    ledger = ledger_of((step, count))
    hits = json.loads(dp.Report.of(ledger, delta=DELTA).json())["claim"]["hit_rate_at_1_percent"]
    assert hits <= 1.01 * hit_rate(profile_of(ledger), false_positive_rate=0.01)


def test_without_amplification_a_full_truncated_sample_changes_in_two_records() -> None:
    sampling = dp.TruncatedPoisson(0.05, 90, 1000)
    for adjacency, noise in ((dp.Adjacency.ADD_OR_REMOVE, 2.5), (dp.Adjacency.ZERO_OUT, 5.0), (dp.Adjacency.REPLACE_ONE, 2.5)):
        ledger = ledger_of((step_of(sampling), 4), info=replace(INFO, adjacency=adjacency))
        found = unamplified(ledger, DELTA, dp.account(ledger, delta=DELTA, accountant="rdp"))
        known = dp.account([(step_of(dp.Everything(), noise), 4)], delta=DELTA, adjacency=dp.Adjacency.ADD_OR_REMOVE)
        assert found is not None
        assert found.upper == pytest.approx(known.upper, rel=1e-9)


def test_shares_of_groups_sum_to_one() -> None:
    step = dp.Step(dp.Poisson(0.05), [dp.GaussianSum("grad", 3.0, 15.0), dp.GaussianSum("metric", 4.0, 15.0)])
    (bars,) = json.loads(dp.Report.of(ledger_of((step, 3)), delta=DELTA).json())["groups"]
    assert {bar["name"]: pytest.approx(bar["share"]) for bar in bars["bars"]} == {"grad": 9 / 25, "metric": 16 / 25}


def test_many_groups_and_many_runs_stay_small() -> None:
    step = dp.Step(dp.Poisson(0.05), [dp.GaussianSum(f"group {i:03}" + "x" * 180, 1.0, 100.0) for i in range(60)])
    ledger = ledger_of((step, 5))
    for i in range(12):
        extend(ledger, (STEP, 2), info=replace(INFO, label=f"run {i}"))
    page = dp.Report.of(ledger, delta=DELTA).html()
    assert len(page) < 500_000
    assert "48 more groups" in page


# --- files ---


def test_every_format_is_written_whole_over_an_earlier_report(tmp_path: Path) -> None:
    report = dp.Report.of(ledger_of((STEP, 3)), delta=DELTA)
    for name, text in (("a.html", report.html()), ("a.md", report.markdown()), ("a.json", report.json())):
        (tmp_path / name).write_text("earlier")
        assert report.write(tmp_path / name) == tmp_path / name
        assert (tmp_path / name).read_text(encoding="utf-8") == text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.html", "a.json", "a.md"]
    assert report.write(str(tmp_path / "b.md")).exists()


@pytest.mark.parametrize("name", ["report", "report.pdf", "report.HTML", "nowhere/report.html"])
def test_a_path_that_cannot_be_written_is_refused(tmp_path: Path, name: str) -> None:
    report = dp.Report.of(ledger_of((STEP, 3)), delta=DELTA)
    with pytest.raises(dp.ParameterError, match="path"):
        report.write(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_all_formats_have_the_same_facts() -> None:
    plan = planned(epsilon=2.0)
    ledger = executed(plan)
    report = dp.Report.of(ledger, plan=plan, audit=audit_of(ledger))
    document = json.loads(report.json())
    page, text = report.html(), report.markdown()
    for row in [*document["comparison"]["rows"], *document["charges"]["rows"], *document["runs"]["rows"]]:
        for cell in row["cells"]:
            assert cell in page
            assert cell.replace("*", r"\*") in text
    for figure in document["figures"]:
        assert figure["value"] in page
        assert f"**{figure['value']}**" in text
    assert items(report, "html").keys() == items(report, "md").keys() == items(report, "json").keys()


def test_the_report_is_about_the_ledger_as_it_was() -> None:
    ledger = ledger_of((STEP, 3))
    report = dp.Report.of(ledger, delta=DELTA)
    before = report.json()
    extend(ledger, (STEP, 50), info=INFO)
    assert report.json() == before


def test_importing_discreet_does_not_import_jinja2() -> None:
    code = "import sys, discreet; assert discreet.Report; sys.exit('jinja2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
