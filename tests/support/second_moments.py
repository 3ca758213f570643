"""Plans and runs of second moments, and the noise of what they release."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import discreet as dp
from discreet.aggregation import Release, SecondMoments, symmetrised
from discreet.randomness import Source
from discreet.sampling import Sampler

KEY = bytes(range(2, 34))


def plan(
    dimension: int, *, records: int = 10, noise_multiplier: float = 1.5, **other: Any
) -> dp.Plan:
    return dp.Plan(
        sampler=other.get("sampler") or Sampler(dp.Everything(), records=records, steps=1),
        mechanism=other.get("mechanism")
        or dp.Gaussian(other.get("clip_norm", 1.0), noise_multiplier),
        leaves=other.get("leaves") or {"second_moments": dimension**2},
    )


def keyed(its: dp.Plan, ledger: dp.Ledger | None = None) -> SecondMoments:
    return SecondMoments(
        its, ledger=ledger or dp.Ledger.in_memory(), source=Source.unsafe_test_key(KEY)
    )


def released(vectors: NDArray[Any], **other: Any) -> Release:
    """One release of all vectors."""
    run = keyed(plan(vectors.shape[1], records=len(vectors), **other))
    (sample,) = run.samples()
    return run.release(sample, vectors)


def noise_on_and_off_the_diagonal(
    size: int = 400,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Of the symmetric matrix of vectors that are zero, times records over noise_std: s on the
    diagonal, s/sqrt(2) off it.
    """
    one = released(np.zeros((10, size)))
    matrix = symmetrised(one) * 10.0 / 1.5
    return np.diag(matrix), matrix[np.triu_indices(size, 1)]
