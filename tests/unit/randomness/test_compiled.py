"""The compiled kernels against the NumPy path: the same bits, released and left."""

from typing import Any

import numpy as np
import pytest

from discreet.errors import NumericsError
from discreet.native import kernels
from discreet.randomness import _compiled, gaussian, ziggurat
from support.words import Case, adversarial, random_case

SCALES = [2.0**-32, 0.3, 1.0, 1.1 * 2**23, 2.0**32]
SCALE = 1.1 * 2**23


def cases(scale: float) -> list[Case]:
    return [random_case(20_000, seed=1), adversarial(6_000, scale, seed=2)]


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("sums", [np.float32, np.float64])
@pytest.mark.parametrize("out", [np.float32, np.float64])
def test_the_same_release_as_the_numpy_path(
    scale: float, sums: type[np.floating], out: type[np.floating]
) -> None:
    for case in cases(scale):
        values = np.linspace(-50.0, 50.0, case.first.size).astype(sums)
        ours, theirs = (np.empty(values.size, out) for _ in range(2))
        places, units = _compiled.compiled_release(case.first, scale, values, 2.0**-8, ours)
        their_places, their_units = ziggurat.release_inside(
            case.first, scale, values, 2.0**-8, theirs
        )
        assert np.array_equal(places, their_places)
        assert np.array_equal(units, their_units)
        assert ours.tobytes() == theirs.tobytes()


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_the_same_in_place(kind: type[np.floating]) -> None:
    """Wrong: a number that is left keeps its raw sum, or is read back after it was overwritten."""
    first = random_case(20_000, seed=1).first
    values = (np.arange(first.size) / 4.0).astype(kind)
    elsewhere, here = np.empty(first.size, kind), values.copy()
    places, units = _compiled.compiled_release(first, 2.0**20, values, 0.25, elsewhere)
    own_places, own_units = _compiled.compiled_release(first, 2.0**20, here, 0.25, here)
    assert np.array_equal(places, own_places)
    assert np.array_equal(units, own_units)
    assert np.array_equal(units, values[places] * 4.0)
    assert np.isnan(here[places]).all()
    assert here.tobytes() == elsewhere.tobytes()


@pytest.mark.parametrize("scale", SCALES)
def test_the_same_decisions_as_the_numpy_path(scale: float) -> None:
    for case in cases(scale):
        outside = ziggurat.is_outside(case.first)
        ours, count = _compiled.compiled_decide(case.first, case.further[outside], scale)
        theirs, their_count = ziggurat.decide_outside(case.first, case.further[outside], scale)
        assert count == their_count == np.count_nonzero(outside)
        assert ours.tobytes() == theirs.tobytes()
        assert np.isnan(ours[~outside]).all()


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_the_same_numbers_fit(kind: type[np.floating]) -> None:
    values: Any = np.linspace(-4.0, 4.0, 1_001).astype(kind)
    for is_within in (_compiled.is_within, ziggurat.is_within_bound):
        assert is_within(values, 4.0)
        assert is_within(values[:0], 4.0)
        assert not is_within(values, 3.9)
        for wrong in (np.nan, np.inf, -np.inf, -4.5, 4.5):
            other = values.copy()
            other[517] = wrong
            assert not is_within(other, 4.0)


@pytest.mark.parametrize("change", ["unaligned", "spread", "reversed"])
def test_arrays_that_compiled_code_cannot_take_go_through_numpy(change: str) -> None:
    """Wrong: an address alone is handed over, and the numbers beside it are released."""
    first = random_case(1_000, seed=1).first
    expected, raw = np.zeros(1_000), np.zeros(8 * 3_001, np.uint8)
    _compiled.compiled_release(first, SCALE, np.ones(1_000), 1.0, expected)
    out = {
        "unaligned": raw[1:8_001].view(np.float64),
        "spread": raw[: 8 * 3_000].view(np.float64)[::3],
        "reversed": raw[: 8 * 1_000].view(np.float64)[::-1],
    }[change]
    before = raw.copy()
    _compiled.compiled_release(first, SCALE, np.ones(1_000), 1.0, out)
    assert np.array_equal(out, expected, equal_nan=True)
    out[:] = 0.0
    assert np.array_equal(raw, before)


def test_words_that_are_missing_are_noticed() -> None:
    """Wrong: what lies in memory behind the last row is taken for words."""
    case = adversarial(6_000, SCALE, seed=2)
    outside = ziggurat.is_outside(case.first)
    with pytest.raises(NumericsError, match="a row for each"):
        _compiled.compiled_decide(case.first, case.further[outside][:-1], SCALE)


@pytest.mark.parametrize("size", [0, 1, 2, 127, 128, 129, 4095])
def test_any_size(size: int) -> None:
    first = random_case(4096, seed=1).first
    whole, part = np.zeros(4096), np.zeros(size)
    places, _ = _compiled.compiled_release(first, 1.1 * 2**23, whole, 1.0, whole)
    found, _ = _compiled.compiled_release(first[:size], 1.1 * 2**23, part, 1.0, part)
    assert part.tobytes() == whole[:size].tobytes()
    assert np.array_equal(found, places[places < size])


@pytest.mark.parametrize("wrong", ["release_dd", "decide"])
def test_p18_a_kernel_that_does_not_agree_is_refused(
    wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = _compiled._function

    def function(name: str, arguments: str) -> Any:
        return (lambda *_: 0) if name == wrong else right(name, arguments)

    monkeypatch.setattr(_compiled, "_function", function)
    caches = (_compiled.check_release, _compiled._check_decisions)
    for cached in caches:
        cached.cache_clear()
    try:
        with pytest.raises(NumericsError, match="agrees with the NumPy path"):
            _compiled.check_noise()
    finally:
        for cached in caches:
            cached.cache_clear()


@pytest.mark.parametrize(
    ("constant", "value"),
    [
        ("doubt", -1.0),
        ("least_height", 0.0),
        ("tail_area", 20.0),
        ("minus_ln_2", -0.7),
        ("bits_of_root", 0x3FE0000000000000),
    ],
)
def test_p18_a_kernel_with_another_constant_is_noticed(
    constant: str, value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wrong: sources in C that fell behind `ziggurat`."""
    monkeypatch.setattr(_compiled._CONSTANTS, constant, value)
    with pytest.raises((AssertionError, NumericsError)):
        test_the_same_decisions_as_the_numpy_path(SCALE)


def test_without_compiled_code_the_numpy_path_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def none(*, may_compile: bool) -> None:
        asked.append(may_compile)

    monkeypatch.setattr(gaussian, "kernels", none)
    monkeypatch.setitem(gaussian._asked_for, "numbers", gaussian._WORTH_COMPILING - 1)
    assert gaussian._backend() is ziggurat.IN_NUMPY
    monkeypatch.setitem(gaussian._asked_for, "numbers", gaussian._WORTH_COMPILING)
    assert gaussian._backend() is ziggurat.IN_NUMPY
    assert asked == [False, True]


def test_what_is_compiled_already_is_used_for_any_number(monkeypatch: pytest.MonkeyPatch) -> None:
    assert kernels(may_compile=True) is not None
    monkeypatch.setattr(gaussian, "kernels", lambda **_: kernels(may_compile=True))
    monkeypatch.setitem(gaussian._asked_for, "numbers", 0)
    assert gaussian._backend() is _compiled.COMPILED
