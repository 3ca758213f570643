"""Attacks on sums, each of which once worked."""

import threading
import time
from typing import Any

import numpy as np
import pytest

from discreet.errors import NumericsError
from discreet.numerics import ExactSum, Grid, exact


def test_two_threads_that_add_at_the_same_time_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both had passed the check for a torn sum before either began; then one could overwrite what the other added."""
    total = ExactSum({"a": 3}, clip_norm=4.0, grid=Grid(0.5))
    both_checked = threading.Barrier(2)
    within, units = exact._within, exact._units
    inside = threading.local()

    def within_together(*args: Any) -> Any:
        kept = within(*args)
        both_checked.wait(20)
        inside.sum = True
        return kept

    def slow_units(*args: Any) -> Any:
        if getattr(inside, "sum", False):
            time.sleep(0.3)
        return units(*args)

    monkeypatch.setattr(exact, "_within", within_together)
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
