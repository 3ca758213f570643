"""Attacks on sums, each of which once worked."""

import threading
import time
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from discreet.errors import NumericsError, ParameterError
from discreet.numerics import (
    ExactSum,
    Grid,
    _compiled,
    exact,
    ghost_squared_norms,
    l2_norms,
    outer_spread,
    squared_norms,
)

WHERE: Any = {"clip_norm": 1.0, "grid": Grid(2.0**-20)}


def test_two_threads_that_add_at_the_same_time_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both had passed the check for a torn sum before either began; then one could overwrite what
    the other added.
    """
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
    monkeypatch.setattr(_compiled, "worth_it", lambda _: False)
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
def test_ghost_norms_count_the_roundings_of_both_gram_matrices(swapped: bool) -> None:
    """x^2 = 1 + 2^-22 loses its last bit in every addition above 4; the spread is too far away to
    help.
    """
    width, x = 20_000, 1.0 + 2.0**-23
    wide = np.full((1, 2, width), x, np.float32)
    wide[0, 1, -2:] = 0.0
    ones = np.ones((1, 2, 1), np.float32)
    (bound,) = ghost_squared_norms(wide, ones) if swapped else ghost_squared_norms(ones, wide)
    assert Fraction(float(bound)) >= Fraction(x) ** 2 * (4 * (width - 2) + 2)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_no_record_raises_whatever_the_caller_wants_to_be_raised(dtype: Any) -> None:
    """A record of zeros raised an underflow: whether a step fails would tell what is in it."""
    records = np.array(
        [[0.0, 0.0], [-0.0, 0.0], [np.nan, 1.0], [np.inf, 1.0], [6e-8, 0.0], [6e4, 6e4]], dtype
    )
    if dtype is np.float64:
        records = np.concatenate(
            [records, [[5e-324, 1e-310], [1e-170, 0.0], [1.7e308, 1.7e308], [1.3e154, 0.0]]]
        )
    with np.errstate(all="raise"):
        bounds = [l2_norms(records), squared_norms(records)]
        integers = exact.quantise({"a": records}, np.ones(len(records)), **WHERE)
        if dtype is not np.float16:
            vectors = records[:, np.newaxis]
            bounds += [ghost_squared_norms(vectors, vectors), outer_spread(vectors, vectors)]
    assert all(np.all(bound[:2] == 0.0) and np.all(bound[2:4] == np.inf) for bound in bounds)
    assert np.all(integers["a"][:4] == 0.0)


def test_messages_do_not_tell_how_many_records_were_drawn() -> None:
    wrong: dict[str, Callable[[], object]] = {
        "columns": lambda: exact.quantise(
            {"a": np.ones((4321, 2)), "b": np.ones((4321, 3))}, np.ones((4321, 2)), **WHERE
        ),
        "rows": lambda: exact.quantise({"a": np.ones((4321, 2))}, np.ones(4320), **WHERE),
        "positions": lambda: ghost_squared_norms(np.ones((4321, 2, 1)), np.ones((4321, 3, 1))),
        "records": lambda: ghost_squared_norms(np.ones((4321, 2, 1)), np.ones((4320, 2, 1))),
    }
    for use in wrong.values():
        with pytest.raises(ParameterError) as caught:
            use()
        assert "432" not in str(caught.value)


def test_a_mask_hides_no_number_from_the_norm_or_the_check() -> None:
    hidden = np.ma.array([[3.0, 4.0], [0.5, 0.5]], mask=[[False, True], [False, True]])
    assert l2_norms(hidden)[0] >= 5.0
    total = ExactSum({"a": 2}, **WHERE)
    total.add({"a": hidden}, np.ones(2))
    assert total.integers()["a"].tolist() == [
        2.0**19 - 1,
        2.0**19 - 1,
    ]  # the first record is too long, mask or not


@pytest.mark.parametrize(("spacing", "noise_std"), [(2.0**800, 1e-300), (2.0**800, 1e-80)])
def test_a_scale_that_underflows_is_refused(spacing: float, noise_std: float) -> None:
    with pytest.raises(NumericsError, match="noise_std"):
        Grid(spacing).scale(noise_std)
