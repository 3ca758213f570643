"""Integers of the grid: what counts, what does not, what is refused."""

import math
import pickle

import numpy as np
import pytest
from numpy.typing import NDArray

from discreet.errors import NumericsError, ParameterError
from discreet.numerics import ExactSum, Grid, _compiled, exact, l2_norms, quantise

GRID = Grid(2.0**-20)


def clip(leaf: NDArray[np.floating], clip_norm: float) -> NDArray[np.float64]:
    return np.minimum(1.0, clip_norm / l2_norms(leaf))


@pytest.mark.parametrize("clip_norm", [1.0, 1.1, 0.3, math.pi, 2.0**-10])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_no_honest_record_fails_the_check(clip_norm: float, dtype: type[np.floating]) -> None:
    """The check is a safety net: records clipped with certified norms always pass, also on the
    coarsest and finest grids.
    """
    generator = np.random.default_rng(3)
    for columns in (1, 2, 50):
        leaf = (generator.standard_normal((500, columns)) * 10).astype(dtype)
        leaf[:20] = np.round(leaf[:20])  # some land on the grid, where nothing is cut off
        for grid in (
            Grid.for_noise(noise_std=clip_norm, clip_norm=clip_norm),
            Grid.for_noise(noise_std=1e-9, clip_norm=clip_norm),
        ):
            units = quantise({"a": leaf}, clip(leaf, clip_norm), clip_norm=clip_norm, grid=grid)[
                "a"
            ]
            assert np.all(np.any(units != 0.0, axis=1) == np.any(leaf != 0.0, axis=1))


def test_p13_a_bad_record_contributes_zero_and_nothing_else_changes() -> None:
    generator = np.random.default_rng(4)
    good = {"a": generator.standard_normal((6, 3)), "b": generator.standard_normal((6, 2))}
    weights = np.full(6, 0.1)
    clean = ExactSum({"a": 3, "b": 2}, clip_norm=1.0, grid=GRID)
    clean.add(
        {name: np.delete(leaf, [1, 4], axis=0) for name, leaf in good.items()},
        np.delete(weights, [1, 4]),
    )
    for bad in (np.nan, np.inf, -np.inf, 1e300, 1e30):
        dirty = {name: leaf.copy() for name, leaf in good.items()}
        dirty["b"][[1, 4], 1] = (
            bad  # in one leaf only: the record's other leaf must not count either
        )
        total = ExactSum({"a": 3, "b": 2}, clip_norm=1.0, grid=GRID)
        total.add(dirty, weights)
        for name, leaf in clean.integers().items():
            assert np.array_equal(total.integers()[name], leaf)


@pytest.mark.parametrize("weight", [np.nan, np.inf, -np.inf, 1e308, 1.0])
def test_p01_a_wrong_weight_cannot_exceed_the_clip_norm(weight: float) -> None:
    """The norm code is not trusted: with any weight a record counts within the clip norm or not at
    all.
    """
    rows = np.array([[3.0, 4.0]])
    units = quantise({"a": rows}, np.array([weight]), clip_norm=1.0, grid=GRID)["a"]
    assert np.all(units == 0.0)
    assert np.any(quantise({"a": rows}, np.array([-0.2]), clip_norm=1.0, grid=GRID)["a"] != 0.0)


def test_leaves_of_a_group_are_checked_together() -> None:
    """Each leaf alone is within the clip norm, both are not: a check per leaf would let the record
    through.
    """
    leaf = np.array([[0.8]])
    assert np.any(quantise({"a": leaf}, np.ones(1), clip_norm=1.0, grid=GRID)["a"])
    joint = quantise({"a": leaf, "b": leaf}, np.ones(1), clip_norm=1.0, grid=GRID)
    assert not np.any(joint["a"])
    assert not np.any(joint["b"])


def test_scales_divide_the_leaves() -> None:
    total = ExactSum({"a": 1, "b": 1}, clip_norm=1.0, grid=GRID, scales={"b": 100.0})
    total.add({"a": np.array([[0.5]]), "b": np.array([[50.0]])}, np.ones(1))
    a, b = (float(units[0]) * GRID.spacing for units in total.integers().values())
    assert a == pytest.approx(0.5, abs=2e-6)
    assert b == pytest.approx(0.5, abs=2e-6)


def test_merging_takes_over_once() -> None:
    rows = np.array([[0.5, 0.25], [0.125, 0.5]])
    whole, part, other = (ExactSum({"a": 2}, clip_norm=1.0, grid=GRID) for _ in range(3))
    whole.add({"a": rows}, np.ones(2))
    part.add({"a": rows[:1]}, np.ones(1))
    other.add({"a": rows[1:]}, np.ones(1))
    part.merge(other)
    part.merge(other)  # empty now
    assert np.array_equal(part.integers()["a"], whole.integers()["a"])
    assert not np.any(other.integers()["a"])
    with pytest.raises(ParameterError, match="itself"):
        part.merge(part)
    with pytest.raises(ParameterError, match="a different one"):
        part.merge(ExactSum({"a": 2}, clip_norm=1.5, grid=GRID))


def test_more_records_than_stay_exact_are_refused_and_nothing_is_added(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("discreet.numerics.exact._HEADROOM", 4 * 2**20)
    total = ExactSum({"a": 1}, clip_norm=1.0, grid=GRID)
    total.add({"a": np.ones((3, 1))}, np.ones(3))
    before = total.integers()["a"]
    with pytest.raises(NumericsError, match="at most 3 records"):
        total.add({"a": np.ones((1, 1))}, np.ones(1))
    assert np.array_equal(total.integers()["a"], before)


def test_the_largest_radius_is_exact() -> None:
    """K = 2^26: the square of the norm is 2^52, still exact; one unit more is refused."""
    grid = Grid(2.0**-26)
    root = 2.0**-1  # four coordinates of 1/2 have norm 1; the slack takes one unit off each
    assert np.all(
        quantise({"a": np.full((1, 4), root)}, np.ones(1), clip_norm=1.0, grid=grid)["a"]
        == 2**25 - 1
    )
    assert not np.any(
        quantise(
            {"a": np.full((1, 4), root * (1 + 2.0**-24))}, np.ones(1), clip_norm=1.0, grid=grid
        )["a"]
    )
    with pytest.raises(NumericsError, match="clip_norm"):
        Grid(2.0**-27).radius(1.0)
    with pytest.raises(NumericsError, match="clip_norm"):
        Grid(2.0).radius(1.0)


def test_bad_shapes_and_names_are_refused() -> None:
    total = ExactSum({"a": 2}, clip_norm=1.0, grid=GRID)
    with pytest.raises(ParameterError, match="exactly the leaves"):
        total.add({"b": np.ones((1, 2))}, np.ones(1))
    with pytest.raises(ParameterError, match=r"\(B, 2\)"):
        total.add({"a": np.ones((1, 3))}, np.ones(1))
    with pytest.raises(ParameterError, match=r"\(B, 2\)"):
        total.add({"a": np.ones((2, 2))}, np.ones(1))
    with pytest.raises(ParameterError, match="at least one leaf"):
        ExactSum({}, clip_norm=1.0, grid=GRID)
    with pytest.raises(ParameterError, match="at least one leaf"):
        ExactSum({"a": 2}, clip_norm=1.0, grid=GRID, scales={"b": 1.0})
    total.add({"a": np.ones((0, 2))}, np.ones(0))
    assert total.integers()["a"].tolist() == [0.0, 0.0]
    assert total.sensitivity == 1.0


def test_p16_an_addition_that_was_broken_off_cannot_be_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise the records of the first part would count twice: sensitivity 2C."""
    total, other = (ExactSum({"a": 1, "b": 1}, clip_norm=1.0, grid=GRID) for _ in range(2))
    leaves = {"a": np.full((1, 1), 0.5), "b": np.full((1, 1), 0.5)}
    calls: list[int] = []

    def interrupted(
        leaf: NDArray[np.floating], weight: NDArray[np.float64], factor: float
    ) -> NDArray[np.float64]:
        calls.append(1)
        if len(calls) == 2:  # the first leaf was added
            raise KeyboardInterrupt
        return units(leaf, weight, factor)

    units = exact._units
    monkeypatch.setattr(_compiled, "worth_it", lambda _: False)
    monkeypatch.setattr(exact, "_units", interrupted)
    with pytest.raises(KeyboardInterrupt):
        total.add(leaves, np.ones(1))
    for call in (
        lambda: total.add(leaves, np.ones(1)),
        total.integers,
        lambda: other.merge(total),
        lambda: total.merge(other),
    ):
        with pytest.raises(NumericsError, match="broken off"):
            call()
    assert not np.any(other.integers()["a"])


def test_arrays_that_change_while_they_are_added_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One record fails, so all are read again; the other one is ten times as large by then."""
    rows = np.array([[0.5], [np.nan]])
    total = ExactSum({"a": 1}, clip_norm=1.0, grid=GRID)

    def changing(squares: list[NDArray[np.float64]], radius: int) -> NDArray[np.bool_]:
        rows[0] = 5.0
        return within(squares, radius)

    within = exact._within
    monkeypatch.setattr(exact, "_within", changing)
    with pytest.raises(NumericsError, match="nobody changes"):
        total.add({"a": rows}, np.ones(2))
    with pytest.raises(NumericsError, match="broken off"):
        total.integers()


def test_partial_sums_travel_between_processes() -> None:
    total, other = (
        ExactSum({"a": 2}, clip_norm=1.0, grid=GRID, scales={"a": 2.0}) for _ in range(2)
    )
    other.add({"a": np.array([[0.5, 0.25]])}, np.ones(1))
    expected = other.integers()["a"]
    total.merge(pickle.loads(pickle.dumps(other)))
    assert np.array_equal(total.integers()["a"], expected)
    assert dict(total.scales) == {"a": 2.0}
    assert dict(total.dimensions) == {"a": 2}
