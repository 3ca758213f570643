"""The worst pairs of docs/proofs/rdp.md, against random pairs in two dimensions integrated on a
grid.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from discreet.accounting.rdp import divergences

if TYPE_CHECKING:
    from numpy.typing import NDArray

SPACING = 0.3
AXIS = np.arange(-24.0, 24.0 + SPACING / 2, SPACING)
FIRST, SECOND = np.meshgrid(AXIS, AXIS, indexing="ij")
WEIGHT = np.exp(-0.5 * (FIRST**2 + SECOND**2)) * SPACING**2 / (2 * math.pi)

disc = st.tuples(st.floats(0.0, 1.0), st.floats(0.0, 2 * math.pi)).map(
    lambda polar: np.array([polar[0] * math.cos(polar[1]), polar[0] * math.sin(polar[1])])
)
orders = st.floats(1.1, 5.0)
probabilities = st.floats(0.001, 0.9)
noises = st.floats(1.0, 4.0)


def ratio(shift: NDArray[np.float64], s: float) -> NDArray[np.float64]:
    """Density of N(shift, s^2) over that of N(0, s^2) at s times the grid."""
    result: NDArray[np.float64] = np.exp(
        (shift[0] * FIRST + shift[1] * SECOND) / s - shift @ shift / (2 * s * s)
    )
    return result


def moment_distance(up: NDArray[np.float64], down: NDArray[np.float64], order: float) -> float:
    """A - 1 for density ratios a = up, b = down: E[a^order b^(1-order) - 1 - order (a-1) +
    (order-1)(b-1)].
    """
    terms = up**order * down ** (1 - order) - 1 - order * (up - 1) + (order - 1) * (down - 1)
    return float(np.sum(WEIGHT * terms))


def allowed(divergence: float, order: float) -> float:
    return math.expm1((order - 1) * divergence) * (1 + 1e-6) + 1e-12


@settings(max_examples=60, deadline=None)
@given(v=disc, w=disc, order=orders, q=probabilities, s=noises)
def test_poisson_replace_one_is_never_exceeded(
    v: NDArray[np.float64], w: NDArray[np.float64], order: float, q: float, s: float
) -> None:
    a, b = 1 - q + q * ratio(v, s), 1 - q + q * ratio(w, s)
    bound = divergences.poisson_gaussian_replace(order, probability=q, noise_multiplier=s)
    assert moment_distance(a, b, order) <= allowed(bound, order)
    # Adding and removing are the case of a second vector that is nothing, in both directions.
    one = np.ones_like(a)
    bound = divergences.poisson_gaussian(order, probability=q, noise_multiplier=s)
    assert moment_distance(a, one, order) <= allowed(bound, order)
    assert moment_distance(one, a, order) <= allowed(bound, order)


@settings(max_examples=60, deadline=None)
@given(rest=disc, v=disc, w=disc, order=orders, q=probabilities, s=noises)
def test_fixed_size_is_never_exceeded(
    rest: NDArray[np.float64],
    v: NDArray[np.float64],
    w: NDArray[np.float64],
    order: float,
    q: float,
    s: float,
) -> None:
    # All three in the unit ball; with the exchanged record's place taken by another, distances
    # reach 2.
    a, b = 1 - q + q * ratio(v - rest, s), 1 - q + q * ratio(w - rest, s)
    bound = divergences.fixed_size_gaussian(order, fraction=q, noise_multiplier=s)
    assert moment_distance(a, b, order) <= allowed(bound, order)


def test_the_pairs_are_attained_or_nearly() -> None:
    # A bound that is far too large would pass everything above.
    order, q, s = 3.0, 0.05, 1.5
    east = np.array([1.0, 0.0])
    a, b = 1 - q + q * ratio(east, s), 1 - q + q * ratio(-east, s)
    bound = divergences.poisson_gaussian_replace(order, probability=q, noise_multiplier=s)
    assert moment_distance(a, b, order) >= math.expm1((order - 1) * bound) * (1 - 1e-6)
    far = 1 - q + q * ratio(2 * east, s)
    bound = divergences.fixed_size_gaussian(order, fraction=q, noise_multiplier=s)
    assert 2.1 * moment_distance(far, np.ones_like(far), order) >= math.expm1((order - 1) * bound)
    # The wrong convention, one sensitivity instead of two, is caught.
    wrong = divergences.fixed_size_gaussian(order, fraction=q, noise_multiplier=2 * s)
    assert moment_distance(far, np.ones_like(far), order) > allowed(wrong, order)
