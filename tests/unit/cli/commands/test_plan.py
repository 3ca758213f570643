"""`discreet plan`: three numbers find the fourth, and what it finds can be saved."""

from pathlib import Path

import pytest

import discreet as dp
from discreet.cli.commands.plan import _delta, _missing
from discreet.errors import DiscreetError
from support.command import PLAN, answered, in_process

ASKED = ("plan", "--records", 1000, "--batch-size", 50, "--steps", 20, "--epsilon", 3)


def test_the_plan_that_is_saved_is_the_one_that_python_makes(tmp_path: Path) -> None:
    path = tmp_path / "new.toml"
    answered(*ASKED, "--save", path)
    plan = dp.Plan.dpsgd(records=1000, expected_batch_size=50, steps=20, epsilon=3.0)
    assert dp.Plan.load(path) == plan
    assert in_process(*ASKED, "--save", path).code == 2


def test_exactly_one_number_is_left_out() -> None:
    assert _missing({"--steps": (None, None), "--epsilon": (3.0,)}) == "--steps"
    with pytest.raises(DiscreetError, match="all of them"):
        _missing({"--steps": (5, None), "--epsilon": (3.0,)})
    with pytest.raises(DiscreetError, match="--steps and --epsilon left out"):
        _missing({"--steps": (None, None), "--epsilon": (None,)})


def test_delta_is_the_targets_then_the_one_asked_for_then_the_usual_one() -> None:
    target = dp.Plan.dpsgd(records=1000, sampling_probability=0.1, steps=2, epsilon=9.0, delta=1e-4)
    assert _delta(target, 1e-7, 1000) == 1e-4
    assert _delta(PLAN, 1e-7, 1000) == 1e-7
    assert _delta(PLAN, None, 1000) < 1.0 / 1000
    with pytest.raises(DiscreetError, match="--delta, or --records"):
        _delta(PLAN, None, None)


def test_options_before_a_command_that_makes_no_plan_are_refused(tmp_path: Path) -> None:
    """Wrong: to ignore them."""
    done = in_process("plan", "--epsilon", 3, "show", tmp_path / "a.ledger")
    assert (done.code, done.out) == (2, "")
