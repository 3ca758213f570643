"""A signed report against its ledger: later rows are fine, anything else is told."""

from pathlib import Path

import pytest

import discreet as dp
from discreet.cli.views.ledger_lines import lines_of
from discreet.cli.views.signed import compare
from support.command import PLAN, execute

DELTA = 1e-6


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "a.ledger"
    with dp.Ledger.open(path, budget=dp.Odometer(delta=DELTA)) as ledger:
        execute(ledger, PLAN)
    return path


def page_of(path: Path) -> str:
    with dp.Ledger.open(path, "r") as ledger:
        return dp.Report.of(ledger).markdown()


def test_a_ledger_says_what_its_report_says_also_after_further_runs(path: Path) -> None:
    page = page_of(path)
    with dp.Ledger.open(path) as ledger:
        execute(ledger, PLAN, label="second")
    found = compare(page, lines_of(path))
    assert found.problems == ()
    assert found.added is not None
    assert found.added > 0
    answer = found.answer("a.md")
    assert answer.code == 0
    assert "computed from the rows before them" in str(answer.shown)


def test_another_ledger_does_not_have_the_head(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "b.ledger"
    with dp.Ledger.open(other) as ledger:
        execute(ledger, PLAN)
    found = compare(page_of(path), lines_of(other))
    assert "another one, or rewritten" in found.problems[0]
    assert (found.recomputed, found.answer("a.md").code) == (None, 1)


def test_a_mark_that_came_later_takes_the_guarantee_away(path: Path) -> None:
    page = page_of(path)
    with dp.Ledger.open(path) as ledger:
        ledger.mark(ledger.runs()[0].number, "unsafe_example")
    (problem,) = compare(page, lines_of(path)).problems
    assert "there is no guarantee any more" in problem


def test_p48_an_epsilon_that_was_edited_is_told(path: Path) -> None:
    page = page_of(path)
    found = compare(page, lines_of(path))
    stated = repr(found.stamp.epsilon)
    assert page.count(stated) == 1
    edited = compare(page.replace(stated, "0.01"), lines_of(path))
    assert any("The report says epsilon 0.01" in problem for problem in edited.problems)
