"""Adaptive clipping finds its quantile; joint clipping is better where the paper says so. Fixed
keys, alpha = 1e-6.
"""

import math
from typing import Any

import numpy as np
import pytest

from discreet.mechanisms import (
    AdaptiveClip,
    Gaussian,
    Groups,
    Joint,
    Mechanism,
    Microbatches,
    Moments,
)
from support.mechanisms import check_median, execute, follow

LEAVES = {"small": 2_000, "large": 2_000}


@pytest.mark.parametrize("start", [0.05, 1.0, 20.0])
def test_p24_adaptive_clipping_reaches_the_median(start: float) -> None:
    check_median(start)


def test_adaptive_clipping_reaches_another_quantile() -> None:
    """The quantile 0.8 lies at exp(0.75 * 0.8416) = 1.88; deviations as above, with the density
    0.28/0.75.
    """
    adaptive = AdaptiveClip(Gaussian(1.0, 1.1), quantile=0.8, count_noise_std=26.0)
    reached, _ = follow(adaptive, steps=400)
    assert reached == pytest.approx(math.exp(0.75 * 0.8416), rel=0.08)


def test_adaptive_clipping_of_slots_finds_the_median_of_averages() -> None:
    """With one slot per record or so the averages are mostly of one record; the threshold settles,
    it does not run away.
    """
    reached, thresholds = follow(
        Microbatches(AdaptiveClip(Gaussian(1.0, 1.1), 0.5, 26.0), slots=512), steps=300
    )
    assert 0.1 < reached < 1.0  # empty slots count as zero vectors and pull below the median 1
    assert max(abs(math.log(threshold / reached)) for threshold in thresholds[150:]) < 1.0


def spread(mechanism: Mechanism, leaf: str, seed: int) -> float:
    """Root mean square error of the released sum of one leaf; half the records have only `small`,
    half only `large`.
    """
    rng = np.random.default_rng(seed)
    records: dict[str, Any] = {leaf: np.zeros((20, size)) for leaf, size in LEAVES.items()}
    records["small"][:10, 0] = 0.999
    records["large"][10:, 0] = 99.9
    bound = mechanism.bind(LEAVES)
    released, _ = execute(bound, bound.initial_state, records, rng, 20.0)
    return float(np.sqrt(np.mean((released[leaf] - records[leaf].sum(0)) ** 2)))


@pytest.mark.parametrize("leaf", ["small", "large"])
def test_joint_clipping_beats_separate_clipping_where_one_vector_is_always_zero(leaf: str) -> None:
    """The paper's example at equal privacy: joint noise is smaller by sqrt(2) on both leaves, and
    no record is clipped.

    A root mean square over d = 2000 coordinates has a relative deviation of 1/sqrt(2d) = 0.0158, a
    ratio of two 0.0224: a window of 0.12 around sqrt(2) is 5.4 deviations in the logarithm (alpha <
    1e-6). "No gain" (ratio 1) is 15 away.
    """
    joint = Joint(1.0, 2.0, scales={"small": 1.0, "large": 100.0})
    apart = Groups(
        {
            "small": Gaussian(1.0, 2.0 * math.sqrt(2.0)),
            "large": Gaussian(100.0, 2.0 * math.sqrt(2.0)),
        }
    )
    assert joint.bind(LEAVES).noise_multiplier == pytest.approx(apart.bind(LEAVES).noise_multiplier)
    ratio = spread(apart, leaf, 1) / spread(joint, leaf, 2)
    assert abs(math.log(ratio / math.sqrt(2.0))) < 0.12
    assert abs(math.log(1.0 / math.sqrt(2.0))) > 0.12  # what would be seen without any gain
    flat = Gaussian(100.0, 2.0)
    assert spread(flat, "small", 3) > 50 * spread(joint, "small", 4)


def test_private_moments_are_near_the_truth() -> None:
    """5000 records, noise multiplier 1: the noise on each sum is sqrt(2.25) = 1.5, on the mean 5 *
    1.5/5000 = 0.0015.

    The noise of the count less than doubles that; 0.02 is more than 6 deviations. Without the
    centre it is off by 5.
    """
    rng = np.random.default_rng(11)
    values = rng.uniform(0.0, 10.0, 5000)
    moments = Moments(0.0, 10.0)
    bound = Gaussian(moments.clip_norm, 1.0).bind({"m": moments.dimension})
    released, _ = execute(bound, bound.initial_state, {"m": moments.encode(values)}, rng, 5000.0)
    estimate = moments.decode(released["m"])
    assert estimate.count == pytest.approx(5000.0, abs=10.0)
    assert estimate.mean[0] == pytest.approx(values.mean(), abs=0.02)
    assert estimate.variance[0] == pytest.approx(values.var(), abs=0.1)
