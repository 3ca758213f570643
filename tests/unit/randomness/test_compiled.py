"""The compiled kernels against the NumPy path: the same bits, released and left."""

import re
import sys
from typing import Any

import numpy as np
import pytest
from numba import config

from discreet.errors import NumericsError
from discreet.randomness import _compiled, gaussian, ziggurat
from support.processors import has_avx2
from support.words import Case, adversarial, random_case

SCALES = [2.0**-32, 0.3, 1.0, 1.1 * 2**23, 2.0**32]
FUSED = r"\bv?fn?m(add|sub|la|ls)"


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


def test_the_compiled_code_rounds_after_every_operation_as_numpy_does() -> None:
    """The parts of the map give the bits of NumPy when they are compiled, so nothing was fused or
    reordered.
    """
    rng = np.random.default_rng(1)
    numbers = rng.random(500) + 2.0**-12
    mantissas, exponents = ziggurat.split(numbers)
    logs = ziggurat.minus_logarithm(mantissas, exponents)
    for j in range(500):
        assert _compiled._split(numbers[j]) == (mantissas[j], exponents[j])
        assert _compiled._minus_log(mantissas[j], exponents[j]) == logs[j]
        assert _compiled._surplus(logs[j], numbers[j]) == ziggurat.surplus(logs, numbers)[j]


def code_of(kernel: Any) -> str:
    return "".join(kernel.inspect_asm().values())


def test_the_machine_code_is_vectorised_and_fuses_nothing() -> None:
    _compiled.compile_noise()
    _compiled.compile_release(np.dtype(np.float32), np.dtype(np.float32))
    first = np.zeros(8, np.float32)
    _compiled.compiled_release(random_case(8, seed=1).first, 1.0, first, 1.0, first)
    kernels = [_compiled._compiled_noise, _compiled._compiled_wedges, _compiled._compiled_walk]
    kernels += [_compiled._compiled_publish_over, _compiled._compiled_each]
    for kernel in kernels:
        assert not re.search(FUSED, code_of(kernel))
    # With less, the compiler leaves a loop as it is: slower, and the same numbers.
    if has_avx2() and config.CPU_NAME in {None, "host", "haswell"}:
        assert re.search(r"vmulpd", code_of(_compiled._compiled_noise))
        assert re.search(r"vmulpd", code_of(_compiled._compiled_publish_over))
        assert re.search(r"vdivpd", code_of(_compiled._compiled_wedges))


def test_the_search_for_fused_instructions_finds_one() -> None:
    assert re.search(FUSED, "\tvfmadd213pd\t%ymm1, %ymm2, %ymm3")
    assert re.search(FUSED, "\tfmla\tv0.2d, v1.2d, v2.2d")


@pytest.mark.parametrize("size", [0, 1, 2, 127, 128, 129, 4095])
def test_any_size(size: int) -> None:
    first = random_case(4096, seed=1).first
    whole, part = np.zeros(4096), np.zeros(size)
    places, _ = _compiled.compiled_release(first, 1.1 * 2**23, whole, 1.0, whole)
    found, _ = _compiled.compiled_release(first[:size], 1.1 * 2**23, part, 1.0, part)
    assert part.tobytes() == whole[:size].tobytes()
    assert np.array_equal(found, places[places < size])


@pytest.mark.parametrize("wrong", ["_compiled_walk", "_compiled_each"])
def test_p18_a_kernel_that_does_not_agree_is_refused(
    wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_compiled, wrong, lambda *_: 0)
    caches = (_compiled.compile_release, _compiled._check_decisions)
    for cached in caches:
        cached.cache_clear()
    try:
        with pytest.raises(NumericsError, match="agrees with the NumPy path"):
            _compiled.compile_noise()
    finally:
        for cached in caches:
            cached.cache_clear()


def test_without_numba_the_numpy_path_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        sys.modules, "discreet.randomness._compiled", None
    )  # a module that is None cannot be imported
    monkeypatch.delattr("discreet.randomness._compiled")
    monkeypatch.setitem(gaussian._asked_for, "numbers", 2**40)
    gaussian._compiled.cache_clear()
    try:
        assert gaussian._backend() is ziggurat.IN_NUMPY
    finally:
        gaussian._compiled.cache_clear()


def test_with_numba_the_compiled_path_is_used_where_it_pays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(gaussian._asked_for, "numbers", gaussian._WORTH_COMPILING - 1)
    assert gaussian._backend() is ziggurat.IN_NUMPY
    monkeypatch.setitem(gaussian._asked_for, "numbers", gaussian._WORTH_COMPILING)
    assert gaussian._backend() is _compiled.COMPILED
