"""Rows: what each of them must say, and what it refuses."""

from collections.abc import Callable
from dataclasses import replace

import pytest

import discreet as dp
from discreet.ledger.storage.rows import LONGEST_PLAN, Began, Ended, Marked, Reserved, Settled
from support.examples import INFO, OTHER_STEP, STEP


def test_run_info_refuses_what_does_not_say_what_is_protected() -> None:
    good = {name: getattr(INFO, name) for name in dp.ledger.RunInfo.__dataclass_fields__}
    for change in (
        {"unit": "example"},
        {"adjacency": "zero-out"},
        {"groups": ()},
        {"groups": "grad"},
        {"numerics": None},
        {"randomness": "system"},
        {"parameters": True},
        {"label": "a\nb"},
    ):
        with pytest.raises(dp.errors.ParameterError):
            dp.ledger.RunInfo(**(good | change))


def test_groups_are_a_sorted_set_so_that_equal_declarations_are_equal() -> None:
    first, second = (replace(INFO, groups=groups) for groups in (("b", "a", "b"), ("a", "b")))
    assert first == second
    assert first.groups == ("a", "b")


def test_a_step_on_a_group_that_was_not_declared_is_named() -> None:
    few = replace(INFO, groups=("metric",))
    with pytest.raises(dp.errors.ParameterError, match=repr(STEP.groups[0])):
        few.check_groups("Run.reserve", STEP)
    INFO.check_groups("Run.reserve", STEP)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Began(INFO, (), "now", continues=0),
        lambda: Began(INFO, (), "now", plan="x" * (LONGEST_PLAN + 1)),
        lambda: Began(INFO, (("a\nb", "1"),), "now"),
        lambda: Reserved(0, STEP, 1),
        lambda: Reserved(1, 1, 1),
        lambda: Reserved(1, STEP, 0),
        lambda: Settled(1, 0),
        lambda: Settled(2, -1),
        lambda: Ended(0, ""),
        lambda: Ended(1, "two\nlines"),
        lambda: Marked(1, "noise_off"),
    ],
)
def test_rows_that_no_ledger_can_hold_are_refused(make: Callable[[], object]) -> None:
    """Row 0 opens the ledger: no run and no reservation has a number that is so small."""
    with pytest.raises(dp.errors.ParameterError):
        make()


def test_a_commitment_has_every_kind_of_step_once() -> None:
    row = Began(INFO, (), "now", ((STEP, 2), (OTHER_STEP, 1), (STEP, 3)))
    assert row.planned == ((STEP, 5), (OTHER_STEP, 1))
