"""Composition by transform against direct convolution, in float64 and in long double."""

import math

import numpy as np
import pytest

from discreet.accounting.costs import PoissonGaussian
from discreet.accounting.tight.analyses.registry import directions
from discreet.accounting.tight.lattice.compose import compose, tilted
from discreet.accounting.tight.lattice.upper import Measure
from discreet.accounting.tight.rounding import WIDE, U
from support.lattices import masses_of, measures_of


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
    composed = compose(part, 4096)
    assert composed.error < 1e-12
    mass = masses_of(composed, first, len(exact))
    assert np.max(np.abs(mass - exact)) <= composed.error + 1e-13


def test_few_frequencies_are_all_that_many_steps_need() -> None:
    upper, _ = measures_of(directions(PoissonGaussian(0.1, 1.0))[0], 3.0, 0.01)
    part = tilted(((upper, 5000),), 3.0, outward=1)
    few, long = compose(part, 1 << 15), compose(part, 1 << 12)
    assert len(few.frequency) < 200
    assert few.atom == long.atom == 0.0

    # The same measure on a circle an eighth as long: what the long one has beyond it is wrapped.
    wrapped = masses_of(few, 0, 1 << 15).reshape(8, -1).sum(axis=0)
    assert np.max(np.abs(wrapped - masses_of(long, 0, 1 << 12))) <= 8.0 * few.error + long.error


@pytest.mark.skipif(not WIDE, reason="long double is no wider than float64 here")
@pytest.mark.parametrize(("probability", "count"), [(0.1, 7), (1e-4, 1000), (0.1, 5000)])
def test_long_double_agrees_within_a_far_smaller_error(probability: float, count: int) -> None:
    upper, _ = measures_of(directions(PoissonGaussian(probability, 1.0))[0], 3.0, 0.01)
    part = tilted(((upper, count),), 3.0, outward=1)
    usual, wide = compose(part, 16384), compose(part, 16384, extended=True)
    assert wide.error < usual.error / 500.0
    mass, mass_wide = (masses_of(composed, -512, 1024) for composed in (usual, wide))
    size = np.sum(np.abs(usual.power)) + usual.atom
    assert np.max(np.abs(mass - mass_wide)) <= usual.error + wide.error + 64.0 * U * size
    # The claim of the smaller error itself, where float64 cannot judge: much of this window is
    # empty but for rounding.
    unit = float(np.finfo(np.longdouble).eps)
    assert np.min(mass_wide) >= -wide.error - 64.0 * unit * float(size)


def test_the_tilt_is_rounded_outward_and_normalised() -> None:
    upper, _ = measures_of(directions(PoissonGaussian(0.1, 1.0))[0], 3.0, 0.05)
    above, below = (tilted(((upper, 5),), 3.0, outward=sign) for sign in (1, -1))
    exact = 5.0 * math.log(math.fsum(upper.mass * np.exp(3.0 * upper.loss)))
    assert below.log_total < exact < above.log_total
    assert above.log_total - below.log_total < 1e-11
    assert float(np.sum(above.weights[0])) == pytest.approx(1.0, abs=1e-12)
    assert above.cumulant(np.array([3.0]))[0] == pytest.approx(above.log_total, rel=1e-11)


def test_a_node_without_mass_does_not_hide_the_mass_of_the_others() -> None:
    # A sum of e^(theta l - largest theta l) over all nodes underflows to 0 here, whose logarithm
    # would claim that nothing lies below: the lower curve would not subtract what wraps around.
    measure = Measure(0.0, 1.0, np.array([-2, 0, 1]), np.array([0.0, 0.5, 0.5]), 0.0, 0.0)
    part = tilted(((measure, 1),), 1.0, outward=-1)
    assert part.cumulant(np.array([-1000.0]))[0] == pytest.approx(math.log(0.5), abs=1e-9)
    assert part.cumulant(np.array([-1000.0]))[0] >= math.log(0.5)


def test_the_atom_at_infinity_counts_every_step() -> None:
    upper, _ = measures_of(directions(PoissonGaussian(0.1, 1.0))[0], 3.0, 0.05)
    once, often = (tilted(((upper, count),), 3.0, outward=1) for count in (1, 1000))
    assert often.infinite == pytest.approx(1000.0 * once.infinite)
