"""Declared tables: learning rates become whole weights of steps."""

import math
from typing import Any

import pytest

from discreet.errors import ParameterError
from discreet.training import SparseTable


def test_weights_times_the_unit_are_the_learning_rates() -> None:
    table = SparseTable([0.4, 0.1, 0.0, 0.2])
    assert [weight * table.unit for weight in table.weights(4)] == pytest.approx(
        [0.4, 0.1, 0.0, 0.2], abs=0.4 / 2048
    )
    assert SparseTable(0.3).weights(3) == (1, 1, 1)
    assert SparseTable(0.3).unit == 0.3


@pytest.mark.parametrize("rate", [0.0, -1.0, math.nan, math.inf, [], [0.0], [1.0, -1.0], "fast"])
def test_what_is_no_learning_rate_is_refused(rate: Any) -> None:
    with pytest.raises(ParameterError, match="learning_rate"):
        SparseTable(rate)


def test_there_is_one_learning_rate_for_each_step() -> None:
    with pytest.raises(ParameterError, match="3 steps"):
        SparseTable([0.1, 0.2]).weights(3)


def test_a_list_that_changes_later_changes_nothing() -> None:
    rates = [1.0, 0.5]
    table = SparseTable(rates)
    rates[0] = 5.0
    assert table.weights(2) == (1024, 512)
