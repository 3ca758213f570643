"""Statistics: rows within their bound for any value, and what is decoded without noise is the
truth.
"""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from discreet.errors import ParameterError
from discreet.mechanisms import BatchNorm, Count, Gaussian, Histogram, Moments

VALUES = hnp.arrays(np.float64, (5, 3), elements=st.floats())


@given(VALUES, st.floats(-1e6, 1e6), st.floats(1e-3, 1e6))
def test_a_row_stays_within_its_bound_or_is_not_a_number(
    values: Any, low: float, width: float
) -> None:
    moments = Moments(low, low + width, coordinates=3)
    for statistic, rows in (
        (moments, moments.encode(values)),
        (Histogram(4), Histogram(4).encode(values[:, 0])),
        (Count(), Count().encode(values)),
    ):
        assert rows.shape == (5, statistic.dimension)
        norms = np.sqrt((rows**2).sum(1))
        assert np.all((norms <= statistic.clip_norm * (1 + 1e-12)) | np.isnan(norms))


@given(hnp.arrays(np.float64, (7, 2), elements=st.floats(-3.0, 5.0)))
def test_moments_without_noise_are_the_moments(values: Any) -> None:
    moments = Moments(-3.0, 5.0, coordinates=2)
    estimate = moments.decode(moments.encode(values).sum(0))
    assert estimate.count == pytest.approx(7.0)
    assert estimate.mean == pytest.approx(values.mean(0), abs=1e-9)
    assert estimate.variance == pytest.approx(values.var(0), abs=1e-9)


def test_the_bound_of_moments_is_attained() -> None:
    """A smaller bound would clip valid records, a larger one would waste noise."""
    moments = Moments(0.0, 1.0, coordinates=4)
    assert np.linalg.norm(moments.encode(np.ones((1, 4)))) == pytest.approx(
        moments.clip_norm, rel=1e-12
    )


def test_nonsense_counts_nowhere_and_does_not_raise() -> None:
    assert Histogram(2).encode([0.0, math.nan, -1, 2, 1.5]).sum(1).tolist() == [
        1.0,
        0.0,
        0.0,
        0.0,
        0.0,
    ]
    rows = Moments(0.0, 1.0).encode([math.nan, math.inf, -math.inf, 0.5])
    (group,) = Gaussian(Moments(0.0, 1.0).clip_norm, 1.0).bind({"m": 3}).start
    assert group.weights((rows**2).sum(1, keepdims=True)).round(9).tolist() == [0.0, 1.0, 1.0, 1.0]
    assert not np.isfinite(BatchNorm(1).encode([[1e300]])).all()


def test_estimates_stay_in_their_range_whatever_the_noise() -> None:
    estimate = Moments(0.0, 10.0).decode([-50.0, 900.0, -700.0])
    assert (estimate.count, estimate.mean.tolist(), estimate.variance.tolist()) == (
        -50.0,
        [10.0],
        [0.0],
    )


def test_batch_norm_of_images() -> None:
    images = np.random.default_rng(3).normal(2.0, 3.0, (50, 4, 6, 6))
    norm = BatchNorm(4)
    mean, variance = norm.decode(norm.encode(images).sum(0), expected_batch_size=50)
    assert mean == pytest.approx(images.mean((0, 2, 3)))
    assert variance == pytest.approx(images.var((0, 2, 3)))


def test_batch_norm_relative_to_public_statistics_finds_the_same() -> None:
    images = np.random.default_rng(3).normal(2.0, 3.0, (50, 4, 6, 6))
    norm, public = (
        BatchNorm(4),
        {"mean": np.array([2.0, 0.0, -5.0, 2.1]), "variance": np.array([9.0, 1.0, 20.0, 8.0])},
    )
    mean, variance = norm.decode(
        norm.encode(images, **public).sum(0), expected_batch_size=50, **public
    )
    assert mean == pytest.approx(images.mean((0, 2, 3)))
    assert variance == pytest.approx(images.var((0, 2, 3)))


def test_batch_norm_of_nothing_is_as_before_and_variances_have_a_floor() -> None:
    """An empty sample, or one that is clipped to nothing, does not pull statistics to zero."""
    mean, variance = BatchNorm(2).decode(
        np.zeros(4), expected_batch_size=9, mean=[3.0, -1.0], variance=[4.0, 0.5]
    )
    assert mean.tolist() == [3.0, -1.0]
    assert variance.tolist() == pytest.approx([4.0, 0.5])
    assert BatchNorm(1).decode([0.0, -9.0], expected_batch_size=1)[1].tolist() == [1e-5]


@pytest.mark.parametrize(
    "make",
    [
        lambda: Moments(1.0, 1.0),
        lambda: Moments(0.0, math.inf),
        lambda: Moments(-1e308, 1e308),
        lambda: Moments(0.0, 5e-324),
        lambda: Moments(0.0, 1.0, 0),
        lambda: Histogram(0),
        lambda: BatchNorm(0),
        lambda: BatchNorm(1, floor=0.0),
        lambda: Count().decode([1.0, 2.0]),
        lambda: Histogram(2).decode([math.nan, 1.0]),
        lambda: BatchNorm(1).decode([1.0, 1.0], expected_batch_size=0),
        lambda: BatchNorm(1).decode([1.0, 1.0], expected_batch_size=1, variance=0.0),
        lambda: BatchNorm(1).encode([[1.0]], mean=math.nan),
    ],
)
def test_bad_parameters_are_refused(make: Any) -> None:
    with pytest.raises(ParameterError):
        make()
