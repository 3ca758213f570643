"""Features made fit for a private model: standardised, whitened, then classified by class means;
three queries, one budget.

    python examples/aggregation/private_whitening.py [--epsilon 1] [--into out]

A few directions are strong in all records and tell nothing apart, as brightness does in images.
They use up the clip norm and drown what counts. Finding them is a private query like any other:
charged to the same ledger, calibrated together. No torch.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import discreet as dp
from discreet import features
from discreet.aggregation import aggregate
from discreet.mechanisms import Gaussian
from discreet.sampling import Sampler

Array = NDArray[Any]

DELTA, RECORDS, DIMENSION = 1e-5, 20_000, 40
OFFSET, UNITS = (
    5.0,
    np.logspace(0, 1, DIMENSION),
)  # coordinates in different units, none of them centred


def draw(rng: np.random.Generator, count: int) -> tuple[Array, Array]:
    """Two classes a little apart in one direction; three other directions are five times as strong
    and mean nothing.
    """
    fixed = np.random.default_rng(0)
    strong, apart = (
        fixed.normal(size=(3, DIMENSION)) / math.sqrt(DIMENSION),
        fixed.normal(size=DIMENSION) / math.sqrt(DIMENSION),
    )
    y = rng.integers(2, size=count)
    x = rng.normal(size=(count, DIMENSION)) + 5.0 * rng.normal(
        size=(count, 3)
    ) @ strong * math.sqrt(10)
    return (x + 3.0 * np.outer(y - 0.5, apart)) * UNITS + OFFSET, y


def programme(epsilon: float) -> dp.Programme:
    """Noise in the proportions 4 : 2 : 1, scaled to the target."""
    means = dp.Plan(
        sampler=Sampler(dp.Everything(), records=RECORDS, steps=1),
        mechanism=Gaussian(1.0, 1.0),
        leaves={"difference": DIMENSION},
    )
    plans = {
        "moments": features.standardise_plan(
            records=RECORDS, dimension=DIMENSION, noise_multiplier=4.0
        ),
        "covariance": features.whiten_plan(
            records=RECORDS, dimension=DIMENSION, noise_multiplier=2.0
        ),
        "means": means,
    }
    return dp.Programme(plans).calibrated(epsilon=epsilon, delta=DELTA)


def main() -> None:
    """Run the example."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--into", type=Path, default=Path("out"))
    options = parser.parse_args()
    options.into.mkdir(parents=True, exist_ok=True)
    path = options.into / "whitening.ledger"
    path.unlink(
        missing_ok=True
    )  # these data are made up; a real ledger belongs to its data set and is never deleted

    rng = np.random.default_rng(1)
    (x, y), (test_x, test_y) = draw(rng, RECORDS), draw(rng, RECORDS)
    plans = programme(options.epsilon)
    with dp.Ledger.open(
        path, budget=dp.Budget(plans=plans)
    ) as ledger:  # all three looks are fixed before the first
        # Units and offset of each coordinate are public, their means and variances are not.
        scale = features.standardise(
            x, plan=plans["moments"], ledger=ledger, reference=(OFFSET, 5.0 * UNITS)
        )
        radius = math.sqrt(DIMENSION)  # a standardised row is about this long
        inside = features.unit_ball(scale(x), radius=radius)
        white = features.whiten(inside, plan=plans["covariance"], ledger=ledger)
        ready = features.unit_ball(white(inside), radius=white.norm)
        signs = np.where(y == 1, 1.0, -1.0)[:, np.newaxis]
        released = aggregate({"difference": ready * signs}, plans["means"], ledger=ledger)
        print(dp.account(ledger, delta=DELTA))
        for name in ("standardisation", "whitening"):
            (options.into / f"{name}.npz").unlink(missing_ok=True)
        scale.save(
            options.into / "standardisation.npz"
        )  # part of the model: whoever uses it needs them
        white.save(options.into / "whitening.npz")

    def accuracy(rows: Array, labels: Array, weights: Array) -> float:
        return float(np.mean((rows @ weights > 0.0) == (labels == 1)))

    seen = features.unit_ball(scale(test_x), radius=radius)
    found = accuracy(
        features.unit_ball(white(seen), radius=white.norm), test_y, released["difference"]
    )
    plain = accuracy(seen, test_y, (inside * signs).sum(0))  # no noise at all, for comparison
    print(f"\n{white.gains.size} strong directions, gains {white.gains.round(2).tolist()}")
    print(f"test accuracy {found:.1%} with whitening; without it, and without noise, {plain:.1%}")


if __name__ == "__main__":
    main()
