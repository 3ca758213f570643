"""The noise of releases in units of what their plan states, and how far its statistics are from
those of normal numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import discreet as dp
from discreet.randomness import Source
from discreet.sampling import Sampler

D = 60_000
WITHIN = 5.1
KEY = bytes(range(1, 33))
LEAVES = {"a": D, "b": D}
MECHANISMS: dict[str, Any] = {
    "flat": dp.Gaussian(1.0, 1.3),
    "joint": dp.Joint(1.0, 1.3, scales={"a": 1.0, "b": 100.0}),
    "normalised": dp.Normalised(1.0, 0.7),
    "each leaf": dp.Split(1.0, 1.3),
    "by dimension": dp.Split(1.0, 1.3, clip="by dimension", noise="by dimension"),
    "groups": dp.Groups({"a": dp.Gaussian(3.0, 2.0), "b": dp.Gaussian(0.01, 40.0)}),
    "adaptive": dp.AdaptiveClip(dp.Gaussian(0.5, 1.3), quantile=0.5, count_noise_std=3.0),
    "slots": dp.mechanisms.Microbatches(dp.Gaussian(1.0, 1.3), slots=3),
}
RECORDS = 4


def errors(mechanism: Any) -> list[NDArray[np.float64]]:
    """Two steps of records that are zero, so that the release is the noise: a vector for each leaf
    and step, over noise_std.
    """
    plan = dp.Plan(
        sampler=Sampler(dp.Everything(), records=RECORDS, steps=2),
        mechanism=mechanism,
        leaves=LEAVES,
    )
    stated = {
        leaf: group.noise_std * scale
        for group in plan.bound.start
        for leaf, scale in zip(group.leaves, group.scales, strict=True)
    }
    run = dp.Aggregator(plan, ledger=dp.Ledger.in_memory(), source=Source.unsafe_test_key(KEY))
    found = []
    for sample in run.samples():
        released = run.release(sample, {leaf: np.zeros((RECORDS, D)) for leaf in LEAVES})
        for leaf in LEAVES:
            scale = released.noise_std[leaf]
            if (
                not isinstance(mechanism, dp.AdaptiveClip) or not sample.step
            ):  # a threshold has moved by the second step
                assert scale == stated[leaf]
            found.append(released[leaf] / scale)
    return found


def deviations(found: list[NDArray[np.float64]]) -> list[float]:
    """Every statistic in units of its standard deviation."""
    statistics = []
    for one in found:
        statistics += [
            one.mean() * D**0.5,
            (np.mean(one**2) - 1.0) * (D / 2) ** 0.5,
            np.mean(one[1:] * one[:-1]) * D**0.5,
        ]
    for number, one in enumerate(found):
        statistics += [float(np.mean(one * two)) * D**0.5 for two in found[:number]]
    return [abs(float(value)) for value in statistics]


def clipped_mean_is_far_off() -> bool:
    """Records of known norm 0.4 (not clipped) and 4 (clipped to 1): whether the released sum
    differs from the known one.
    """
    plan = dp.Plan(
        sampler=Sampler(dp.Everything(), records=2, steps=1),
        mechanism=dp.Gaussian(1.0, 1e-3),
        leaves={"a": D},
    )
    rows = np.zeros((2, D))
    rows[0, : D // 2], rows[1, D // 2 :] = 0.4 / (D / 2) ** 0.5, 4.0 / (D / 2) ** 0.5
    released = dp.aggregation.aggregate(
        {"a": rows}, plan, ledger=dp.Ledger.in_memory(), source=Source.unsafe_test_key(KEY)
    )["a"]
    expected = np.array([0.4, 1.0]) / (D / 2) ** 0.5
    found = released.reshape(2, -1).mean(axis=1)
    return bool(np.any(np.abs(found - expected) > WITHIN * 1e-3 / (D / 2) ** 0.5 + 2.0**-30))
