"""The compiled kernel against the NumPy path: the same bits before rounding, the same integers, a
superset of doubts.
"""

import re
import sys

import numpy as np
import pytest
from numpy.typing import NDArray

from discreet.errors import NumericsError
from discreet.randomness import Purpose, Source, _compiled, box_muller, gaussian
from support.processors import has_avx2

SCALES = [2.0**-32, 0.3, 1.0, 1.1 * 2**23, 2.0**32]


def random_words(count: int, key: int = 1) -> NDArray[np.uint64]:
    return Source.unsafe_test_key(bytes([key] * 32)).stream(Purpose.NOISE, step=0).words(count)


def edge_words() -> NDArray[np.uint64]:
    """Both ends of the window, powers of two, sqrt(1/2), and angles at the ends and in the middle,
    with all four signs.
    """
    firsts = [0, 1, 2, 2**64 - 1, 2**63, 2**63 - 1]
    for middle in [2**44, 2**64 - 2**46, 0xB504F333F9DE6484, *(2**k for k in range(40, 64))]:
        firsts += [
            middle + d for d in (-(2**11), -3, -2, -1, 0, 1, 2, 3, 2**11) if middle + d < 2**64
        ]
    angles = [0, 1, 2**51 - 1, 2**51, 2**51 + 1, 2**52 - 2, 2**52 - 1]
    seconds = [angle | quarter << 62 | 0x3FF << 52 for angle in angles for quarter in range(4)]
    pairs = [(first, second) for first in firsts for second in seconds]
    return np.array(pairs, np.uint64).reshape(-1)


def both(
    words: NDArray[np.uint64], scale: float
) -> tuple[NDArray[np.float64], NDArray[np.float64], set[int], set[int]]:
    ours, theirs = np.empty(words.size), np.empty(words.size)
    doubts = set(_compiled.compiled_candidates(words, scale, ours).tolist())
    their_doubts = set(box_muller.candidates(words, scale, theirs).tolist())
    return ours.reshape(-1, 2), theirs.reshape(-1, 2), doubts, their_doubts


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("words", [random_words(2**16), edge_words()], ids=["random", "edges"])
def test_same_integers_and_same_doubts_as_the_numpy_path(
    words: NDArray[np.uint64], scale: float
) -> None:
    ours, theirs, doubts, their_doubts = both(words, scale)
    assert doubts == their_doubts
    decided = [j for j in range(len(ours)) if j not in doubts]
    assert len(decided) > len(ours) // 4
    assert np.array_equal(ours[decided], theirs[decided])
    assert not np.signbit(ours[ours == 0.0]).any()


def in_numpy(words: NDArray[np.uint64], scale: float) -> tuple[NDArray[np.float64], ...]:
    """(r cos b, r sin b, u) by the functions of the kernel, run by NumPy on arrays."""
    radius, u = _compiled._radius(words[0::2], words[1::2], np.float64(scale))
    return *_compiled._cartesian(radius, _compiled._sine(words[1::2])), u


def test_the_compiled_code_rounds_after_every_operation_as_numpy_does() -> None:
    """The kernel's functions run by NumPy give the bits that the compiled code gives, so nothing
    was fused or reordered.
    """
    words = random_words(2**12)
    for scale in SCALES:
        compiled = []
        for w1, w2 in words.reshape(-1, 2)[:512]:
            radius, u = _compiled._inlined_radius(w1, w2, scale)
            compiled.append([*_compiled._inlined_cartesian(radius, _compiled._inlined_sine(w2)), u])
        for column, values in zip(np.array(compiled).T, in_numpy(words[:1024], scale), strict=True):
            assert np.array_equal(column, values)
            assert np.array_equal(np.signbit(column), np.signbit(values))


def test_the_operations_are_those_that_the_error_budget_is_proven_for() -> None:
    """Bit by bit the functions of `box_muller`, which the checker of the budget walks."""
    words = np.concatenate([random_words(2**14), edge_words()])
    words = words.reshape(-1, 2)[words[0::2] >= 2**44].reshape(-1)
    scale = np.array(1.1 * 2**23)
    x, y, u = in_numpy(words, float(scale))
    mantissa = (words[0::2] >> np.uint64(1)).astype(np.int64).astype(np.float64)
    assert np.array_equal(u, mantissa)
    power, a, r = np.empty(u.size), np.empty(u.size), np.empty(u.size)
    box_muller._split(mantissa.view(np.int64), power.view(np.int64))
    box_muller.radius(mantissa, power.view(np.int64).astype(np.float64), scale, a, r)
    fraction = ((words[1::2] & np.uint64(2**52 - 1)) | np.uint64(0x3FF << 52)).view(
        np.float64
    ) - 1.5
    sine, cosine = np.empty(u.size), np.empty(u.size)
    box_muller.sine_cosine(fraction, sine, cosine)
    r = np.where(words[1::2] >> np.uint64(63), -r, r)
    box_muller.cartesian(r, sine, cosine)
    assert np.array_equal(x.view(np.uint64), cosine.view(np.uint64))
    assert np.array_equal(y.view(np.uint64), sine.view(np.uint64))


def test_the_machine_code_is_vectorised_and_fuses_nothing() -> None:
    _compiled.compiled_candidates(random_words(64), 1.0, np.empty(64))
    (code,) = _compiled._compiled_block.inspect_asm().values()
    assert not re.search(r"\bv?fn?m(add|sub|la|ls)", code)
    if has_avx2():  # with less, the compiler leaves the loop as it is: slower, and the same numbers
        assert len(re.findall(r"v?sqrtpd", code)) >= 2, (
            "a loop without packed square roots: it was not vectorised"
        )


def test_the_search_for_fused_instructions_finds_one() -> None:
    assert re.search(r"\bv?fn?m(add|sub|la|ls)", "\tvfmadd213pd\t%ymm1, %ymm2, %ymm3")
    assert re.search(r"\bv?fn?m(add|sub|la|ls)", "\tfmla\tv0.2d, v1.2d, v2.2d")


def test_adding_leaves_an_undecided_pair_as_it_was() -> None:
    words = random_words(2**16)
    start = np.arange(words.size, dtype=np.float64)
    added, noise = start.copy(), np.empty(words.size)
    doubts = _compiled.add(words, 2.0**32, added)
    assert np.array_equal(doubts, _compiled.compiled_candidates(words, 2.0**32, noise))
    assert doubts.size > 10
    assert np.array_equal(added, start + noise)
    assert np.array_equal(added.reshape(-1, 2)[doubts], start.reshape(-1, 2)[doubts])


@pytest.mark.parametrize("size", [0, 2, 4, 510, 512, 514, 2**12 - 2])
def test_any_even_size(size: int) -> None:
    words = random_words(2**12)
    whole, part = np.empty(2**12), np.empty(size)
    _compiled.compiled_candidates(words, 1.1 * 2**23, whole)
    _compiled.compiled_candidates(words[:size], 1.1 * 2**23, part)
    assert np.array_equal(part, whole[:size])


def test_p18_a_kernel_that_does_not_agree_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(
        words: object, scale: float, limit: float, out: NDArray[np.float64]
    ) -> NDArray[np.intp]:
        out[:] = 1.0
        return np.empty(0, np.intp)

    monkeypatch.setattr(_compiled, "_compiled_walk", wrong)
    _compiled.compile_noise.cache_clear()
    try:
        with pytest.raises(NumericsError, match="agrees with the NumPy path"):
            _compiled.compiled_candidates(random_words(64), 1.0, np.empty(64))
    finally:
        _compiled.compile_noise.cache_clear()


def test_without_numba_the_numpy_path_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        sys.modules, "discreet.randomness._compiled", None
    )  # a module that is None cannot be imported
    monkeypatch.delattr("discreet.randomness._compiled")
    monkeypatch.setitem(gaussian._asked_for, "numbers", 2**40)
    gaussian._compiled.cache_clear()
    try:
        assert gaussian._backend() is box_muller.candidates
    finally:
        gaussian._compiled.cache_clear()


def test_with_numba_the_compiled_path_is_used_where_it_pays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(gaussian._asked_for, "numbers", gaussian._WORTH_COMPILING - 1)
    assert gaussian._backend() is box_muller.candidates
    monkeypatch.setitem(gaussian._asked_for, "numbers", gaussian._WORTH_COMPILING)
    assert gaussian._backend() is _compiled.compiled_candidates
    assert gaussian._adder(_compiled.compiled_candidates) is _compiled.add
