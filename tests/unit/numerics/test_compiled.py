"""The compiled norms and sums against the NumPy path: the same bits, for any numbers, types, shapes
and layouts.
"""

from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from discreet.errors import NumericsError
from discreet.native import kernels
from discreet.numerics import ExactSum, Grid, _compiled, norms, quantise, squared_norms
from discreet.numerics.norms import Records
from support.paths import compiled_from, on_both

GRID = Grid(2.0**-20)
WIDTHS = [0, 1, 2, 3, 255, 256, 257, 511, 512, 513, 1000, 1025, 2047, 2048, 2049, 4097, 5001]
TYPES = [np.float32, np.float64]


def awkward(columns: int, dtype: type[np.floating]) -> Records:
    """Ordinary records, and some with a number that is none, or at an end of the range."""
    info = np.finfo(dtype)
    generator = np.random.default_rng(columns)
    special = [np.nan, np.inf, -np.inf, info.max, info.tiny, info.smallest_subnormal, -0.0]
    rows = generator.standard_normal((4 + 2 * len(special), columns)).astype(dtype)
    for at, value in enumerate(special):
        rows[4 + at] = value
        rows[4 + len(special) + at, columns // 2 : columns // 2 + 1] = value
    return rows


def layouts(rows: Records) -> Iterator[Records]:
    """The same numbers in other places of memory, as other types of array."""
    yield rows
    yield np.asfortranarray(rows)
    yield np.repeat(rows, 2, axis=1)[:, ::2]
    yield np.repeat(rows, 2, axis=0)[::2]
    yield rows[::-1][::-1]
    shifted = np.empty(rows.nbytes + 1, np.uint8)[1:].view(rows.dtype).reshape(rows.shape)
    shifted[...] = rows
    yield shifted
    frozen = rows.copy()
    frozen.setflags(write=False)
    yield frozen


def total(leaves: dict[str, Records], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    exact = ExactSum(
        {name: leaf.shape[1] for name, leaf in leaves.items()},
        clip_norm=1.0,
        grid=GRID,
        scales={"a": 0.7},
    )
    exact.add(leaves, weights)
    exact.add(leaves, weights)
    return np.concatenate(list(exact.integers().values()))


@pytest.mark.parametrize("dtype", TYPES)
def test_norms_have_the_bits_of_the_numpy_path(dtype: type[np.floating]) -> None:
    for columns in WIDTHS:
        rows = awkward(columns, dtype)
        with np.errstate(all="ignore"):
            numpy, compiled = on_both(lambda rows=rows: norms._sums_of_squares(rows))  # type: ignore[misc]
        assert np.array_equal(compiled, numpy, equal_nan=True)
        numpy, compiled = on_both(lambda rows=rows: squared_norms(rows))  # type: ignore[misc]
        assert compiled.tobytes() == numpy.tobytes()


@pytest.mark.parametrize("dtype", TYPES)
def test_sums_are_those_of_the_numpy_path_and_of_the_records_one_by_one(
    dtype: type[np.floating],
) -> None:
    for columns in WIDTHS:
        rows = awkward(columns, dtype)
        leaves = {"a": rows, "b": rows[:, : columns // 3].astype(np.float64)}
        weights = np.where(np.arange(len(rows)) == 3, 1.0, 0.3 / max(1, columns) ** 0.5)
        numpy, compiled = on_both(lambda leaves=leaves, weights=weights: total(leaves, weights))  # type: ignore[misc]
        assert compiled.tobytes() == numpy.tobytes()
        assert columns == 0 or np.any(compiled)


@pytest.mark.parametrize("dtype", [np.float16, *TYPES])
def test_layout_and_type_of_memory_change_no_bit(dtype: type[np.floating]) -> None:
    with np.errstate(over="ignore"):
        rows = awkward(600, np.float32).astype(dtype)
    weights = np.full(len(rows), 0.01)
    expected = squared_norms(rows).tobytes(), total({"a": rows}, weights).tobytes()
    for other in layouts(rows):
        for found in on_both(
            lambda other=other: (  # type: ignore[misc]
                squared_norms(other).tobytes(),
                total({"a": other}, weights).tobytes(),
            )
        ):
            assert found == expected


def test_p15_a_record_has_its_bits_alone_and_in_any_company_on_either_path() -> None:
    rows = awkward(1500, np.float32)
    with compiled_from(-1):
        together = squared_norms(rows)
        assert squared_norms(rows[::-1].copy()).tobytes() == together[::-1].tobytes()
    for alone in on_both(lambda: np.concatenate([squared_norms(row[np.newaxis]) for row in rows])):
        assert alone.tobytes() == together.tobytes()


def test_p01_compiled_sums_drop_what_exceeds_the_clip_norm() -> None:
    """Records of norm 1/2, 2, infinity and NaN, and one whose leaves are within the clip norm only
    one by one.
    """
    a = np.array([[0.5], [2.0], [np.inf], [np.nan], [0.8]])
    b = np.array([[0.0], [0.0], [0.0], [0.0], [0.8]])
    with compiled_from(-1):
        sums = ExactSum({"a": 1, "b": 1}, clip_norm=1.0, grid=GRID)
        sums.add({"a": a, "b": b}, np.ones(5))
    own = quantise({"a": a[:1], "b": b[:1]}, np.ones(1), clip_norm=1.0, grid=GRID)
    assert sums.integers()["a"].tolist() == own["a"][0].tolist() != [0.0]
    assert sums.integers()["b"].tolist() == [0.0]


def test_the_largest_radius_is_decided_exactly() -> None:
    """2^52 passes and one unit more does not, also when the squares lie in different lanes and
    pieces.
    """
    units = np.zeros((2, 3000))
    units[:, [0, 1, 300, 2999]] = 2.0**25
    units[1, 1000] = 1.0
    squares, sums = np.zeros(2), np.zeros(3000)
    with compiled_from(-1):
        assert _compiled.worth_it(units)
    _compiled.add_units(units, np.ones(2), np.arange(2), sums, squares)
    assert [int(square) for square in squares] == [2**52, 2**52 + 1]
    assert Fraction(float(sums[0])) == 2**26


def test_small_work_is_not_compiled_and_large_work_is(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    rows = np.zeros((6, 10), np.float32)

    def none_yet(*, may_compile: bool) -> None:
        asked.append(may_compile)

    monkeypatch.setattr(_compiled, "kernels", none_yet)
    monkeypatch.setattr(_compiled, "_worked_on", type(_compiled._worked_on)())
    monkeypatch.setattr(_compiled, "_WORTH", 100)
    for _ in range(2):
        assert not _compiled.worth_it(rows)
    assert asked == [False, True]
    assert not _compiled.worth_it(rows.astype(np.float16))
    assert not _compiled.worth_it(rows[:, ::2])
    assert len(asked) == 2


def test_what_is_compiled_already_is_used_for_any_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_compiled, "kernels", lambda **_: kernels(may_compile=True))
    monkeypatch.setattr(_compiled, "_worked_on", type(_compiled._worked_on)())
    assert _compiled.worth_it(np.zeros((2, 3), np.float32))


def test_without_compiled_code_the_numpy_path_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_compiled, "kernels", lambda **_: None)
    monkeypatch.setattr(
        _compiled, "_kernels", _compiled._kernels.__wrapped__
    )  # what was loaded before is kept
    with compiled_from(-1):
        assert squared_norms(np.ones((2, 4)))[0] >= 4.0
        with pytest.raises(NumericsError, match="Use the NumPy path"):
            _compiled.sums_of_squares(np.ones((2, 4)))


def test_arrays_of_other_sizes_are_refused() -> None:
    """Wrong: compiled code writes behind the end of an array."""
    pair = _compiled._kernels(np.dtype(np.float64))
    assert pair is not None
    norm, add = pair
    rows, two, three = np.ones((2, 3)), np.ones(2), np.ones(3)
    for wrong in (three, two[::-1], two.astype(np.float32)):
        with pytest.raises(NumericsError, match="contiguous rows"):
            norm(rows, wrong)
    with pytest.raises(NumericsError, match="contiguous rows"):
        norm(rows.astype(np.float32), two)
    for total, squares in ((two, two), (three, three)):
        with pytest.raises(NumericsError, match="contiguous rows"):
            add(rows, two, np.arange(2), total, squares)
    for places in (np.array([2]), np.array([-1])):
        with pytest.raises(NumericsError, match="records that there are"):
            add(rows, two, places, three, two)
    with pytest.raises(NumericsError, match="a weight for each record"):
        add(rows, three, np.arange(2), three, two)


def fused(rows: NDArray[np.float64], out: NDArray[np.float64]) -> None:
    """As `_plain_squares`, but without rounding the squares:
    what a fused multiply-add computes.
    """
    for i, row in enumerate(rows):
        lanes = [Fraction(0)] * _compiled.LANES
        for j, x in enumerate(row.tolist()):
            if x:
                lanes[j % _compiled.LANES] = Fraction(
                    float(Fraction(x) ** 2 + lanes[j % _compiled.LANES])
                )
        out[i] = norms.tree_sums(np.array([lanes], np.float64))[0]


def test_p18_compiled_code_that_does_not_agree_is_refused() -> None:
    norm, add = _compiled._plain_squares, _compiled._plain_units
    wide = np.dtype(np.float64)
    for pair in ((fused, add), (norm, lambda rows, weight, chosen, total, squares: None)):
        with pytest.raises(NumericsError, match="agrees with plain Python"):
            _compiled._check(wide, *pair)
    _compiled._check(wide, norm, add)
