"""Private k-means on made-up points: every iteration is one charged step, and empty clusters get
noise like all others.

    python examples/aggregation/k_means.py [--epsilon 1] [--into out]

A record's vectors are its point, in the place of its cluster, and a count of one, in the same
place. Both are clipped
jointly: the point divided by the radius of the public square, the count by one. So all clusters
    together cost as much as one.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import make_blobs

import discreet as dp
from discreet.recipes import plan_with_scaled_noise

Array = NDArray[np.float64]

RECORDS, CLUSTERS, STEPS, DELTA = 5_000, 5, 8, 1e-6
RADIUS = 2**0.5  # of the square [-1, 1]^2 in which points lie; public


def points() -> Array:
    """Five clouds, moved into the public square by a public factor."""
    made, _ = make_blobs(RECORDS, centers=CLUSTERS, cluster_std=0.9, random_state=10)
    return np.clip(np.asarray(made) / 12.0, -1.0, 1.0)


def starting_centres() -> Array:
    """Chosen without looking at the data."""
    return np.array([[0.0, 0.0], [-0.6, -0.6], [-0.6, 0.6], [0.6, -0.6], [0.6, 0.6]])


def nearest(data: Array, centres: Array) -> NDArray[np.int64]:
    """The cluster of each point."""
    return np.asarray(np.argmin(((data[:, np.newaxis] - centres) ** 2).sum(axis=2), axis=1))


def plan_for(epsilon: float) -> dp.Plan:
    """The same noise in every step, calibrated to the whole run: nothing is split by hand."""
    plan = dp.Plan(
        sampler=dp.Sampler(dp.Everything(), records=RECORDS, steps=STEPS),
        mechanism=dp.Joint(
            clip_norm=2**0.5, noise_multiplier=1.0, scales={"sums": RADIUS, "counts": 1.0}
        ),
        leaves={"sums": 2 * CLUSTERS, "counts": CLUSTERS},
    )
    return plan_with_scaled_noise(plan, epsilon=epsilon, delta=DELTA)


def private_centres(data: Array, plan: dp.Plan, ledger: dp.Ledger) -> Array:
    """Lloyd's iterations on released sums and counts."""
    run = dp.Aggregator(plan, ledger=ledger, label="k-means")
    centres = starting_centres()
    for sample in run.samples():
        rows = data[sample.indices]
        member = np.eye(CLUSTERS)[nearest(rows, centres)]
        released = run.release(
            sample, {"sums": member[:, :, np.newaxis] * rows[:, np.newaxis], "counts": member}
        )
        counts = np.maximum(released["counts"], 50.0)[
            :, np.newaxis
        ]  # the noise of a small cluster would throw it away
        centres = np.clip(released["sums"].reshape(CLUSTERS, 2) / counts, -1.0, 1.0)
    return centres


def plain_centres(data: Array) -> Array:
    """The same iterations without privacy."""
    centres = starting_centres()
    for _ in range(STEPS):
        cluster = nearest(data, centres)
        centres = np.array(
            [
                data[cluster == c].mean(axis=0) if np.any(cluster == c) else centres[c]
                for c in range(CLUSTERS)
            ]
        )
    return centres


def spread(data: Array, centres: Array) -> float:
    """Mean squared distance to the nearest centre."""
    return float(np.mean(((data - centres[nearest(data, centres)]) ** 2).sum(axis=1)))


def main() -> None:
    """Run the example."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--into", type=Path, default=Path("out"))
    options = parser.parse_args()
    options.into.mkdir(parents=True, exist_ok=True)
    path = options.into / "k_means.ledger"
    path.unlink(
        missing_ok=True
    )  # these data are made up; a real ledger belongs to its data set and is never deleted

    data, plan = points(), plan_for(options.epsilon)
    print(plan.explain())
    with dp.Ledger.open(path) as ledger:
        centres = private_centres(data, plan, ledger)
        print(f"\n{dp.account(ledger, delta=DELTA)}\n")
    private, plain, start = (
        spread(data, its) for its in (centres, plain_centres(data), starting_centres())
    )
    print(
        f"mean squared distance {private:.4f}; without privacy {plain:.4f}; at the start "
        f"{start:.4f}"
    )


if __name__ == "__main__":
    main()
