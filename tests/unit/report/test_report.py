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
from discreet._digits import upward
from discreet.accounting import hit_rate, profile_of
from discreet.report import Subject
from discreet.report.facts.curves import unamplified
from discreet.report.formats.stamp import read_stamp
from support.reports import (
    DELTA,
    INFO,
    STEP,
    audit_of,
    executed,
    extend,
    items,
    ledger_of,
    listed,
    planned,
    step_of,
)
from support.source import ROOT

FILTERED = replace(INFO, parameters=dp.units.Parameters.CHOSEN_FROM_OUTPUTS)
BUDGET = dp.Filter(epsilon=2.0, delta=DELTA)


def status(report: dp.Report) -> str:
    return str(json.loads(report.json())["status"]["key"])


# --- what it claims ---


def test_the_claim_is_the_accountants() -> None:
    ledger = ledger_of((STEP, 20))
    report = dp.Report.of(ledger, delta=DELTA)
    assert report.guarantee == dp.account(ledger, delta=DELTA)
    claim = json.loads(report.json())["claim"]
    assert (claim["epsilon_upper"], claim["epsilon_lower"]) == (
        report.guarantee.upper,
        report.guarantee.lower,
    )
    assert claim["epsilon_rdp"] == dp.account(ledger, delta=DELTA, accountant="rdp").upper
    assert claim["holds"]
    assert status(report) == "holds"


def test_delta_comes_from_the_argument_then_the_target_then_the_budget() -> None:
    plan = planned(epsilon=2.0)
    ledger = executed(plan)
    assert dp.Report.of(ledger, delta=1e-7, plan=plan).guarantee.delta == 1e-7
    held = executed(plan, budget=dp.Budget(epsilon=3.0, delta=1e-4))
    assert dp.Report.of(held, plan=plan).guarantee.delta == DELTA
    assert dp.Report.of(held).guarantee.delta == 1e-4
    with pytest.raises(dp.errors.ParameterError, match="delta"):
        dp.Report.of(ledger)
    with pytest.raises(dp.errors.ParameterError, match="delta"):
        dp.Report.of(ledger, plan=planned())


def test_delta_comes_last_from_the_target_of_the_plan_in_the_rows() -> None:
    plan = planned(epsilon=2.0)
    ledger = dp.Ledger.in_memory()
    run = ledger.begin(plan.run_info("final"), [(plan.step, plan.steps)], plan=plan.as_row())
    for _ in run.steps(plan.step, plan.steps):
        pass
    assert dp.Report.of(ledger).guarantee.delta == DELTA


@pytest.mark.parametrize("name", ["plan", "audit", "subject"])
def test_arguments_of_another_kind_are_refused(name: str) -> None:
    with pytest.raises(dp.errors.ParameterError, match=name):
        dp.Report.of(ledger_of((STEP, 1)), delta=DELTA, **{name: "x"})  # type: ignore[arg-type]


def test_several_runs_with_different_steps_are_one_claim() -> None:
    others = (step_of(dp.Everything(), 30.0), 3), (step_of(dp.Poisson(0.02), 4.0), 7)
    ledger = ledger_of((STEP, 20), budget=listed((STEP, 20), *others))
    extend(ledger, *others, info=replace(INFO, label="second"))
    report = dp.Report.of(ledger, delta=DELTA)
    assert report.guarantee == dp.account(ledger, delta=DELTA)
    document = json.loads(report.json())
    assert [row["cells"][:2] for row in document["charges"]["rows"]] == [
        ["first", "20"],
        ["second", "3"],
        ["second", "7"],
    ]
    assert [row["cells"][1] for row in document["runs"]["rows"]] == ["first", "second", "together"]
    alone = [row["cells"][-1] for row in document["runs"]["rows"]]
    expected = [
        dp.account(steps, delta=DELTA, adjacency=INFO.adjacency).upper
        for steps in ([(STEP, 20)], others)
    ]
    assert alone == [upward(expected[0]), upward(expected[1]), upward(report.guarantee.upper)]
    assert len(document["groups"]) == 3


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


def test_unsettled_steps_count_and_are_named() -> None:
    ledger = dp.Ledger.in_memory()
    run = ledger.begin(INFO, [(STEP, 32)])
    run.reserve(STEP, count=20).settle()
    lease = run.reserve(STEP, count=12)
    report = dp.Report.of(ledger, delta=DELTA)
    assert (
        report.guarantee.upper
        == dp.account([(STEP, 32)], delta=DELTA, adjacency=INFO.adjacency).upper
    )
    assert [(found.severity, found.text[:14]) for found in report.deviations] == [
        ("note", "12 steps of 12")
    ]
    assert (
        "12 steps were reserved and not settled; they count in full" in items(report, "json")["3b"]
    )
    assert lease.left == 12


@pytest.mark.parametrize("reason", ["", "power failure"])
def test_nothing_taken_costs_the_plan_unless_a_public_reason_was_declared(reason: str) -> None:
    ledger = dp.Ledger.in_memory()
    run = ledger.begin(INFO, [(STEP, 5)])
    run.reserve(STEP, count=5).settle()
    run.end(reason)
    report = dp.Report.of(ledger, delta=DELTA)
    assert report.guarantee.upper == (
        0.0 if reason else dp.account([(STEP, 5)], delta=DELTA, adjacency=INFO.adjacency).upper
    )
    assert (f"Declared: “{reason}”." in report.html()) is bool(reason)


def test_an_empty_ledger_has_no_report() -> None:
    ledger = dp.Ledger.in_memory()
    with pytest.raises(dp.errors.AccountingError):
        dp.Report.of(ledger, delta=DELTA)
    ledger.begin(INFO)
    with pytest.raises(dp.errors.AccountingError):
        dp.Report.of(ledger, delta=DELTA)


@pytest.mark.parametrize("name", ["two_runs", "one_run", "killed"])
def test_a_file_of_schema_1_says_that_it_holds_no_budget_and_has_the_old_words(name: str) -> None:
    with dp.Ledger.load(ROOT / "tests" / "data" / "schema1" / f"{name}.jsonl") as ledger:
        report = dp.Report.of(ledger, delta=DELTA)
        assert report.guarantee == dp.account(ledger, delta=DELTA)
    for text in (report.html(), report.markdown(), report.json()):
        assert "This file holds no budget: it is of schema 1" in text
    assumptions = items(report, "json")["3b"]
    assert "fixed in advance, or depend on public values only relied on" in assumptions
    assert "Every run declared it." in assumptions


# --- no guarantee ---


def test_a_marked_ledger_has_no_guarantee_and_no_curve() -> None:
    ledger = ledger_of((STEP, 20), budget=dp.Budget(epsilon=3.0, delta=DELTA))
    ledger.mark(ledger.runs()[0].number, "unsafe_example")
    report = dp.Report.of(ledger, plan=planned(epsilon=2.0), audit=audit_of(ledger))
    document = json.loads(report.json())
    assert status(report) == "void"
    assert not document["claim"]["holds"]
    numbers = [
        value for name, value in document["claim"].items() if name.startswith(("epsilon", "hit"))
    ]
    assert numbers == [None] * 7
    assert document["stamp"]["epsilon"] is None
    assert document["sentence"].endswith("in these data.")
    computed = dp.account([(STEP, 20)], delta=DELTA, adjacency=INFO.adjacency)
    for text in (report.html(), report.markdown(), report.json()):
        assert "-differentially private" not in text
        assert upward(computed.upper) not in text
        assert "infinity" not in text
    assert document["tradeoff"] is None is document["spending"]
    assert document["sentence"].startswith("There is no guarantee")
    for text in (report.html(), report.markdown(), report.json()):
        assert "NO GUARANTEE: voided by unsafe_example" in text
    assert "The ledger is marked unsafe_example" in report.deviations[0].text


def test_a_plan_without_privacy_charges_nothing_and_has_no_guarantee() -> None:
    plan = dp.Plan(
        sampler=dp.Sampler(dp.Poisson(0.1), records=100, steps=3), mechanism=dp.NotPrivate()
    )
    ledger = dp.Ledger.in_memory()
    ledger.begin(plan.run_info("baseline")).mark("unsafe_no_privacy")
    report = dp.Report.of(ledger, delta=DELTA, plan=plan)
    assert math.isinf(report.guarantee.upper)
    assert report.guarantee.voided_by == ("unsafe_no_privacy",)
    assert status(report) == "void"
    assert json.loads(report.json())["claim"]["epsilon_upper"] is None
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


def test_p39_a_filtered_ledger_claims_all_of_its_budget() -> None:
    report = dp.Report.of(ledger_of((STEP, 5), info=FILTERED, budget=BUDGET))
    assert (report.guarantee.upper, report.guarantee.delta) == (2.0, DELTA)
    document = json.loads(report.json())
    assert document["spending"] is None
    assert document["claim"]["epsilon_rdp"] is None
    assert (
        math.exp(2.0) * 0.01 + DELTA
        <= document["claim"]["hit_rate_at_1_percent"]
        < 0.0739 + 2 * DELTA
    )
    assert "filter" in items(report, "md")["3a"]
    assert "Under a filter" in items(report, "md")["3c"]
    assert (
        "Every charge fits a filter that was fixed before the first release yes, checked"
        in items(report, "json")["3b"]
    )
    assert document["held_to"]["table"]["rows"][-1]["cells"][2:4] == ["2", "1e-05"]


def test_p39_a_filter_proves_nothing_at_another_delta() -> None:
    with pytest.raises(dp.errors.ParameterError, match="delta"):
        dp.Report.of(ledger_of((STEP, 5), info=FILTERED, budget=BUDGET), delta=1e-9)


def test_an_odometer_states_its_own_number_and_the_tight_one_beside_it_with_its_condition() -> None:
    ledger = ledger_of((STEP, 20), budget=dp.Odometer(delta=DELTA))
    extend(ledger, (STEP, 20), info=replace(FILTERED, label=""))
    report = dp.Report.of(ledger)
    tight = dp.account([(STEP, 40)], delta=DELTA, adjacency=INFO.adjacency).upper
    assert report.guarantee.if_fixed == tight < report.guarantee.upper
    document = json.loads(report.json())
    assert document["claim"]["epsilon_upper"] == report.guarantee.upper
    assert document["claim"]["epsilon_if_fixed"] == tight
    figures = {figure["name"]: figure for figure in document["figures"]}
    assert figures["epsilon, at most"]["value"] == upward(report.guarantee.upper)
    assert figures["if all was fixed in advance"]["value"] == upward(tight)
    assert (
        f"epsilon would be at most {upward(tight)}; whether they were, the ledger does not show."
        in document["meaning"][0]
    )
    assert (
        f"({upward(report.guarantee.upper)}, {DELTA!r})-differentially private"
        in document["sentence"]
    )
    assert (
        "What the odometer counts with was fixed before the first release yes, checked"
        in items(report, "json")["3b"]
    )
    assert [row["cells"][1] for row in document["runs"]["rows"]] == [
        "first",
        f"run {ledger.runs()[1].number}",
        "together",
    ]


# --- what the ledger is held to ---


def test_every_budget_that_a_ledger_had_is_shown_with_its_reason() -> None:
    ledger = ledger_of((STEP, 20))
    ledger.change_budget(3.0, delta=DELTA, reason="the board")
    ledger.change_budget(2.0, reason="the board again")
    document = json.loads(dp.Report.of(ledger).json())["held_to"]
    cells = [row["cells"][1:] for row in document["table"]["rows"]]
    rule = "list fixed in advance"
    assert cells == [
        [rule, "no limit", "—", "20", "—"],
        [rule, "3", "1e-05", "20", "the board"],
        [rule, "2", "1e-05", "20", "the board again"],
    ]
    assert document["paragraphs"][0] == (
        "A list of 20 steps that was fixed before the first release, and never more than (2, "
        "1e-05)."
    )


def test_a_list_is_checked_from_the_rows_and_reasons_are_on_somebodys_word() -> None:
    ledger = dp.Ledger.in_memory()
    run = ledger.begin(INFO, [(STEP, 20)])
    for _ in run.steps(STEP, 8):
        pass
    run.end("power failure")
    report = dp.Report.of(ledger, delta=DELTA)
    assumptions = items(report, "json")["3b"]
    assert (
        "they are a list yes, checked The list is in the rows before the first charge"
        in assumptions
    )
    assert (
        f"Run {run.number} (“first”) ended early for a public reason relied on Declared: "
        "“power failure”."
    ) in assumptions
    assert (
        report.guarantee.upper
        == dp.account([(STEP, 8)], delta=DELTA, adjacency=INFO.adjacency).upper
    )
    (row, _) = json.loads(report.json())["runs"]["rows"]
    assert row["cells"][3:7] == ["20", "8", "ended early", "power failure"]


# --- to sign ---


def test_names_are_shown_and_what_nobody_named_has_room() -> None:
    ledger = ledger_of((STEP, 20))
    subject = Subject(data_set="admissions", model="triage net", purpose="who is seen first")
    report = dp.Report.of(ledger, delta=DELTA, subject=subject)
    page, text, document = report.html(), report.markdown(), json.loads(report.json())
    for name in (
        "admissions",
        "triage net",
        "who is seen first",
        ledger.head(),
        ledger.snapshot().ledger,
    ):
        assert name in page.split('id="signature"')[1]
        assert name in text.split("## Signature")[1]
    assert (
        page.split('id="signature"')[1].count('class="room"') == 1 + 2 * 3
    )  # who ran it; name, date and signature of two
    assert document["signature"]["subject"][3] == ["run by", ""]
    with pytest.raises(dp.errors.ParameterError, match="'model'"):
        Subject(model="x" * 201)


@pytest.mark.parametrize("form", ["html", "markdown", "json"])
def test_the_stamp_says_which_rows_and_what_is_claimed_and_an_edited_page_contradicts_it(
    form: str,
) -> None:
    ledger = ledger_of((STEP, 20))
    report = dp.Report.of(ledger, delta=DELTA)
    page = getattr(report, form)()
    stamp = read_stamp(page)
    assert (stamp.head, stamp.ledger) == (ledger.head(), ledger.snapshot().ledger)
    assert (stamp.epsilon, stamp.delta, stamp.unit) == (report.guarantee.upper, DELTA, "example")
    assert stamp.contradictions(page) == ()
    claim = f"({upward(report.guarantee.upper)}, {DELTA!r})-"
    assert "in its sentences" in stamp.contradictions(page.replace(claim, "(0.1, 1e-05)-", 1))[0]
    other = page.replace(ledger.head(), "ab" * 32)
    assert stamp.contradictions(other) == (
        "The report names another head in its text than in its stamp.",
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# a page",
        "[]",
        "{}",
        '{"stamp": 3}',
        '{"stamp": {"head": "x"}}',
        '{"stamp": 1, "head": 3}',
    ],
    ids=repr,
)
def test_what_is_no_report_has_no_stamp(text: str) -> None:
    with pytest.raises(dp.errors.DiscreetError, match="report"):
        read_stamp(text)


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


def test_a_ledger_with_many_different_steps_gets_fewer_points_and_still_its_claim() -> None:
    ledger = ledger_of(*[(step_of(dp.Everything(), 50.0 + i), 1) for i in range(400)])
    report = dp.Report.of(ledger, delta=DELTA)
    document = json.loads(report.json())
    assert len(document["spending"]["points"]) == 5
    assert document["spending"]["points"][-1] == [400.0, report.guarantee.upper]
    assert len(document["charges"]["rows"]) == 301
    assert document["charges"]["rows"][-1]["cells"][0] == "and 100 more, in the ledger"
    assert len(report.html()) < 1_000_000


def test_a_plan_that_does_not_know_its_leaves_is_refused_with_advice() -> None:
    plan = dp.Plan(
        sampler=dp.Sampler(dp.Poisson(0.05), records=1000, steps=2), mechanism=dp.Split(1.0, 2.0)
    )
    with pytest.raises(dp.errors.ParameterError, match="run.plan"):
        dp.Report.of(ledger_of((STEP, 2)), delta=DELTA, plan=plan)


def test_many_groups_and_many_runs_stay_small() -> None:
    step = dp.ledger.Step(
        dp.Poisson(0.05),
        [dp.ledger.GaussianSum(f"group {i:03}" + "x" * 180, 1.0, 100.0) for i in range(60)],
    )
    ledger = ledger_of((step, 5), budget=listed((step, 5), (STEP, 24)))
    for i in range(12):
        extend(ledger, (STEP, 2), info=replace(INFO, label=f"run {i}"))
    page = dp.Report.of(ledger, delta=DELTA).html()
    assert len(page) < 500_000
    assert "48 more groups" in page


# --- files ---


def test_every_format_is_written_whole_over_an_earlier_report(tmp_path: Path) -> None:
    report = dp.Report.of(ledger_of((STEP, 3)), delta=DELTA)
    for name, text in (
        ("a.html", report.html()),
        ("a.md", report.markdown()),
        ("a.json", report.json()),
    ):
        (tmp_path / name).write_text("earlier")
        assert report.write(tmp_path / name) == tmp_path / name
        assert (tmp_path / name).read_text(encoding="utf-8") == text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.html", "a.json", "a.md"]
    assert report.write(str(tmp_path / "b.md")).exists()


@pytest.mark.parametrize("name", ["report", "report.pdf", "report.HTML", "nowhere/report.html"])
def test_a_path_that_cannot_be_written_is_refused(tmp_path: Path, name: str) -> None:
    report = dp.Report.of(ledger_of((STEP, 3)), delta=DELTA)
    with pytest.raises(dp.errors.ParameterError, match="path"):
        report.write(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_all_formats_have_the_same_facts() -> None:
    plan = planned(epsilon=2.0)
    ledger = executed(plan)
    report = dp.Report.of(ledger, plan=plan, audit=audit_of(ledger))
    document = json.loads(report.json())
    page, text = report.html(), report.markdown()
    for row in [
        *document["comparison"]["rows"],
        *document["charges"]["rows"],
        *document["runs"]["rows"],
    ]:
        for cell in row["cells"]:
            assert cell in page
            assert cell.replace("*", r"\*") in text
    for figure in document["figures"]:
        assert figure["value"] in page
        assert f"**{figure['value']}**" in text
    assert (
        items(report, "html").keys() == items(report, "md").keys() == items(report, "json").keys()
    )


def test_the_report_is_about_the_ledger_as_it_was() -> None:
    ledger = ledger_of((STEP, 3), budget=listed((STEP, 53)))
    report = dp.Report.of(ledger, delta=DELTA)
    before = report.json()
    extend(ledger, (STEP, 50), info=INFO)
    assert report.json() == before


def test_importing_discreet_does_not_import_jinja2() -> None:
    code = "import sys, discreet; assert discreet.Report; sys.exit('jinja2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
