"""The walk: its covariances in fractions, and roundings that do not depend on who computes them."""

from fractions import Fraction
from itertools import accumulate, combinations_with_replacement, pairwise
from math import isqrt

import numpy as np
import pytest
from numpy.typing import NDArray

from discreet.errors import NumericsError, ParameterError, RandomnessMisuse
from discreet.randomness import Purpose, Source, gaussian, walk
from discreet.randomness.walk import Clock, Walk
from support.backends import LAZY

KEY = bytes(range(32))
LARGE = 1.1 * 2**23
ONES = (1,) * 8


def walk_of(
    weights: tuple[int, ...] = ONES, *, scale: float = LARGE, rows: int = 4000, width: int = 3
) -> Walk:
    stream = Source.unsafe_test_key(KEY).stream(Purpose.TABLE, step=0)
    return Walk(stream, Clock(weights), scale=scale, rows=rows, width=width)


def rounded(
    rows: NDArray[np.int64], step: int, sums: int = 0, width: int = 3, **of: float
) -> NDArray[np.int64]:
    its = walk_of(width=width, **of)  # type: ignore[arg-type]
    return its.rounded(rows, np.full((len(rows), width), sums), its.clock.path(step))


def root(square: Fraction) -> Fraction:
    exact = Fraction(isqrt(square.numerator), isqrt(square.denominator))
    assert exact**2 == square
    return exact


@pytest.mark.parametrize(
    "weights",
    [(1,) * 7, (1,) * 16, (1, 0, 2, 3, 0, 0, 5), (0, 0, 4), (0, 0, 0), (1024, 0, 1, 7, 9), (3,)],
)
def test_covariances_are_those_of_sums_of_independent_normals(weights: tuple[int, ...]) -> None:
    """Exactly, for all pairs of steps: E[B_t B_u] = min(V_t, V_u) (sparse.md, section 2)."""
    clock, times = Clock(weights), [0, *accumulate(weight**2 for weight in weights)]
    paths = [dict(clock.path(step)) for step in range(len(times))]
    for t, u in combinations_with_replacement(range(len(times)), 2):
        shared = paths[t].keys() & paths[u].keys()
        covariance = sum((root(paths[t][node] * paths[u][node]) for node in shared), Fraction(0))
        assert covariance == min(times[t], times[u])


def test_a_path_has_at_most_one_normal_for_each_halving() -> None:
    clock = Clock((1,) * 1000)
    assert max(len(clock.path(step)) for step in range(1001)) == 11
    assert clock.path(0) == ()
    assert [(node.label, node.square) for node in clock.shortcut(10)] == [("settled", Fraction(10))]
    assert clock.shortcut(0) == ()


def test_what_a_row_holds_does_not_depend_on_who_asked_before() -> None:
    """Not on other rows, their order, other steps, or whether the row was read before."""
    rows = np.arange(50)
    its = walk_of()
    for step in (3, 7, 1):
        its.rounded(rows[::-3], np.zeros((17, 3), np.int64), its.clock.path(step))
    at_7 = its.rounded(rows, np.zeros((50, 3), np.int64), its.clock.path(7))
    assert np.array_equal(at_7, rounded(rows, 7))
    assert np.array_equal(at_7[::2], rounded(rows[::2], 7))
    assert np.array_equal(at_7[[9, 4]], rounded(np.array([9, 4]), 7))


@pytest.mark.parametrize("scale", [0.3, 7.7, LARGE, 2.0**32])
@pytest.mark.parametrize("width", [2, 3])
def test_float64_and_integers_decide_alike(
    monkeypatch: pytest.MonkeyPatch, scale: float, width: int
) -> None:
    rows, sums = np.arange(40), 12345
    fast = rounded(rows, 5, sums, width, scale=scale)
    monkeypatch.setattr(walk, "_threshold", lambda _: -1.0)
    assert np.array_equal(rounded(rows, 5, sums, width, scale=scale), fast)


def test_all_tiers_of_the_normals_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    fast = rounded(np.arange(20), 5)
    monkeypatch.setattr(gaussian, "_backend", lambda: LAZY)
    assert np.array_equal(rounded(np.arange(20), 5), fast)


def test_coarse_normals_round_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """What few bits of normals leave open is left to integers, and not guessed."""
    rows = np.arange(2000)
    right = rounded(rows, 5)
    for name, value in (("_BITS", 14), ("_SCALE", 2.0**14)):
        monkeypatch.setattr(walk, name, value)
    assert np.array_equal(rounded(rows, 5), right)


def test_a_far_out_normal_is_left_to_integers(monkeypatch: pytest.MonkeyPatch) -> None:
    right = rounded(np.arange(40), 5)
    monkeypatch.setattr(walk, "_LARGEST", 0.0)
    monkeypatch.setattr(gaussian, "_backend", lambda: LAZY)
    assert np.array_equal(rounded(np.arange(40), 5), right)


def test_sums_are_added_to_the_walk_and_not_rounded_apart() -> None:
    """Rounded apart, what is below the unit would be lost, or would show by itself."""
    its = walk_of()
    unit = 1 << its.shift
    assert its.shift == 19
    path = its.clock.path(8)
    here = [
        its.rounded(np.arange(50), np.full((50, 3), unit * 7 + part), path)
        for part in range(0, unit, unit // 8)
    ]
    increases = np.sum([b - a for a, b in pairwise(here)], axis=0)
    assert np.array_equal(np.unique(increases), [0, 1])
    assert 0.8 < increases.mean() < 0.95


def test_what_wraps_is_a_function_of_the_true_sum() -> None:
    """2^63 + 5 is -2^63 + 5 in 64 bits; what is held must be the same as for either."""
    its = walk_of()
    path, rows = its.clock.path(4), np.arange(50)
    near = np.full((50, 3), 2**63 - 1)
    beyond = (near.view(np.uint64) + np.uint64(6)).view(np.int64)
    unit = 1 << its.shift
    steps = its.rounded(rows, beyond, path) - its.rounded(rows, near, path)
    turned = np.where(steps < -1, steps + 2**63 // unit * 2, steps)
    assert set(np.unique(turned)) <= {0, 1}


def test_after_no_step_a_row_holds_its_sum() -> None:
    assert not rounded(np.arange(5), 0).any()


def test_normals_of_different_numbers_differ() -> None:
    rows = [tuple(row) for row in rounded(np.arange(50), 8).tolist()]
    assert len(set(rows)) == 50
    assert not any(len(set(row)) == 1 for row in rows)


def test_what_is_refused() -> None:
    source = Source.unsafe_test_key(KEY)
    with pytest.raises(ParameterError, match="2\\^31"):
        Walk(source.stream(Purpose.TABLE, step=0), Clock(ONES), scale=1.0, rows=2**30, width=3)
    with pytest.raises(RandomnessMisuse, match="table"):
        Walk(source.stream(Purpose.NOISE, step=0), Clock(ONES), scale=1.0, rows=3, width=3)


def test_bits_that_never_decide_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk, "_threshold", lambda _: -1.0)
    monkeypatch.setattr(walk, "_EXACT_BITS", range(48, 48))
    with pytest.raises(NumericsError, match="generator"):
        rounded(np.arange(2), 3)
