"""The error bound of the fast path, confirmed by the program in support/error_budget.py; and what
the program would notice.
"""

from typing import Any

import mpmath
import numpy as np
import pytest

from discreet.randomness import box_muller
from support.error_budget import largest_error, mantissas
from support.words import adversarial


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
