"""Both measures of a composition on one lattice, placed so that they are close."""

import math

import numpy as np
import pytest

from discreet.accounting.gaussian import gaussian_epsilon
from discreet.accounting.tight.analyses.poisson import PoissonRemove
from discreet.accounting.tight.lattice.pair import Composition, chernoff, measures, upper_measure

PROBLEM = Composition(((PoissonRemove(1.0, 6.0), 9), (PoissonRemove(0.1, 2.0), 400)))


def test_a_problem_counts_its_steps() -> None:
    assert PROBLEM.steps == 409
    assert PROBLEM.directions == (PoissonRemove(1.0, 6.0), PoissonRemove(0.1, 2.0))


def test_the_measures_differ_to_second_order_and_in_the_right_sense() -> None:
    law = PROBLEM.law(1e-6)
    coarse, fine = (measures(PROBLEM, law, 2.0, spacing, 1e-6) for spacing in (0.02, 0.01))
    assert 0.0 < fine.difference < 0.35 * coarse.difference
    assert coarse.nodes < fine.nodes


def test_another_tilt_changes_the_total_and_not_the_measures() -> None:
    pair = measures(PROBLEM, PROBLEM.law(1e-6), 2.0, 0.02, 1e-6)
    assert pair.tilted(2.0) is pair
    again = pair.tilted(3.0)
    assert again.upper.measures is pair.upper.measures
    (cumulant,) = pair.upper.cumulant(np.array([3.0]))
    assert again.upper.log_total == pytest.approx(cumulant, rel=1e-9)


def test_the_upper_measure_alone_is_an_upper_measure() -> None:
    law = PROBLEM.law(1e-6)
    alone = upper_measure(PROBLEM, law, 2.0, 0.02, 1e-6)
    pair = measures(PROBLEM, law, 2.0, 0.02, 1e-6)
    assert alone.log_total > pair.lower.log_total
    assert alone.log_total == pytest.approx(pair.upper.log_total, rel=1e-2)


def test_chernoff_is_above_the_truth_and_infinite_where_infinity_weighs_more_than_delta() -> None:
    gaussians = Composition(((PoissonRemove(1.0, 6.0), 9),))
    part = upper_measure(gaussians, gaussians.law(1e-6), 4.0, 0.01, 1e-6)
    assert gaussian_epsilon(2.0, 1e-6)[1] < chernoff(part, 1e-6) < 1.3 * 2.3
    assert chernoff(part, 0.5 * part.infinite) == math.inf
