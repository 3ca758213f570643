"""Attacks on sums, each of which once worked."""

import threading
import time
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from discreet.errors import NumericsError
from discreet.numerics import ExactSum, Grid, exact, ghost_squared_norms


def test_two_threads_that_add_at_the_same_time_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both had passed the check for a torn sum before either began; then one could overwrite what the other added."""
    total = ExactSum({"a": 3}, clip_norm=4.0, grid=Grid(0.5))
    both_checked = threading.Barrier(2)
    checked, units = exact._checked, exact._units

    def checked_together(*args: Any) -> Any:
        both_checked.wait(20)
        return checked(*args)

    def slow_units(*args: Any) -> Any:
        time.sleep(0.3)
        return units(*args)

    monkeypatch.setattr(exact, "_checked", checked_together)
    monkeypatch.setattr(exact, "_units", slow_units)
    refused: list[NumericsError] = []

    def add() -> None:
        try:
            total.add({"a": np.ones((1, 3))}, np.ones(1))
        except NumericsError as error:
            refused.append(error)

    threads = [threading.Thread(target=add) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == 1
    assert total.integers()["a"].tolist() == [1.0, 1.0, 1.0]


def test_the_smallest_excess_of_the_largest_norm_is_seen() -> None:
    """2^52 + 1 against 2^52: a comparison with any tolerance would let it pass."""
    leaves = {"a": np.array([[1.0, 0.0], [1.0, 2.0**-26]])}
    weights = np.full(2, 1.0 + 2.0**-40)  # above the slack for honest roundings
    integers = exact.quantise(leaves, weights, clip_norm=1.0, grid=Grid(2.0**-26))
    assert integers["a"].tolist() == [[2.0**26, 0.0], [0.0, 0.0]]


@pytest.mark.parametrize("swapped", [False, True])
def test_ghost_norms_count_the_roundings_of_both_gram_matrices(swapped: bool) -> None:  # noqa: FBT001
    """x^2 = 1 + 2^-22 loses its last bit in every addition above 4; the spread is too far away to help."""
    width, x = 20_000, 1.0 + 2.0**-23
    wide = np.full((1, 2, width), x, np.float32)
    wide[0, 1, -2:] = 0.0
    ones = np.ones((1, 2, 1), np.float32)
    (bound,) = ghost_squared_norms(wide, ones) if swapped else ghost_squared_norms(ones, wide)
    assert Fraction(float(bound)) >= Fraction(x) ** 2 * (4 * (width - 2) + 2)
