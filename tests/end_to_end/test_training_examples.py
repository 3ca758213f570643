"""The training examples run, learn, and spend what they declare; a private script is an ordinary
one but for a few lines.
"""

import difflib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import discreet as dp
from support.source import ROOT

EXAMPLES = ROOT / "examples" / "training"


def execute(name: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / name)],
        cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def run(name: str, folder: Path) -> str:
    result = execute(name, folder)
    assert result.returncode == 0, result.stderr
    return result.stdout


def accuracy(out: str) -> float:
    (found,) = re.findall(r"test accuracy ([0-9.]+)%", out)
    return float(found)


def test_a_script_becomes_private_by_at_most_twenty_lines() -> None:
    plain, private = (
        (EXAMPLES / name).read_text().splitlines() for name in ("plain.py", "private.py")
    )
    changed = [line for line in difflib.ndiff(plain, private) if line[0] in "+-"]
    assert 0 < len(changed) <= 20


def test_model_and_optimizer_stay_the_users_own() -> None:
    """What does not differ: the model, the data, the optimizer and how it steps, the test."""
    private = (EXAMPLES / "private.py").read_text()
    for line in (EXAMPLES / "plain.py").read_text().splitlines():
        if any(
            word in line
            for word in (
                "nn.Sequential",
                "optim.SGD",
                "optimizer.",
                "scheduler.step",
                "argmax",
                "load_digits",
            )
        ):
            assert line in private


@pytest.mark.full
def test_the_plain_script_learns(tmp_path: Path) -> None:
    assert (
        accuracy(run("plain.py", tmp_path)) > 93.0
    )  # in seven runs it lay between 96.7 % and 97.5 %


def test_the_private_script_learns_and_spends_what_it_declares(tmp_path: Path) -> None:
    out = run("private.py", tmp_path)
    assert accuracy(out) > 88.0  # in seven runs it lay between 91.7 % and 94.2 %; chance is 10 %
    with dp.Ledger.open(tmp_path / "digits.ledger", "r") as ledger:
        (charge,) = ledger.verify().charges()
        guarantee = dp.account(ledger, delta=1e-5)
    assert charge.count == 113  # 20 passes over 1437 records, 256 at a time
    assert 2.9 < guarantee.epsilon <= 3.0
    assert str(guarantee) in out


def test_p34_groups_share_one_sample_and_one_charge(tmp_path: Path) -> None:
    out = run("groups.py", tmp_path)
    assert accuracy(out) > 85.0  # in eight runs it lay between 90.6 % and 92.2 %
    with dp.Ledger.open(tmp_path / "groups.ledger", "r") as ledger:
        (charge,) = ledger.verify().charges()
        guarantee = dp.account(ledger, delta=1e-5)
    groups = {"grad/first.*", "grad/*", "grad/*/below", "metric/accuracy", "bn/*"}
    assert {query.group for query in charge.step.queries} == groups
    assert 2.9 < guarantee.epsilon <= 3.0
    curve = [
        float(percent) for percent in re.findall(r"private training accuracy (-?[0-9]+)%", out)
    ]
    # The private metric follows the training: from about 64 % to about 92 %, noise about 4 % each.
    late = sum(curve[-3:]) / 3
    assert curve[0] < late == pytest.approx(accuracy(out), abs=15.0)


@pytest.mark.full
def test_a_second_run_is_refused_for_good_and_what_was_stated_stays_true(tmp_path: Path) -> None:
    """A ledger belongs to a data set, and people run a script again because they looked at what
    came out.
    """
    run("private.py", tmp_path)
    again = execute("private.py", tmp_path)
    assert again.returncode == 1
    assert "BudgetExceeded" in again.stderr
    assert "Odometer" in again.stderr  # what to do
    with dp.Ledger.open(tmp_path / "digits.ledger", "r") as ledger:
        assert [charge.count for charge in ledger.verify().charges()] == [113]
        assert 2.9 < dp.account(ledger, delta=1e-5).upper <= 3.0


@pytest.mark.full
def test_phases_learn_spend_their_target_and_agree_with_the_declared_schedule(
    tmp_path: Path,
) -> None:
    out = run("schedule.py", tmp_path)
    assert accuracy(out) > 84.0  # chance is 10 %
    with dp.Ledger.open(tmp_path / "schedule.ledger", "r") as ledger:
        assert [(charge.run.label, charge.count) for charge in ledger.charges()] == [
            ("phase 1", 60),
            ("phase 2", 60),
        ]
        report = dp.Report.of(ledger, plan=dp.Programme.load(tmp_path / "schedule.toml"))
    assert report.deviations == ()
    assert 2.98 < report.guarantee.upper <= 3.0
