"""The float64 path: what it decides, in which pieces, and that it refuses another rounding mode."""

import ctypes
import platform
import sys
from typing import Any

import mpmath
import numpy as np
import pytest

from discreet.errors import NumericsError
from discreet.randomness import Purpose, Source, box_muller
from discreet.randomness.refine import refine
from support.error_budget import largest_error, mantissas
from support.words import adversarial

FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO = 0x800, 0x400, 0xC00  # x86


def test_pieces_do_not_matter() -> None:
    words = (
        Source.unsafe_test_key(bytes(32))
        .stream(Purpose.NOISE, step=0)
        .words(2 * box_muller.CHUNK * 2 + 10)
    )
    scale = 2.0**31  # many undecided pairs
    whole = np.empty(words.size)
    undecided = box_muller.candidates(words, scale, whole)
    assert undecided.size > 20
    assert undecided.dtype == np.intp
    for start in range(0, words.size, 9_998):
        part = np.empty(words[start : start + 9_998].size)
        found = box_muller.candidates(words[start : start + 9_998], scale, part)
        assert np.array_equal(part, whole[start : start + 9_998])
        here = (undecided >= start // 2) & (undecided < start // 2 + part.size // 2)
        assert np.array_equal(found + start // 2, undecided[here])


def test_nothing_in_nothing_out() -> None:
    assert box_muller.candidates(np.empty(0, np.uint64), 1.0, np.empty(0)).size == 0


def test_outside_the_window_nothing_is_decided() -> None:
    edges = [0, 1, 2**43 - 1, 2**43, 2**63 - 2**45, 2**63 - 2**45 + 2**12, 2**63 - 1]
    words = np.array([(u << 1, 2**50 + 12345) for u in edges], np.uint64).reshape(-1)
    assert list(box_muller.candidates(words, 1.0, np.empty(words.size))) == [0, 1, 2, 5, 6]


def test_undecided_pairs_are_those_near_a_boundary() -> None:
    """A wider margin finds more pairs, never fewer, and the integers of decided pairs stay."""
    scale = 1.1 * 2**23
    words = adversarial(6_000, scale, seed=5)
    out = np.empty(words.size)
    found = box_muller.candidates(words, scale, out)
    source = Source.unsafe_test_key(bytes(32)).stream(Purpose.NOISE, step=0)
    exact = [refine(source, int(pair), words[2 * pair : 2 * pair + 2], scale) for pair in found]
    close = [
        np.abs(np.array(e) - out[2 * p : 2 * p + 2]).max() <= 1
        for e, p in zip(exact, found, strict=True)
    ]
    inside = (words[0::2][found] >> np.uint64(1) >= 2**43) & (
        words[0::2][found] >> np.uint64(1) <= 2**63 - 2**45
    )
    assert np.all(np.array(close)[inside])


def test_the_signs_and_the_exchange() -> None:
    base = np.array([2**62, 2**51 + 2**49], np.uint64)
    both = []
    for flags in range(4):
        words = base | np.array([0, flags << 62], np.uint64)
        out = np.empty(2)
        box_muller.candidates(words, 1e6, out)
        both.append(tuple(out))
    (x1, x2), swapped, negated, all_three = both
    assert x1 > x2 > 0
    assert swapped == (x2, x1)
    assert negated == (-x1, -x2)
    assert all_three == (-x2, -x1)


@pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64",
    reason="codes of fesetround on x86 Linux",
)
@pytest.mark.parametrize("mode", [FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO])
def test_another_rounding_mode_is_refused(mode: int) -> None:
    libm = ctypes.CDLL("libm.so.6")
    refused = False
    words, out = np.zeros(2, np.uint64), np.empty(2)
    try:
        if libm.fesetround(mode) == 0:
            try:
                box_muller.candidates(words, 1.0, out)
            except NumericsError:
                refused = True
    finally:
        libm.fesetround(0)
    assert refused
    box_muller.check_rounding()


def test_the_threshold_is_on_the_safe_side() -> None:
    for scale in (2.0**-32, 1.0, 1.1 * 2**23, 2.0**32):
        assert (
            0.5 - 2 * scale * box_muller.ERROR - 2.0**-50
            < box_muller.decision_threshold(scale)
            < 0.5 - scale * box_muller.ERROR + 2.0**-60
        )
        assert box_muller.decision_threshold(scale) < 0.5


def test_the_bound_holds_for_every_word_of_the_window() -> None:
    assert largest_error() < box_muller.ERROR / 2  # room is left: the bound is not knife-edge


def test_the_cells_cover_the_window() -> None:
    lo, hi, exponent = mantissas(fine=6)
    ends = sorted(zip(lo * 2.0**exponent, hi * 2.0**exponent, strict=True))
    reached = box_muller.LOWEST
    for low, high in ends:
        assert low <= reached
        reached = max(reached, high)
    assert reached == box_muller.HIGHEST


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LOG", (*box_muller.LOG[:3], box_muller.LOG[3] * (1 + 1e-6), *box_muller.LOG[4:])),
        ("SINE", (*box_muller.SINE[:5], 0.0)),
        ("MINUS_TWO_LN_2", box_muller.MINUS_TWO_LN_2 * (1 + 1e-12)),
        ("LOWEST", 2.0**39),
        ("HIGHEST", 2.0**63 - 2.0**40),
    ],
)
def test_a_wrong_constant_breaks_the_bound(
    monkeypatch: pytest.MonkeyPatch, name: str, value: object
) -> None:
    monkeypatch.setattr(box_muller, name, value)
    assert largest_error() > box_muller.ERROR


def test_an_unsteady_order_of_operations_breaks_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Adding 2^70 and subtracting it again loses bits: the program walks what is executed, so it
    must notice.
    """
    stable = box_muller.radius

    def unsteady(mantissa: Any, *others: Any) -> None:
        np.add(mantissa, np.array(2.0**70), mantissa)
        np.subtract(mantissa, np.array(2.0**70), mantissa)
        stable(mantissa, *others)

    monkeypatch.setattr(box_muller, "radius", unsteady)
    assert largest_error() > box_muller.ERROR


def test_true_errors_are_below_the_bound_and_not_far_below() -> None:
    """Against 60 digits, at both ends of both prefixes. The program's bound must not be an accident
    of a wrong rule.
    """
    words = adversarial(1_500, 1.0, seed=1)
    u = (words[0::2] >> np.uint64(1)).astype(np.int64).astype(float)
    inside = (u >= box_muller.LOWEST) & (u <= box_muller.HIGHEST)
    first, second = words[0::2][inside], words[1::2][inside]
    mantissa, power, r, s, c, a = (np.empty(first.size) for _ in range(6))
    mantissa[:] = u[inside]
    box_muller._split(mantissa.view(np.int64), power.view(np.int64))
    power[:] = power.view(np.int64).astype(float)
    box_muller.radius(mantissa, power, np.array(1.0), a, r)
    t = second & np.uint64(2**52 - 1)
    box_muller.sine_cosine(t.astype(float) * 2.0**-52 - 0.5, s, c)
    box_muller.cartesian(r, s, c)
    worst = mpmath.mpf(0)
    with mpmath.workdps(60):
        for j, (word, angle) in enumerate(zip(first, t, strict=True)):
            for end in (0, 1):
                true = mpmath.sqrt(-2 * mpmath.log(mpmath.mpf((int(word) >> 1) + end) / 2**63))
                b = (mpmath.mpf(int(angle) + end) / 2**52 - 0.5) * mpmath.pi / 2
                worst = max(
                    worst, abs(true * mpmath.cos(b) - c[j]), abs(true * mpmath.sin(b) - s[j])
                )
    assert 2.0**-46 < worst < largest_error()
