"""`discreet account`: what sources cost, alone and together, and whether it is within a limit."""

from pathlib import Path
from typing import Any

import pytest

import discreet as dp
from support.command import PLAN, answered, executed, in_process

DELTA = 1e-6


def claim(*arguments: object, code: int = 0) -> Any:
    """The one guarantee that a command states."""
    (guarantee,) = answered(*arguments, code=code)["guarantees"]
    return guarantee


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    path = tmp_path / "a.ledger"
    executed(path, PLAN).close()
    return path


def test_the_number_is_the_accountants(ledger: Path) -> None:
    found = claim("account", ledger, "--delta", DELTA)
    with dp.Ledger.open(ledger, "r") as source:
        assert found["epsilon"] == dp.account(source, delta=DELTA).upper
    assert found["valid"] is True


@pytest.mark.parametrize(("share", "code"), [(1.01, 0), (0.99, 1)])
def test_a_limit_makes_the_answer_yes_or_no(ledger: Path, share: float, code: int) -> None:
    epsilon = claim("account", ledger, "--delta", DELTA)["epsilon"]
    limit = epsilon * share
    answered("account", ledger, "--delta", DELTA, "--at-most", repr(limit), code=code)


def test_several_sources_cost_together_what_their_steps_cost(ledger: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    PLAN.save(plan)
    both = claim("account", ledger, plan, "--delta", DELTA)
    whole = dp.account([(PLAN.step, 2 * PLAN.steps)], delta=DELTA, adjacency=PLAN.adjacency)
    assert both["epsilon"] == whole.upper


def test_delta_and_epsilon_together_are_wrong_input(ledger: Path) -> None:
    done = in_process("account", ledger, "--delta", DELTA, "--epsilon", 1)
    assert (done.code, done.out) == (2, "")


def test_a_void_ledger_is_a_no_under_any_limit(tmp_path: Path) -> None:
    path = tmp_path / "void.ledger"
    with executed(path, PLAN) as ledger:
        ledger.mark(ledger.runs()[0].number, "unsafe_example")
    found = claim("account", path, "--delta", DELTA, "--at-most", 1000, code=1)
    assert (found["valid"], found["epsilon"]) == (False, None)
