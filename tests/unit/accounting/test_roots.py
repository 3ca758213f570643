"""Crossings: found in few evaluations, also from a bad guess, a wrong slope or a jump."""

import math

import pytest

from discreet.accounting.roots import crossing


class _Counted:
    def __init__(self, root: float) -> None:
        self.root, self.calls = root, 0

    def __call__(self, point: float) -> float:
        self.calls += 1
        return math.log(self.root / point) if point > 0.0 else math.inf


@pytest.mark.parametrize("guess", [0.0, 0.31, 5.0, 1e9])
@pytest.mark.parametrize("slope", [-3.0, -1e-6, 1.0])
def test_a_smooth_crossing_takes_few_evaluations(guess: float, slope: float) -> None:
    function = _Counted(0.3)
    found = crossing(function, (0.0, 100.0), guess, slope, 1e-13)
    assert found == pytest.approx(0.3, rel=1e-12)
    assert function.calls < 40


def test_a_good_guess_takes_a_handful() -> None:
    function = _Counted(0.3)
    crossing(function, (0.0, 100.0), 0.29, -3.0, 1e-12)
    assert function.calls <= 6


def test_a_jump_is_found_by_bisection() -> None:
    found = crossing(lambda point: 1.0 if point < 2.0 else -1.0, (0.0, 7.0), 1.0, -1.0, 1e-12)
    assert found == pytest.approx(2.0, rel=1e-11)


def test_infinite_values_do_no_harm() -> None:
    def function(point: float) -> float:
        return math.inf if point < 1.0 else -math.inf if point > 3.0 else 2.0 - point

    assert crossing(function, (0.0, 100.0), 50.0, -1.0, 1e-12) == pytest.approx(2.0)
