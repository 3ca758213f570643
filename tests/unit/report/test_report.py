"""Reports on every kind of ledger, and their files."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

import discreet as dp
from support.reports import DELTA, INFO, STEP, audit_of, executed, items, ledger_of, planned
from support.source import ROOT


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


# --- steps chosen from outputs ---


# --- what the ledger is held to ---


# --- to sign ---


# --- charts ---


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


def test_importing_discreet_does_not_import_jinja2() -> None:
    code = "import sys, discreet; assert discreet.Report; sys.exit('jinja2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
