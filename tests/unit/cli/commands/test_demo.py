"""`discreet demo`: its plan, and that it replaces nothing that no earlier demo wrote."""

from pathlib import Path

import pytest

import discreet as dp
from discreet.cli.commands.demo import _check_folder, plan_for
from discreet.errors import DiscreetError
from discreet.plan import Target
from support.command import PLAN, execute


def test_the_plan_spends_the_target_and_hardly_any_of_it_on_the_accuracy() -> None:
    target = Target(epsilon=3.0, delta=1e-5)
    plan = plan_for(target, 1437, "metric/accuracy").for_leaves(
        {"grad/weight": 4, "metric/accuracy": 1}
    )
    guarantee = dp.account(plan, delta=target.delta)
    assert target.epsilon * 0.99 < guarantee.upper <= target.epsilon
    ratios = {query.group: query for query in plan.queries()}
    gradient, accuracy = ratios["grad/*"], ratios["metric/accuracy"]
    assert isinstance(gradient, dp.ledger.GaussianSum)
    assert isinstance(accuracy, dp.ledger.GaussianSum)
    shares = [(query.sensitivity / query.noise_std) ** 2 for query in (gradient, accuracy)]
    assert shares[1] < 0.01 * sum(shares)


def test_files_of_others_are_not_replaced(tmp_path: Path) -> None:
    _check_folder(tmp_path)
    _check_folder(tmp_path / "not" / "there")
    (tmp_path / "report.html").write_text("mine")
    with pytest.raises(DiscreetError, match="Nothing was written"):
        _check_folder(tmp_path)


def test_the_ledger_of_a_real_run_is_not_replaced(tmp_path: Path) -> None:
    with dp.Ledger.open(tmp_path / "demo.ledger") as ledger:
        execute(ledger, PLAN, label="months of work")
    with pytest.raises(DiscreetError, match="an earlier demo"):
        _check_folder(tmp_path)


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DiscreetError, match="a folder to write to"):
        _check_folder(tmp_path / "file")
