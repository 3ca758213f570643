"""The geometry of the layers, verified by an integer program that shares nothing with the one that
made them.
"""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from math import sqrt

import numpy as np
import pytest

from discreet.randomness.layers import (
    COUNT,
    HEIGHT_BITS,
    LIMIT_BITS,
    POSITION_BITS,
    R_BITS,
    Layers,
    R,
    layers,
    tables,
)

BITS = 160
ONE = 1 << BITS


def bell(x: Fraction) -> tuple[int, int]:
    """Enclose exp(-x^2/2), in units of 2^-160: exp(-q) = exp(-q/1024)^1024, by the alternating
    series of the small argument and ten squarings, each rounded outward.
    """
    scaled = x * x / 2 / 1024
    q_lo = scaled.numerator * ONE // scaled.denominator
    q_hi = q_lo + 1
    lo, hi = _exp_of_minus(q_hi)[0], _exp_of_minus(q_lo)[1]
    for _ in range(10):
        lo, hi = lo * lo >> BITS, (hi * hi >> BITS) + 1
    return lo, hi


def _exp_of_minus(q: int) -> tuple[int, int]:
    """1 - q + q^2/2 - ...; every term loses less than 2 units, and the rest is below the last."""
    total, term, k = ONE, ONE, 0
    while term:
        k += 1
        term = (term * q >> BITS) // k
        total += -term if k % 2 else term
    return total - 2 * k - 2, total + 2 * k + 2


def faults(found: Layers) -> list[str]:
    """Everything that is wrong with the geometry; obligations 1a to 1e of docs/proofs/noise.md."""
    unit = 1 << HEIGHT_BITS
    r = Fraction(R, 1 << R_BITS)
    area = Fraction(found.heights[0], unit) * (r + 1 / r)
    wrong = []
    if bell(r)[1] * unit > found.edges[1] * ONE:
        wrong.append("the bell at r is above layer 0")
    if found.edges[0] != 0 or found.edges[COUNT] < unit:
        wrong.append("the layers do not reach from 0 to 1")

    for i in range(COUNT):
        width = Fraction(*found.widths[i])
        if found.edges[i + 1] != found.edges[i] + found.heights[i]:
            wrong.append(f"layer {i} does not lie on the one below")
        if width * found.heights[i] != area * unit:
            wrong.append(f"layer {i} has another area")
        if i and bell(width)[1] * unit > found.edges[i] * ONE:
            wrong.append(f"the bell is wider than layer {i}")

        # The largest x of a position that counts as inside.
        size = Fraction(found.limits[i], 1 << LIMIT_BITS) + Fraction(1, 1 << POSITION_BITS)
        if found.limits[i] >= 0 and bell(2 * size * width)[0] * unit < found.edges[i + 1] * ONE:
            wrong.append(f"a position inside of layer {i} may be above the bell")
    return wrong


def test_the_layers_cover_the_bell_and_their_insides_are_under_it() -> None:
    assert faults(layers()) == []


def changed(values: tuple[int, ...], place: int, by: int) -> tuple[int, ...]:
    return (*values[:place], values[place] + by, *values[place + 1 :])


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda one: replace(one, limits=changed(one.limits, 7, 2)), "inside of layer 7"),
        (lambda one: replace(one, heights=changed(one.heights, 9, 1)), "layer 9"),
        (lambda one: replace(one, edges=changed(one.edges, COUNT, -(2**40))), "from 0 to 1"),
        (
            lambda one: replace(
                one,
                widths=(
                    *one.widths[:5],
                    (one.widths[5][0] - 2**60, one.widths[5][1]),
                    *one.widths[6:],
                ),
            ),
            "layer 5",
        ),
        (lambda one: replace(one, edges=changed(one.edges, 1, -1)), "above layer 0"),
    ],
)
def test_one_wrong_entry_is_noticed(change: Callable[[Layers], Layers], fault: str) -> None:
    assert any(fault in found for found in faults(change(layers())))


def test_every_machine_has_the_same_layers() -> None:
    exact = layers()
    numbers = ",".join(str(n) for n in (*exact.heights, *exact.limits))
    assert hashlib.sha256(numbers.encode()).hexdigest()[:16] == "156787de6b69c3aa"


def test_the_layers_waste_little() -> None:
    """The share of points above the bell, and of positions that are not inside."""
    exact = layers()
    area = exact.heights[0] / 2**HEIGHT_BITS * float(Fraction(*exact.widths[0]))
    assert 1 - sqrt(np.pi / 2) / (COUNT * area) < 0.0006
    assert np.mean(1 - 2 * np.maximum(tables().limits, 0.0)) < 0.0013


def test_tables_are_rounded_once_and_limits_are_exact() -> None:
    exact, table = layers(), tables()
    for i in (0, 1, 2, 1000, COUNT - 1):
        assert table.twice_widths[i] == float(2 * Fraction(*exact.widths[i]))
        assert table.heights[i] == float(Fraction(exact.heights[i], 2**HEIGHT_BITS))
    assert np.array_equal(table.limits * 2**LIMIT_BITS, np.array(exact.limits))
    assert np.array_equal(table.limits.astype(np.float32), table.limits)
    assert np.all(np.diff(table.twice_widths[1:]) < 0)
    with pytest.raises(ValueError, match="read-only"):
        table.limits[0] = 0.5
