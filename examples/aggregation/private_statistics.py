"""Means, standard deviations and a histogram of the breast cancer data, from one private query,
with ledger and guarantee.

    python examples/aggregation/private_statistics.py [--epsilon 1] [--into out]

All statistics are vectors of the same record: one sample, one joint event, one charge. Ranges and
bins are chosen without looking at the data. No torch anywhere.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer

import discreet as dp
from discreet.aggregation import aggregate
from discreet.mechanisms import Gaussian, Groups, Histogram, Moments
from discreet.recipes import plan_with_scaled_noise
from discreet.sampling import Sampler

DELTA = 1e-5
RADIUS, TEXTURE = (
    Moments(low=0.0, high=40.0),
    Moments(low=0.0, high=50.0),
)  # what tumours measure, in public units
SIZES = Histogram(categories=8)  # bins of 5 units of radius


def main() -> None:
    """Calibrate, release once, print next to the true values (these data are public)."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--into", type=Path, default=Path("out"))
    options = parser.parse_args()
    options.into.mkdir(parents=True, exist_ok=True)
    path = options.into / "statistics.ledger"
    path.unlink(
        missing_ok=True
    )  # these data are public; a real ledger belongs to its data set and is never deleted

    radius, texture = load_breast_cancer().data[:, :2].T
    records = {
        "radius": RADIUS.encode(radius[:, np.newaxis]),
        "texture": TEXTURE.encode(texture[:, np.newaxis]),
        "sizes": SIZES.encode(radius // 5),
    }
    mechanism = Groups(  # noise in equal proportions; how much of it is calibrated below
        {
            "radius": Gaussian(RADIUS.clip_norm, noise_multiplier=1.0),
            "texture": Gaussian(TEXTURE.clip_norm, noise_multiplier=1.0),
            "sizes": Gaussian(SIZES.clip_norm, noise_multiplier=1.0),
        }
    )
    leaves = {"radius": RADIUS.dimension, "texture": TEXTURE.dimension, "sizes": SIZES.dimension}
    plan = dp.Plan(
        sampler=Sampler(dp.Everything(), records=len(radius), steps=1),
        mechanism=mechanism,
        leaves=leaves,
    )
    plan = plan_with_scaled_noise(plan, epsilon=options.epsilon, delta=DELTA)
    print(plan.explain())
    with dp.Ledger.open(path) as ledger:
        released = aggregate(
            records, plan, ledger=ledger, label="statistics of the breast cancer data"
        )
        print(f"\n{dp.account(ledger, delta=DELTA)}\n")
        dp.Report.of(ledger, delta=DELTA).write(options.into / "statistics.md")
    for name, moments, values in (("radius", RADIUS, radius), ("texture", TEXTURE, texture)):
        found = moments.decode(released[name])
        print(f"{name:>8}: mean {found.mean[0]:6.2f} (true {values.mean():6.2f}), ", end="")
        print(
            f"standard deviation {found.variance[0] ** 0.5:5.2f} (true {values.std():5.2f}), "
            f"count {found.count:.0f}"
        )
    print(f"   sizes: {SIZES.decode(released['sizes']).round(1).tolist()}")
    print(f"    true: {np.bincount((radius // 5).astype(int), minlength=8).tolist()}")


if __name__ == "__main__":
    main()
