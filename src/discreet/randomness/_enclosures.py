"""Proven enclosures of logarithm, sine and cosine, in integers.

A number y is enclosed by two integers: lo <= y * 2^bits <= hi. Divisions and shifts round down;
what they lose is counted and added to hi. The counts are derived at each function;
docs/proofs/noise.md repeats them.
"""

from __future__ import annotations

from functools import cache
from math import isqrt

__all__ = ["atanh", "half_pi", "minus_log", "sine_cosine"]

_TABLE_BITS = 6  # ln is tabulated at 64 points per octave

_Enclosure = tuple[int, int]


def atanh(numerator: int, denominator: int, bits: int) -> _Enclosure:
    """Inverse hyperbolic tangent of a fraction in [0, 1/3].

    With y = floor(z 2^bits): z^2 and every odd power of z lose less than 2 units (2 -> 1 + 2/9 +
    2/3 < 2), every term less than 3, and the terms after the last one, whose power is below 2
    units, sum to less than 3.
    """
    power = (numerator << bits) // denominator
    square = power * power >> bits
    total, odd = 0, 1
    while power:
        total += power // odd
        power = power * square >> bits
        odd += 2
    return total, total + 3 * (odd // 2) + 3


@cache
def _log_of_point(point: int, bits: int) -> _Enclosure:
    """ln(point / 64) for 64 <= point <= 128."""
    lo, hi = atanh(point - 64, point + 64, bits)
    return 2 * lo, 2 * hi


@cache
def half_pi(bits: int) -> _Enclosure:
    """pi/2 = 8 arctan(1/5) - 2 arctan(1/239) (Machin)."""
    (a_lo, a_hi), (b_lo, b_hi) = (_arctan_of_inverse(n, bits) for n in (5, 239))
    return 8 * a_lo - 2 * b_hi, 8 * a_hi - 2 * b_lo


def _arctan_of_inverse(n: int, bits: int) -> _Enclosure:
    """Each power and each term loses less than 2 units, up or down; what is left out is below 2."""
    power = (1 << bits) // n
    total, odd, sign = 0, 1, 1
    while power:
        total += sign * (power // odd)
        power //= n * n
        odd += 2
        sign = -sign
    slack = 2 * (odd // 2) + 2
    return total - slack, total + slack


def minus_log(numerator: int, exponent: int, bits: int) -> _Enclosure:
    """-ln(numerator / 2^exponent) for 0 < numerator <= 2^exponent.

    numerator = 2^k m with m in [1, 2); m = (point/64) (1 + d) with 0 <= d < 1/64; ln(1 + d) = 2
    atanh(d / (2 + d)).
    """
    k = numerator.bit_length() - 1
    point = numerator >> (k - _TABLE_BITS) if k >= _TABLE_BITS else numerator << (_TABLE_BITS - k)
    nearest = point << k  # 64 * 2^k * (point/64), against 64 * numerator
    scaled = numerator << _TABLE_BITS
    d_lo, d_hi = atanh(scaled - nearest, scaled + nearest, bits)
    p_lo, p_hi = _log_of_point(point, bits)
    two_lo, two_hi = _log_of_point(128, bits)
    powers = exponent - k
    return max(powers * two_lo - p_hi - 2 * d_hi, 0), powers * two_hi - p_lo - 2 * d_lo


def sine_cosine(numerator: int, exponent: int, bits: int) -> tuple[_Enclosure, _Enclosure]:
    """Sine and cosine of the angles from f*pi/2 to (f + 2^-exponent)*pi/2, f = numerator /
    2^exponent in [0, 1/2).

    Let y = floor(f * lower pi/2 * 2^bits) stand for the angle; its sine is at most that of the true
    angle, and less by at most the difference of the angles. In the series of y the square loses
    less than 1 unit, every term less than 2 since 1 + (2 + 1)/6 < 2, and the terms after the last
    one less than 1 together. Over the interval the sine rises by less than pi/2 * 2^-exponent <
    2^(1 - exponent). The cosine follows by sqrt(1 - sine^2).
    """
    pi_lo, pi_hi = half_pi(bits)
    angle = numerator * pi_lo >> exponent
    lost = (numerator * (pi_hi - pi_lo) >> exponent) + 2  # the sine's slope is at most 1
    square = angle * angle >> bits
    term, total, k = angle, angle, 1
    while term:
        term = (term * square >> bits) // ((k + 1) * (k + 2))
        k += 2
        total += term if k % 4 == 1 else -term
    slack = 2 * (k // 2) + 3
    one = 1 << bits
    lo = max(total - slack, 0)
    hi = min(total + slack + lost + ((2 << bits) >> exponent) + 1, one)
    unit = one << bits
    return (lo, hi), (isqrt(unit - hi * hi), min(isqrt(unit - lo * lo) + 1, one))
