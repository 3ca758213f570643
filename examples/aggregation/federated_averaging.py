"""Federated averaging with privacy for users: each round draws users, each user trains on its own
rows, updates are averaged.

    python examples/aggregation/federated_averaging.py [--epsilon 3] [--into out]

The record is a user's whole model update, so the guarantee is for a user with all rows, however
many. Of a user with more than ROWS_PER_USER rows, a fresh random choice takes part in each round.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import make_classification

import discreet as dp
from discreet.recipes import plan_with_scaled_noise

Array = NDArray[np.float64]

USERS, ROUNDS, PROBABILITY, DELTA = 3_000, 40, 0.1, 1e-5
ROWS_PER_USER, LOCAL_STEPS, LOCAL_RATE, CLIP_NORM = 10, 5, 0.3, 0.5


def load() -> tuple[Array, Array, NDArray[np.int64]]:
    """Made-up rows with labels -1 and 1, and who owns each; some users own many rows, some few."""
    x, y = make_classification(
        40_000, n_features=10, n_informative=6, class_sep=1.2, random_state=0
    )
    owner = np.random.default_rng(0).geometric(1.0 / 700.0, len(x)) % USERS
    owner[:USERS] = np.arange(USERS)
    return np.hstack([x, np.ones((len(x), 1))]), 2.0 * y - 1.0, owner


def local_update(weights: Array, x: Array, y: Array) -> Array:
    """What one user sends: the change of the model by a few steps on the user's own rows."""
    own = weights.copy()
    for _ in range(LOCAL_STEPS):
        own += LOCAL_RATE * ((y / (1.0 + np.exp(y * (x @ own))))[:, np.newaxis] * x).mean(axis=0)
    return own - weights


def train(x: Array, y: Array, owners: dp.Owners, epsilon: float, ledger: dp.Ledger) -> Array:
    """The server's loop; it sees released averages only."""
    sampler = dp.Sampler(
        dp.Poisson(PROBABILITY),
        records=USERS,
        steps=ROUNDS,
        owners=owners,
        rows_per_unit=ROWS_PER_USER,
    )
    plan = dp.Plan(
        unit=dp.Unit.USER,
        sampler=sampler,
        mechanism=dp.Gaussian(CLIP_NORM, noise_multiplier=1.0),
        leaves={"update": x.shape[1]},
    )
    plan = plan_with_scaled_noise(plan, epsilon=epsilon, delta=DELTA)
    run = dp.Aggregator(plan, ledger=ledger, label="federated averaging")
    weights = np.zeros(x.shape[1])
    for sample in run.samples():
        updates = np.zeros((len(sample), x.shape[1]))
        for user in range(len(sample)):
            rows = sample.rows[sample.offsets[user] : sample.offsets[user + 1]]
            updates[user] = local_update(weights, x[rows], y[rows])
        weights += run.release(sample, {"update": updates}).mean("update")
    return weights


def main() -> None:
    """Run the example."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epsilon", type=float, default=3.0)
    parser.add_argument("--into", type=Path, default=Path("out"))
    options = parser.parse_args()
    options.into.mkdir(parents=True, exist_ok=True)
    path = options.into / "federated.ledger"
    path.unlink(
        missing_ok=True
    )  # these data are made up; a real ledger belongs to its data set and is never deleted

    x, y, owner = load()
    held_out = len(x) // 5
    owners = dp.Owners.from_ids(owner[:-held_out])
    with dp.Ledger.open(path) as ledger:
        weights = train(x[:-held_out], y[:-held_out], owners, options.epsilon, ledger)
        print(f"{dp.account(ledger, delta=DELTA)}\n")
    plain = np.linalg.lstsq(x[:-held_out], y[:-held_out], rcond=None)[
        0
    ]  # a linear model without privacy
    right = [np.mean(y[-held_out:] * (x[-held_out:] @ its) > 0) for its in (weights, plain)]
    print(f"test accuracy {right[0]:.1%}; a linear model without privacy {right[1]:.1%}")


if __name__ == "__main__":
    main()
