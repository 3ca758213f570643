"""The score of a canary is the logarithm of a ratio of densities: compared with the densities
themselves.
"""

from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

import discreet as dp
from discreet.canaries import Likelihood
from discreet.units import Adjacency

X = np.array([1.3, -0.4, 0.2])
OTHER = np.array([0.1, 0.9, -1.7])


def ratio(x: Any, z: float, mean: float) -> Any:
    return norm.pdf(x, mean, z) / norm.pdf(x, 0.0, z)


def scored(
    policy: Any, batches: list[list[Any]], adjacency: Adjacency = Adjacency.ADD_OR_REMOVE
) -> Any:
    likelihood = Likelihood(policy, canaries=3, adjacency=adjacency)
    for groups in batches:
        likelihood.observe(groups)
    return likelihood.scores()


def test_groups_multiply_and_steps_multiply() -> None:
    found = scored(dp.Everything(), [[(X, 2.0), (OTHER, 0.7)], [(OTHER, 2.0), (X, 0.7)]])
    expected = np.log(
        ratio(X, 2.0, 1.0) * ratio(OTHER, 0.7, 1.0) * ratio(OTHER, 2.0, 1.0) * ratio(X, 0.7, 1.0)
    )
    assert found == pytest.approx(expected)


@pytest.mark.parametrize(
    "policy", [dp.Poisson(0.3), dp.ledger.TruncatedPoisson(0.3, 5, 10), dp.FixedSize(3, 10)]
)
def test_whether_it_was_drawn_is_averaged_over(policy: Any) -> None:
    """Groups share the draw: their ratios are multiplied before the average."""
    found = scored(policy, [[(X, 1.5), (OTHER, 2.0)], [(OTHER, 1.5), (X, 2.0)]])
    expected = np.log(0.7 + 0.3 * ratio(X, 1.5, 1.0) * ratio(OTHER, 2.0, 1.0))
    expected += np.log(0.7 + 0.3 * ratio(OTHER, 1.5, 1.0) * ratio(X, 2.0, 1.0))
    assert found == pytest.approx(expected)


@pytest.mark.parametrize("policy", [dp.ledger.Shuffled(2), dp.ledger.BallsInBins(2)])
def test_it_is_in_one_batch_of_an_epoch(policy: Any) -> None:
    found = scored(
        policy, [[(X, 1.5)], [(OTHER, 1.5)], [(X, 1.5)]]
    )  # one epoch, and the first batch of another
    assert found == pytest.approx(np.log(0.5 * ratio(X, 1.5, 1.0) + 0.5 * ratio(OTHER, 1.5, 1.0)))


def test_under_replace_one_the_other_record_has_the_opposite_sign() -> None:
    found = scored(dp.Poisson(0.3), [[(X, 1.5)]], Adjacency.REPLACE_ONE)
    assert found == pytest.approx(
        np.log(0.7 + 0.3 * ratio(X, 1.5, 1.0)) - np.log(0.7 + 0.3 * ratio(X, 1.5, -1.0))
    )
