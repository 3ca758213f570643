"""The laws of sums, against exact rational arithmetic: no input moves a sum by more than its stated
sensitivity.
"""

import math
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from itertools import permutations, zip_longest

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from discreet.numerics import (
    ExactSum,
    FloatSum,
    Grid,
    float_sum_sensitivity,
    ghost_squared_norms,
    l2_norms,
    outer_spread,
    squared_norms,
)
from support.paths import on_both

F64 = NDArray[np.float64]
ANY32 = st.floats(width=32, allow_nan=False, allow_infinity=False)
ANYTHING = st.floats(allow_nan=True, allow_infinity=True)
X = -1  # the record in question, among others that are numbered


def fractions(values: NDArray[np.floating]) -> list[Fraction]:
    return [Fraction(float(x)) for x in values.ravel()]


def squared_distance(a: NDArray[np.floating], b: NDArray[np.floating]) -> Fraction:
    return sum(((x - y) ** 2 for x, y in zip(fractions(a), fractions(b), strict=True)), Fraction(0))


# --- norms ---


@given(arrays.arrays(np.float32, st.tuples(st.integers(1, 4), st.integers(0, 9)), elements=ANY32))
def test_norms_are_never_below_the_truth(rows: NDArray[np.float32]) -> None:
    for row, high, square in zip(rows, l2_norms(rows), squared_norms(rows), strict=True):
        truth = sum((x * x for x in fractions(row)), Fraction(0))
        assert Fraction(float(high)) ** 2 >= truth
        assert Fraction(float(square)) >= truth
        assert (high == 0.0) == (truth == 0)


# --- exact sums ---


@settings(max_examples=150)
@given(
    rows=arrays.arrays(np.float64, (6, 5), elements=ANYTHING),
    weights=arrays.arrays(np.float64, 6, elements=ANYTHING),
    clip_norm=st.floats(1e-3, 1e3),
    data=st.data(),
)
def test_exact_sums_hold_their_sensitivity_for_any_numbers_in_any_order(
    rows: F64, weights: F64, clip_norm: float, data: st.DataObject
) -> None:
    """NaN, infinities and nonsense weights included; the sum is the same for every order and split,
    bit for bit.
    """
    grid = Grid.for_noise(noise_std=clip_norm, clip_norm=clip_norm)
    leaves = {"a": rows[:, :2], "b": rows[:, 2:]}

    def total(chosen: list[int], cut: int) -> F64:
        parts = [ExactSum({"a": 2, "b": 3}, clip_norm=clip_norm, grid=grid) for _ in range(2)]
        for part, some in zip(parts, (chosen[:cut], chosen[cut:]), strict=True):
            part.add({name: leaf[some] for name, leaf in leaves.items()}, weights[some])
        parts[0].merge(parts[1])
        return np.concatenate(list(parts[0].integers().values()))

    order = data.draw(st.permutations(range(6)))
    everything = total(list(range(6)), 6)
    assert total(order, data.draw(st.integers(0, 6))).tobytes() == everything.tobytes()
    without = total(order[1:], 3)
    moved = squared_distance(everything, without) * Fraction(grid.spacing) ** 2
    assert moved <= Fraction(clip_norm) ** 2


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@settings(max_examples=60, deadline=None)  # the first example compiles
@given(
    data=st.data(),
    columns=st.sampled_from([1, 2, 7, 300, 513, 2050]),
    clip_norm=st.floats(1e-3, 1e3),
)
def test_compiled_code_gives_the_bits_of_the_numpy_path(
    dtype: type[np.floating], data: st.DataObject, columns: int, clip_norm: float
) -> None:
    """Any numbers and weights: norms bit for bit, sums integer by integer."""
    elements = st.floats(width=32) if dtype is np.float32 else ANYTHING
    drawn = data.draw(
        arrays.arrays(dtype, (5, columns), elements=elements, fill=st.just(dtype(0.1)))
    )
    weights = data.draw(arrays.arrays(np.float64, 5, elements=ANYTHING))

    def computed() -> bytes:
        total = ExactSum(
            {"a": columns},
            clip_norm=clip_norm,
            grid=Grid.for_noise(noise_std=clip_norm, clip_norm=clip_norm),
        )
        total.add({"a": drawn}, weights)
        total.add({"a": drawn}, np.minimum(1.0, clip_norm / np.maximum(l2_norms(drawn), 1e-300)))
        return squared_norms(drawn).tobytes() + total.integers()["a"].tobytes()

    numpy, compiled = on_both(computed)
    assert compiled == numpy


# --- float sums ---


def summed(terms: NDArray[np.floating], microbatch: int) -> F64:
    """Sequential sums in the terms' dtype within microbatches, which is the worst order; float64
    across.
    """
    total = np.zeros(terms.shape[1])
    for start in range(0, len(terms), microbatch):
        part = np.zeros(terms.shape[1], terms.dtype)
        for term in terms[start : start + microbatch]:
            part = part + term
        total = total + part.astype(np.float64)
    return total


def moved(
    how: FloatSum, contributions: NDArray[np.floating], grid: Grid, *, at: int = 0
) -> Fraction:
    """The squared change of the released sum, exactly, when one record is removed and all later
    ones move up.
    """
    both = [
        grid.integers(summed(some, how.microbatch))
        for some in (contributions, np.delete(contributions, at, axis=0))
    ]
    return squared_distance(*both) * Fraction(grid.spacing) ** 2


def clipped(raw: NDArray[np.floating]) -> NDArray[np.float32]:
    """To norm at most 1 in float32, truly: whoever is still above after rounding is scaled down
    once more.
    """
    rows = raw.astype(np.float64)
    rows = rows / np.maximum(l2_norms(rows), 1.0)[:, np.newaxis] * (1 - 2.0**-22)
    return rows.astype(np.float32)


@settings(max_examples=150)
@given(
    raw=arrays.arrays(np.float32, st.tuples(st.integers(2, 12), st.integers(1, 4)), elements=ANY32),
    microbatch=st.integers(1, 12),
    bits=st.integers(2, 30),
)
def test_float_sums_hold_their_sensitivity(
    raw: NDArray[np.float32], microbatch: int, bits: int
) -> None:
    rows, grid = clipped(raw), Grid(2.0**-bits)
    how = FloatSum(
        records=len(rows),
        microbatch=min(microbatch, len(rows)),
        dtype=np.float32,
        dimension=rows.shape[1],
    )
    stated = Fraction(float_sum_sensitivity(how, clip_norm=1.0, grid=grid))
    for at in range(len(rows)):
        assert moved(how, rows, grid, at=at) <= stated**2


def repeated_rounding() -> NDArray[np.float32]:
    """4096 ones, then 4096 numbers a little above 2^-12.

    From the sum 4096 on the spacing of float32 is 2^-11, so each small number counts as 2^-11.
    Without the first record the sum is 4095, where the spacing is 2^-12, and each counts as 2^-12.
    The two sums end 2 apart, not 1.
    """
    return np.repeat(np.array([1.0, 2.0**-12 * (1 + 2.0**-20)], np.float32), 4096)[:, np.newaxis]


def test_p14_repeated_rounding_is_covered_and_without_gamma_it_is_not() -> None:
    """Sequential float32 sums: removing one record of norm 1 moves the sum by 2; a bound without
    gamma fails.
    """
    rows = repeated_rounding()
    grid = Grid(2.0**-20)
    how = FloatSum(records=len(rows), microbatch=len(rows), dtype=np.float32, dimension=1)
    stated = Fraction(float_sum_sensitivity(how, clip_norm=1.0, grid=grid))
    worst = moved(how, rows, grid)
    without_gamma = 1 + Fraction(grid.spacing)
    assert without_gamma**2 < worst == 4 <= stated**2


def test_both_neighbours_round_so_half_the_excess_is_not_enough() -> None:
    """One microbatch of m records around 1: errors of opposite sign in the two neighbours.

    With u = 2^-24: 1 + u rounds to 1 (down by u, to even), while 1 + 2u + u rounds to 1 + 4u (up by
    u). The record 2u decides.
    """
    u = 2.0**-24
    rows = np.array([[1.0], [2 * u], [u]], np.float32)
    both = [Fraction(float(summed(some, 3)[0])) for some in (rows, np.delete(rows, 1, axis=0))]
    change = abs(both[0] - both[1])
    assert change == 4 * Fraction(u)  # the record itself is 2u: each neighbour adds an error of u
    one_sided = 2 * Fraction(u) + Fraction(u) * 1
    assert change > one_sided
    how = FloatSum(records=3, microbatch=3, dtype=np.float32, dimension=1)
    assert change <= Fraction(float_sum_sensitivity(how, clip_norm=1.0, grid=Grid(2.0**-60)))


def test_both_neighbours_are_rounded_to_the_grid() -> None:
    """Half a spacing per coordinate (one neighbour only) is too little: 0.49 and 0.51 spacings are
    a whole one apart.
    """
    grid, d = Grid(2.0**-4), 64
    g = grid.spacing
    others, record = np.full((1, d), 0.49 * g), np.full((1, d), 0.02 * g)
    change = (
        squared_distance(grid.integers(others), grid.integers(others + record)) * Fraction(g) ** 2
    )
    clip_norm = float(l2_norms(record)[0])
    how = FloatSum(records=2, microbatch=2, dtype=np.float64, dimension=d)
    stated = Fraction(float_sum_sensitivity(how, clip_norm=clip_norm, grid=grid))
    half = Fraction(clip_norm) + Fraction(g) / 2 * 8
    assert half**2 < change <= stated**2


@settings(max_examples=60)
@given(raw=arrays.arrays(np.float32, (12, 3), elements=ANY32), at=st.integers(0, 11))
def test_fixed_places_need_a_bound_for_one_microbatch_only(
    raw: NDArray[np.float32], at: int
) -> None:
    rows, grid = clipped(raw), Grid(2.0**-30)
    how = FloatSum(records=12, microbatch=4, dtype=np.float32, dimension=3, changed_microbatches=1)
    empty = rows.copy()
    empty[at] = 0.0  # the place stays, with nothing in it
    both = [grid.integers(summed(some, 4)) for some in (rows, empty)]
    stated = Fraction(float_sum_sensitivity(how, clip_norm=1.0, grid=grid))
    assert squared_distance(*both) * Fraction(grid.spacing) ** 2 <= stated**2


# --- records in random order ---


def with_record(order: Sequence[int], j: int) -> tuple[int, ...]:
    """The coupling of the proof: record X takes place j,
    and whoever stood there moves to the end.
    """
    if j == len(order):
        return (*order, X)
    return (*order[:j], X, *order[j + 1 :], order[j])


def cut(order: Sequence[int], microbatch: int) -> list[tuple[int, ...]]:
    return [tuple(order[start : start + microbatch]) for start in range(0, len(order), microbatch)]


def differing(
    order: Sequence[int], j: int, microbatch: int
) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """The microbatches that are not the same in both neighbours."""
    pairs = zip_longest(
        cut(order, microbatch), cut(with_record(order, j), microbatch), fillvalue=()
    )
    return [(one, two) for one, two in pairs if one != two]


@pytest.mark.parametrize("others", range(6))
def test_p15_the_coupling_has_the_law_of_a_random_order_and_changes_two_microbatches(
    others: int,
) -> None:
    """Every order of the larger sample comes from exactly one order of the smaller one and one
    place.
    """
    found = Counter(
        with_record(order, j) for order in permutations(range(others)) for j in range(others + 1)
    )
    assert set(found) == set(permutations([*range(others), X]))
    assert set(found.values()) == {1}
    for microbatch in range(1, others + 2):
        most = max(len(differing(range(others), j, microbatch)) for j in range(others + 1))
        assert most <= 2
        changed = max(
            sum(len(one) + len(two) for one, two in differing(range(others), j, microbatch))
            for j in range(others + 1)
        )
        assert changed <= min(4 * microbatch, 2 * others + 2) - 1


@pytest.mark.parametrize("microbatch", [1, 2, 3])
def test_p15_in_random_order_two_microbatches_err_and_one_is_not_enough(microbatch: int) -> None:
    """Sums that err by as much as the theorem allows, upwards in one neighbour and downwards in the
    other.

    All contributions are 1, so a microbatch of r records may be off by gamma * r. The worst place
    attains the stated number.
    """
    u, others = Fraction(1, 2**24), 4 * microbatch - 1
    gamma = (microbatch + 2) * u / (1 - (microbatch + 2) * u)
    moved = max(
        1 + gamma * sum(len(one) + len(two) for one, two in differing(range(others), j, microbatch))
        for j in range(others + 1)
    )
    ways = {
        k: FloatSum(
            records=others + 1,
            microbatch=microbatch,
            dtype="f4",
            dimension=1,
            changed_microbatches=k,
        )
        for k in (1, 2)
    }
    stated = {
        k: Fraction(float_sum_sensitivity(how, clip_norm=1.0, grid=Grid(2.0**-100), norm_error=0.0))
        for k, how in ways.items()
    }
    assert stated[1] < moved <= stated[2] < moved + Fraction(1, 2**40)


def test_p15_float32_errs_in_both_microbatches_in_the_same_direction() -> None:
    """Four numbers, microbatches of two. With v = 2^-25, sums in [1/2, 1) become multiples of 2v,
    ties multiples of 4v.

    Without X: (y, p), (q): 1/2 + v is rounded down by v. With X: (X, p), (q, y): 1/2 + 3v and 1/2 +
    2v + v are both rounded up by v. The sums are 3v further apart than X is long; one microbatch
    alone, two sums, errs by at most 2v.
    """
    v = 2.0**-25
    x, y, p, q = np.array([3 * v, v, 0.5, 0.5 + 2 * v], np.float32)[:, np.newaxis]
    both = [Fraction(float(summed(np.array(order), 2)[0])) for order in ([y, p, q], [x, p, q, y])]
    beyond = both[1] - both[0] - Fraction(float(x[0]))
    assert beyond == 3 * Fraction(v) > 2 * Fraction(v)
    how = FloatSum(records=4, microbatch=2, dtype=np.float32, dimension=1, changed_microbatches=2)
    assert both[1] - both[0] <= Fraction(
        float_sum_sensitivity(how, clip_norm=1.0, grid=Grid(2.0**-60))
    )


@settings(max_examples=100)
@given(
    raw=arrays.arrays(np.float32, st.tuples(st.integers(1, 12), st.integers(1, 3)), elements=ANY32),
    microbatch=st.integers(1, 12),
    data=st.data(),
)
def test_sums_in_random_order_hold_their_sensitivity(
    raw: NDArray[np.float32], microbatch: int, data: st.DataObject
) -> None:
    """Added, zeroed out in its place, or exchanged for another record."""
    rows, grid = np.vstack([clipped(raw), np.zeros((1, raw.shape[1]), np.float32)]), Grid(2.0**-30)
    others = len(raw) - 1
    order, j = data.draw(st.permutations(range(others))), data.draw(st.integers(0, others))
    how = FloatSum(
        records=len(raw),
        microbatch=min(microbatch, len(raw)),
        dtype="f4",
        dimension=raw.shape[1],
        changed_microbatches=2,
    )
    stated = Fraction(float_sum_sensitivity(how, clip_norm=1.0, grid=grid))

    def released(chosen: Sequence[int]) -> F64:
        return grid.integers(summed(rows[list(chosen)], how.microbatch))

    larger = with_record(order, j)
    with_x = released([others if i == X else i for i in larger])
    zeroed = released([others + 1 if i == X else i for i in larger])
    exchanged = released([0 if i == X else i for i in larger])
    unit = Fraction(grid.spacing) ** 2
    assert squared_distance(released(order), with_x) * unit <= stated**2
    assert squared_distance(zeroed, with_x) * unit <= stated**2
    assert squared_distance(exchanged, with_x) * unit <= (2 * stated) ** 2


def test_parts_with_other_microbatches_do_not_merge_into_the_worst() -> None:
    """One leaf is summed by 1 record and 28 terms, another by 4 records, so that both bounds are 90
    u.

    Sums err by as much as the theorem allows. The record in question and the one that it moves put
    all their norm on the first
    leaf, the others on the second: the leaves attain 90 u and 72 u, at right angles.
    """
    u, others = Fraction(1, 2**24), 7
    leaf = [0, 1, 1, 1, 1, 1, 1, 0]  # where record i has its norm; the last is X
    ways = [(1, 28), (4, 1)]
    errors = []
    for number, (microbatch, terms) in enumerate(ways):
        gamma = (microbatch * terms + 2) * u / (1 - (microbatch * terms + 2) * u)
        changed = [i for one, two in differing(range(others), 0, microbatch) for i in (*one, *two)]
        errors.append(gamma * sum(leaf[i] == number for i in changed))
    parts = [
        FloatSum(records=8, microbatch=m, dtype="f4", dimension=1, terms=t, changed_microbatches=2)
        for m, t in ways
    ]

    def excess(*some: FloatSum) -> Fraction:
        return (
            Fraction(
                float_sum_sensitivity(*some, clip_norm=1.0, grid=Grid(2.0**-100), norm_error=0.0)
            )
            - 1
        )

    together = errors[0] ** 2 + errors[1] ** 2
    assert max(excess(part) for part in parts) ** 2 < together <= excess(*parts) ** 2


# --- sums over a sequence ---


@settings(max_examples=100)
@given(
    a=arrays.arrays(np.float32, (2, 4, 3), elements=ANY32),
    b=arrays.arrays(np.float32, (2, 4, 2), elements=ANY32),
)
def test_ghost_norms_and_spreads_are_never_below_the_truth(
    a: NDArray[np.float32], b: NDArray[np.float32]
) -> None:
    for first, second, ghost, spread in zip(
        a, b, ghost_squared_norms(a, b), outer_spread(a, b), strict=True
    ):
        exact = Fraction(0)
        for i in range(3):
            for j in range(2):
                exact += (
                    sum(
                        (
                            x * y
                            for x, y in zip(
                                fractions(first[:, i]), fractions(second[:, j]), strict=True
                            )
                        ),
                        Fraction(0),
                    )
                    ** 2
                )
        assert ghost == np.inf or Fraction(float(ghost)) >= exact
        assert spread == np.inf or Fraction(float(spread)) ** 2 >= exact


def test_p14_terms_that_cancel_need_the_spread_and_not_the_clip_norm() -> None:
    """One coordinate, T = 2: a large pair cancels, its rounding does not. The clip norm alone does
    not bound the error.
    """
    a = np.array([[4096.0, 1.0, -4096.0]], np.float32)
    b = np.array([[4097.0, 1.0, 4097.0]], np.float32)
    products = a * b
    gradient = np.float32(0.0)
    for term in products[0]:
        gradient = np.float32(gradient + term)
    truth = sum((x * y for x, y in zip(fractions(a), fractions(b), strict=True)), Fraction(0))
    assert (float(truth), float(gradient)) == (1.0, 0.0)  # off by all of it
    spread = float(outer_spread(a[:, :, np.newaxis], b[:, :, np.newaxis])[0])
    grid = Grid(2.0**-30)
    blind = FloatSum(records=1, microbatch=1, dtype=np.float32, dimension=1, terms=3)
    aware = FloatSum(records=1, microbatch=1, dtype=np.float32, dimension=1, terms=3, spread=spread)
    assert blind.relative_error * 1.0 < 1.0 < aware.relative_error * spread
    assert (
        float_sum_sensitivity(aware, clip_norm=1.0, grid=grid)
        > 2.0
        > float_sum_sensitivity(blind, clip_norm=1.0, grid=grid)
    )


@pytest.mark.parametrize("records", [1, 7, 1000])
def test_the_stated_sensitivity_is_never_below_the_clip_norm_and_grows(records: int) -> None:
    grid = Grid(2.0**-24)
    low = FloatSum(records=records, microbatch=1, dtype=np.float64, dimension=10)
    high = FloatSum(records=records, microbatch=records, dtype=np.float32, dimension=10)
    assert (
        0.3
        < float_sum_sensitivity(low, clip_norm=0.3, grid=grid)
        < float_sum_sensitivity(high, clip_norm=0.3, grid=grid)
    )
    assert float_sum_sensitivity(low, clip_norm=0.3, grid=grid, norm_error=0.01) > 0.303


# --- joined microbatches ---


def _added(order: list[float], joined: int) -> float:
    """Microbatches of one number, `joined` of them added up in float32, one after the other, then
    float64.
    """
    rows = np.array(order, np.float32)
    sums: list[float] = [
        np.add.accumulate(rows[start : start + joined])[-1].item()
        for start in range(0, len(rows), joined)
    ]
    return math.fsum(sums)


@given(
    seed=st.integers(0, 2**32 - 1),
    joined=st.sampled_from([1, 2, 4, 16, 64]),
    count=st.integers(1, 100),
)
def test_joined_microbatches_keep_the_bound(seed: int, joined: int, count: int) -> None:
    """The record that is added takes the place of another, which goes to the end."""
    rng = np.random.default_rng(seed)
    numbers = (0.5 + 0.5 * rng.random(count + 1)).astype(np.float32).tolist()
    others, place = numbers[1:], int(rng.integers(count + 1))
    more = (
        [*others, numbers[0]]
        if place == count
        else [*others[:place], numbers[0], *others[place + 1 :], others[place]]
    )
    how = FloatSum(
        records=count + 1,
        microbatch=1,
        dtype=np.float32,
        dimension=1,
        joined=joined,
        changed_microbatches=2,
    )
    bound = float_sum_sensitivity(how, clip_norm=1.0, grid=Grid(2.0**-60))
    assert abs(_added(more, joined) - _added(others, joined)) <= bound


def test_p14_an_engine_that_joins_microbatches_and_does_not_say_so_exceeds_the_bound() -> None:
    """Wrong: float32 sums of many microbatches, charged as if each went to float64. 256 numbers of
    a few bits are enough.
    """
    others = [1.0] + [
        2.0**-24 * 1.5
    ] * 255  # each is rounded up to 2^-23 beside 1.0, and exact without it
    blind, aware = (
        FloatSum(
            records=256,
            microbatch=1,
            dtype=np.float32,
            dimension=1,
            joined=joined,
            changed_microbatches=2,
        )
        for joined in (1, 256)
    )
    moved = _added(others, 256) - _added(others[1:], 256)
    assert float_sum_sensitivity(blind, clip_norm=1.0, grid=Grid(2.0**-60)) < moved
    assert moved <= float_sum_sensitivity(aware, clip_norm=1.0, grid=Grid(2.0**-60))
