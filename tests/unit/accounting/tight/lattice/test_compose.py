"""Composition by transform against direct convolution, in float64 and in long double."""

import math

import numpy as np
import pytest

from discreet.accounting.costs import PoissonGaussian
from discreet.accounting.tight.analyses.registry import directions
from discreet.accounting.tight.lattice.compose import compose, tilted
from discreet.accounting.tight.rounding import WIDE, U
from support.lattices import measures_of


@pytest.mark.parametrize("count", [1, 2, 7])
def test_composition_equals_direct_convolution_within_its_error(count: int) -> None:
    upper, _ = measures_of(directions(PoissonGaussian(0.1, 1.0))[0], 3.0, 0.05)
    part = tilted(((upper, count),), 3.0, outward=1)
    dense = np.zeros(part.places[0].max() - part.places[0].min() + 1)
    np.add.at(dense, part.places[0] - part.places[0].min(), part.weights[0])
    exact = dense
    for _ in range(count - 1):
        exact = np.convolve(exact, dense)
    first = int(count * part.places[0].min())
    composed = compose(part, first, 4096)
    assert composed.error < 1e-12
    assert np.max(np.abs(composed.mass[: len(exact)] - exact)) <= composed.error + 1e-15


@pytest.mark.skipif(not WIDE, reason="long double is no wider than float64 here")
@pytest.mark.parametrize(("probability", "count"), [(0.1, 7), (1e-4, 1000), (0.1, 5000)])
def test_long_double_agrees_within_a_far_smaller_error(probability: float, count: int) -> None:
    upper, _ = measures_of(directions(PoissonGaussian(probability, 1.0))[0], 3.0, 0.01)
    part = tilted(((upper, count),), 3.0, outward=1)
    usual, wide = compose(part, -8192, 16384), compose(part, -8192, 16384, extended=True)
    assert wide.error < usual.error / 500.0
    difference = np.max(np.abs(usual.mass - wide.mass))
    assert difference <= usual.error + wide.error + U * np.max(wide.mass)
    # The claim of the smaller error itself, where float64 cannot judge: most of this window is
    # empty but for rounding.
    assert np.min(wide.mass) >= -wide.error


def test_the_tilt_is_rounded_outward_and_normalised() -> None:
    upper, _ = measures_of(directions(PoissonGaussian(0.1, 1.0))[0], 3.0, 0.05)
    above, below = (tilted(((upper, 5),), 3.0, outward=sign) for sign in (1, -1))
    exact = 5.0 * math.log(math.fsum(upper.mass * np.exp(3.0 * upper.loss)))
    assert below.log_total < exact < above.log_total
    assert above.log_total - below.log_total < 1e-11
    assert float(np.sum(above.weights[0])) == pytest.approx(1.0, abs=1e-12)
    assert above.cumulant(3.0) == pytest.approx(above.log_total, rel=1e-12)


def test_the_atom_at_infinity_counts_every_step() -> None:
    upper, _ = measures_of(directions(PoissonGaussian(0.1, 1.0))[0], 3.0, 0.05)
    once, often = (tilted(((upper, count),), 3.0, outward=1) for count in (1, 1000))
    assert often.infinite == pytest.approx(1000.0 * once.infinite)
