"""The float64 paths: what they decide, that nothing raw is left, and that their bounds hold."""

import ctypes
import platform
import sys
from typing import Any

import mpmath
import numpy as np
import pytest

from discreet.errors import NumericsError
from discreet.randomness import ziggurat
from discreet.randomness.layers import COUNT, layers, tables
from support import error_budget
from support.error_budget import largest_errors, mantissas
from support.words import adversarial, random_case

FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO = 0x800, 0x400, 0xC00  # x86


def word(layer: int, position: int) -> np.uint64:
    return np.uint64(position << 12 | layer)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_what_is_not_decided_becomes_nan_and_its_sum_is_handed_back(kind: type) -> None:
    """Wrong: the raw sum stays in `out`, which is where it was."""
    case = random_case(40_000, seed=1)
    sums: Any = (np.arange(40_000) / 8.0).astype(kind)
    out = sums.copy()
    places, units = ziggurat.release_inside(case.first, 2.0**20, out, 2.0**-3, out)
    assert places.dtype == np.intp
    assert 20 < places.size < 200
    assert np.array_equal(np.flatnonzero(np.isnan(out)), places)
    assert np.array_equal(units, sums[places] * 8.0)


def test_pieces_do_not_matter() -> None:
    case, sums = random_case(5_000, seed=2), np.linspace(-9.0, 9.0, 5_000)
    whole, parts = np.empty(5_000), np.empty(5_000)
    places, units = ziggurat.release_inside(case.first, 2.0**31, sums, 2.0**-20, whole)
    for start in range(0, 5_000, 777):
        piece = slice(start, start + 777)
        found, kept = ziggurat.release_inside(
            case.first[piece], 2.0**31, sums[piece], 2.0**-20, parts[piece]
        )
        here = (places >= start) & (places < start + 777)
        assert np.array_equal(found + start, places[here])
        assert np.array_equal(kept, units[here])
    assert np.array_equal(whole, parts, equal_nan=True)


def test_nothing_in_nothing_out() -> None:
    nothing = np.empty(0, np.uint64)
    places, units = ziggurat.release_inside(nothing, 1.0, np.empty(0), 1.0, np.empty(0))
    assert places.size == units.size == 0
    integers, outside = ziggurat.decide_outside(nothing, np.empty((0, 5), np.uint64), 1.0)
    assert integers.size == outside == 0


@pytest.mark.parametrize("layer", [0, 1, 2, 77, COUNT // 2, COUNT - 2, COUNT - 1])
def test_the_ends_of_an_inside(layer: int) -> None:
    """The last position inside and the first one outside, of either sign."""
    limit = layers().limits[layer] << 27
    if limit < 0:
        assert ziggurat.is_outside(np.array([word(layer, 2**51)]))[0]
        return
    positions = [2**51 + limit, 2**51 + limit + 1, 2**51 - limit, 2**51 - limit - 1]
    words = np.array([word(layer, position) for position in positions])
    assert ziggurat.is_outside(words).tolist() == [False, True, False, True]


def test_the_sign_is_that_of_the_position() -> None:
    words = np.array([word(5, 2**51 + 2**50), word(5, 2**51 - 2**50)])
    out = np.zeros(2)
    ziggurat.release_inside(words, 1e6, out, 1.0, out)
    assert out[0] == -out[1] > 0


def test_integers_have_no_negative_zero() -> None:
    out = np.full(4_000, -0.3)
    ziggurat.release_inside(random_case(4_000, seed=3).first, 0.2, out, 1.0, out)
    assert np.sum(out == 0.0) > 1_000
    assert not np.signbit(out[out == 0.0]).any()


def test_an_attempt_without_words_is_left_open() -> None:
    """Three rejections in a row: the exact path goes on."""
    rejected = word(5, 2**52 - 1)
    top = np.uint64(2**64 - 1)
    further = np.array([[top, rejected, top, rejected, top]])
    integers, outside = ziggurat.decide_outside(np.array([rejected]), further, 10.0)
    assert np.isnan(integers[0])
    assert outside == 1


def test_later_attempts_read_later_words() -> None:
    rejected, top = word(5, 2**52 - 1), np.uint64(2**64 - 1)
    taken = word(5, 2**51 + 2**50)
    expected = np.rint(ziggurat.slopes(1000.0)[5] / 4)
    second = np.array([[top, taken, top, taken, top]])
    third = np.array([[top, rejected, top, taken, top]])
    for further in (second, third):
        assert ziggurat.decide_outside(np.array([rejected]), further, 1000.0)[0][0] == expected


@pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64",
    reason="codes of fesetround on x86 Linux",
)
@pytest.mark.parametrize("mode", [FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO])
def test_another_rounding_mode_is_refused(mode: int) -> None:
    libm = ctypes.CDLL("libm.so.6")
    refused = 0
    words, out = np.zeros(2, np.uint64), np.zeros(2)
    further = np.zeros((2, 5), np.uint64)
    try:
        if libm.fesetround(mode) == 0:
            for attempt in (
                lambda: ziggurat.release_inside(words, 1.0, out, 1.0, out),
                lambda: ziggurat.decide_outside(words, further, 1.0),
            ):
                try:
                    attempt()
                except NumericsError:
                    refused += 1
    finally:
        libm.fesetround(0)
    assert refused == 2
    ziggurat.check_rounding()


# --- the bounds ---


def test_the_thresholds_are_on_the_safe_side() -> None:
    for scale in (2.0**-32, 1.0, 1.1 * 2**23, 2.0**32):
        for error, threshold in (
            (ziggurat.ERROR, ziggurat.decision_threshold(scale)),
            (ziggurat.TAIL_ERROR, ziggurat.tail_threshold(scale)),
        ):
            assert 0.5 - 2 * scale * error - 2.0**-50 < threshold < 0.5 - scale * error + 2.0**-60
            assert threshold < 0.5


def test_the_bounds_hold_for_all_words() -> None:
    errors = largest_errors()
    assert errors.inside < ziggurat.ERROR / 2  # room is left: no bound is knife-edge
    assert errors.tail < ziggurat.TAIL_ERROR / 2
    assert errors.surplus < ziggurat.DOUBT / 2


def test_the_cells_cover_all_mantissas() -> None:
    lo, hi = mantissas(fine=6)
    root = error_budget.root_half()
    assert lo[0] == root
    assert hi[-1] == 2 * root
    assert np.array_equal(lo[1:], hi[:-1])
    mantissa, exponent = ziggurat.split(np.array([root, np.nextafter(root, 0), 1.0, 3e-4, 1.2]))
    assert np.array_equal(mantissa * 2.0**exponent, [root, np.nextafter(root, 0), 1.0, 3e-4, 1.2])
    assert np.all((mantissa >= root) & (mantissa < 2 * root))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LOG", (*ziggurat.LOG[:3], ziggurat.LOG[3] * (1 + 1e-4), *ziggurat.LOG[4:])),
        ("MINUS_LN_2", ziggurat.MINUS_LN_2 * (1 + 1e-10)),
        ("LEAST_TAIL", 2.0**-14),
    ],
)
def test_a_wrong_constant_breaks_a_bound(
    monkeypatch: pytest.MonkeyPatch, name: str, value: object
) -> None:
    monkeypatch.setattr(ziggurat, name, value)
    errors = largest_errors()
    assert errors.tail > ziggurat.TAIL_ERROR or errors.surplus > ziggurat.DOUBT


def test_an_unsteady_order_of_operations_breaks_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Adding 2^20 and subtracting it again loses bits: the program walks what is executed, so it
    must notice.
    """
    stable = ziggurat.surplus
    monkeypatch.setattr(ziggurat, "surplus", lambda log, x: stable((log + 2.0**20) - 2.0**20, x))
    assert largest_errors().surplus > ziggurat.DOUBT


def test_true_errors_are_below_the_bounds_and_not_far_below() -> None:
    """Against 60 digits, at both ends of a prefix. A bound must not be an accident of a wrong
    rule.
    """
    case = adversarial(3_000, 1.0, seed=1)
    layer = ziggurat.layer_index(case.first).astype(int)
    f = ziggurat.position_of(case.first)
    x = f * ziggurat.slopes(1.0)[layer]
    worst = mpmath.mpf(0)
    with mpmath.workdps(60):
        for j in range(case.first.size):
            numerator, denominator = layers().widths[layer[j]]
            for end in (0, 1):
                true = (mpmath.mpf((int(case.first[j]) >> 12) + end) / 2**52 - 0.5) * 2
                worst = max(worst, abs(true * numerator / denominator - x[j]))
    assert 2.0**-50 < worst < largest_errors().inside


def test_true_errors_of_the_logarithm() -> None:
    rng = np.random.default_rng(5)
    y = np.concatenate(
        [rng.random(2_000), 1.0 - rng.random(500) * 2.0**-12, tables().edges[1:-1:9]]
    )
    y = y[y > 2.0**-14]
    found: Any = ziggurat.minus_logarithm(*ziggurat.split(y))
    with mpmath.workdps(40):
        worst = max(abs(-mpmath.log(mpmath.mpf(v)) - g) for v, g in zip(y, found, strict=True))
    assert 2.0**-52 < worst < 2.0**-44
