"""The lattice: nodes in the middle of their intervals, fine at the centre,
wide enough at the ends.
"""

import numpy as np
import pytest

from discreet.accounting.tight.analyses.poisson import PoissonRemove
from discreet.accounting.tight.interface import Quadrature
from discreet.accounting.tight.lattice.nodes import lattice, scope
from discreet.accounting.tight.rounding import OutOfRangeError

LAW = PoissonRemove(0.1, 1.0).quadrature()


def test_every_node_lies_in_the_middle_of_its_interval() -> None:
    # Lengths that double, instead of tripling, would put nodes between whole indices.
    area = scope(LAW, 2.0, 0.01, 1e-20, 1e-12)
    grid = lattice(area, 0.01, area.centre, 27)
    lengths = np.diff(grid.cut)
    middles = 0.5 * (grid.cut[:-1] + grid.cut[1:])
    assert np.array_equal(middles, grid.index[1:-1])
    assert set(lengths.tolist()) <= {1.0, 3.0, 9.0, 27.0}
    ratios = lengths[1:] / lengths[:-1]
    assert set(np.round(ratios, 9).tolist()) <= {1.0, 3.0, round(1.0 / 3.0, 9)}
    assert lengths.max() == 27.0


def test_the_ends_hold_what_they_were_asked_to_hold() -> None:
    area = scope(LAW, 2.0, 0.01, 1e-9, 1e-12)
    grid = lattice(area, 0.01, area.centre, 1)
    mass = np.exp(LAW.log_weight)
    assert float(mass[LAW.loss > grid.loss[-1]].sum()) <= 1e-9
    moved = float(mass[LAW.loss < grid.loss[0]].sum()) * np.exp(2.0 * grid.loss[0])
    assert moved <= 1e-12 * float(np.sum(mass * np.exp(2.0 * LAW.loss)))


def test_the_centre_lies_in_the_fullest_window() -> None:
    loss = np.array([-1.0, 0.0, 0.001, 0.002, 2.0])
    law = Quadrature(loss, np.log([0.3, 0.2, 0.2, 0.2, 0.1]))
    assert scope(law, 1e-9, 0.01, 1e-20, 1e-12).centre == pytest.approx(0.001, abs=1e-5)


def test_a_lattice_that_would_not_fit_into_memory_is_refused() -> None:
    area = scope(LAW, 2.0, 0.01, 1e-20, 1e-12)
    with pytest.raises(OutOfRangeError, match="nodes"):
        lattice(area, 1e-7, area.centre, 1)
