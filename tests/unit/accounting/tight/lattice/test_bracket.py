"""Certified brackets of one direction: they hold the truth,
also where something is chosen badly.
"""

import math

import pytest

from discreet.accounting.gaussian import gaussian_delta, gaussian_epsilon
from discreet.accounting.tight.analyses.poisson import PoissonAdd, PoissonRemove
from discreet.accounting.tight.lattice import bracket, window
from discreet.accounting.tight.lattice.bracket import (
    Bracket,
    Starts,
    delta_bracket,
    epsilon_bracket,
)
from discreet.accounting.tight.lattice.pair import Composition
from discreet.accounting.tight.lattice.tilt import Law, Tilt, tilt_for_delta
from discreet.accounting.tight.rounding import WIDE

# Nine steps of a Gaussian with multiplier 6 are one with multiplier 2, known in closed form.
GAUSSIANS = Composition(((PoissonRemove(1.0, 6.0), 9),))


@pytest.mark.parametrize("delta", [1e-12, 1e-6, 0.05])
def test_epsilon_of_composed_gaussians_is_bracketed(delta: float) -> None:
    ends = epsilon_bracket(GAUSSIANS, delta, 1e-3)
    lower, upper = gaussian_epsilon(2.0, delta)
    assert ends.lower <= lower
    assert upper <= ends.upper
    assert ends.upper - ends.lower <= 1e-3 * ends.upper


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 3.0])
def test_delta_of_composed_gaussians_is_bracketed(epsilon: float) -> None:
    ends = delta_bracket(GAUSSIANS, epsilon, 1e-3)
    lower, upper = gaussian_delta(2.0, epsilon)
    assert ends.lower <= lower * (1 + 1e-12)
    assert upper * (1 - 1e-12) <= ends.upper
    assert ends.upper - ends.lower <= 1e-3 * ends.upper


def test_a_large_delta_needs_no_epsilon() -> None:
    assert epsilon_bracket(GAUSSIANS, 0.9, 1e-3) == Bracket(0.0, 0.0)


def test_a_direction_that_is_not_worse_gets_an_upper_bound_alone() -> None:
    removed = epsilon_bracket(Composition(((PoissonRemove(0.01, 1.0), 100),)), 1e-6, 1e-3)
    added = Composition(((PoissonAdd(0.01, 1.0), 100),))
    short, full = (epsilon_bracket(added, 1e-6, 1e-3, known) for known in (removed, None))
    assert short.lower == 0.0
    assert full.lower <= short.upper <= removed.upper


def test_a_start_saves_time_and_changes_no_truth() -> None:
    starts: Starts = {}
    before = Composition(((PoissonRemove(0.01, 1.0), 500),))
    after = Composition(((PoissonRemove(0.01, 1.0), 520),))
    epsilon_bracket(before, 1e-6, 1e-3, None, starts)
    assert len(starts) == 1
    warm, cold = (
        epsilon_bracket(after, 1e-6, 1e-3, None, starts),
        epsilon_bracket(after, 1e-6, 1e-3),
    )
    assert max(warm.lower, cold.lower) <= min(warm.upper, cold.upper)


def test_wrong_choices_widen_a_bracket_and_never_move_it(monkeypatch: pytest.MonkeyPatch) -> None:
    lower, upper = gaussian_epsilon(2.0, 1e-6)

    def wrong(law: Law, log_delta: float) -> Tilt:
        tilt = tilt_for_delta(law, log_delta)
        return Tilt(0.5 * tilt.theta, 1.3 * tilt.epsilon, tilt.log_delta)

    monkeypatch.setattr(bracket, "tilt_for_delta", wrong)
    ends = epsilon_bracket(GAUSSIANS, 1e-6, 1e-3)
    assert ends.lower <= lower
    assert upper <= ends.upper < math.inf


@pytest.mark.skipif(not WIDE, reason="long double is no wider than float64 here")
@pytest.mark.parametrize(("steps", "probability"), [(10_000, 1e-5), (10_000, 1e-4)])
def test_long_double_narrows_brackets_that_rounding_would_leave_wide(
    steps: int, probability: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = Composition(((PoissonRemove(probability, 1.0), steps),))
    narrow = epsilon_bracket(problem, 1e-12, 1e-3)
    assert narrow.upper - narrow.lower <= 1e-3 * narrow.upper
    for module in (bracket, window):
        monkeypatch.setattr(module, "WIDE", False)
    wide = epsilon_bracket(problem, 1e-12, 1e-3)
    assert wide.upper - wide.lower > 1e-3 * wide.upper
    assert max(narrow.lower, wide.lower) <= min(narrow.upper, wide.upper)
