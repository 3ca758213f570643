"""The demo is real: it learns, charges what it planned, and leaves a ledger, a plan and a report that agree."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import discreet as dp
from discreet.report import Report
from support.command import ENVIRONMENT, contents, discreet, executed, many
from support.plans import plain_plan

FILES = ["demo.ledger", "plan.toml", "report.html", "report.md"]


def test_the_demo_trains_in_a_terminal_and_leaves_files_that_agree(tmp_path: Path) -> None:
    (shown,) = many([["demo", "--into", "out", "--epsilon", "3"]], cwd=tmp_path, terminal=True)
    assert shown.code == 0, shown.out
    for word in ("at the end", "budget 3", "metric/accuracy", "120/120", "with privacy", "without", "The digits are public"):
        assert word in shown.out.replace("\r\n", " ")  # bar, result, and why the ledger may be replaced
    folder = tmp_path / "out"
    assert sorted(os.listdir(folder)) == FILES
    plan = dp.Plan.load(folder / "plan.toml")
    with dp.Ledger.open(folder / "demo.ledger", "r") as ledger:
        (charge,) = ledger.verify().charges()
        assert (charge.count, charge.unsettled, charge.step) == (120, 0, plan.step)
        assert 2.99 < dp.account(ledger, delta=1e-5).upper <= 3.0
        assert not Report.of(ledger, plan=plan).deviations
        assert ledger.head() in (folder / "report.html").read_text()
        assert ledger.head() in (folder / "report.md").read_text()


def test_the_demo_again_replaces_its_own_ledger_and_no_other(tmp_path: Path) -> None:
    first = discreet("demo", "--into", ".", "--epsilon", "2", "--delta", "1e-6", "--json", cwd=tmp_path)
    assert first.code == 0, first.err
    data = json.loads(first.out)
    assert data["guarantee"]["epsilon"] <= 2.0
    assert data["guarantee"]["delta"] == 1e-6
    # Chance is 10 %. At epsilon 3, 20 runs lay between 94 % and 97 %; at 2 it is about 1 % less.
    assert 0.85 < data["test_accuracy"] <= data["test_accuracy_without_privacy"] + 0.02
    assert data["test_accuracy_without_privacy"] > 0.97
    assert (
        abs(data["private_training_accuracy"] - data["test_accuracy"]) < 6 * data["private_training_accuracy_noise_std"] + 0.1
    )
    with dp.Ledger.open(tmp_path / "demo.ledger", "r") as ledger:
        head = ledger.head()
    (tmp_path / "other").mkdir()
    executed(tmp_path / "other" / "demo.ledger", plain_plan()).close()
    before = contents(tmp_path / "other")
    again, refused = many([["demo", "--into", ".", "--json"], ["demo", "--into", "other"]], cwd=tmp_path)
    assert again.code == 0, again.err
    assert refused.code == 2
    assert "one that an earlier demo wrote" in refused.err
    assert contents(tmp_path / "other") == before
    with dp.Ledger.open(tmp_path / "demo.ledger", "r") as ledger:
        assert ledger.head() != head
        assert [charge.count for charge in ledger.charges()] == [120]


def test_an_interrupt_ends_it_with_one_line_and_a_sound_ledger(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "discreet", "demo", "--into", "."],
        cwd=tmp_path,
        env=ENVIRONMENT,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    while "Folded" not in process.stderr.readline():  # the plan was shown: training begins
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert err.strip() == "discreet: Interrupted."
    assert not out
    if (tmp_path / "demo.ledger").exists():
        dp.Ledger.open(tmp_path / "demo.ledger", "r").verify().close()
