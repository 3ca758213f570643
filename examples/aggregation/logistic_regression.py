"""Logistic regression on the breast cancer data by DP-SGD in NumPy: adaptive clipping, private
accuracy, ledger, guarantee.

    python examples/aggregation/logistic_regression.py [--epsilon 1] [--into out]

Each record brings two vectors: its gradient, clipped to a threshold that follows the median norm,
and whether it was classified rightly, a private metric on the same sample. Both, and the bit that
steers the threshold, are one charge.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer

import discreet as dp
from discreet.aggregation import Aggregator
from discreet.mechanisms import AdaptiveClip, Gaussian, Groups
from discreet.recipes import plan_with_scaled_noise
from discreet.sampling import Sampler

Array = NDArray[np.float64]

DELTA, STEPS, PROBABILITY, LEARNING_RATE = 1e-5, 60, 0.5, 1.0
# Worst radius, mean texture, worst concave points, worst smoothness: four that doctors named.
COLUMNS = (20, 1, 27, 24)
CENTRES, WIDTHS = (
    np.array([16.0, 20.0, 0.1, 0.13]),
    np.array([8.0, 10.0, 0.1, 0.04]),
)  # from textbooks, not from these data


def load() -> tuple[Array, Array, Array, Array]:
    """Features scaled by public constants; labels -1 and 1."""
    data = load_breast_cancer()
    scaled = (data.data[:, COLUMNS] - CENTRES) / WIDTHS
    x, y = np.hstack([scaled, np.ones((len(scaled), 1))]), 2.0 * data.target - 1.0
    order = np.random.default_rng(0).permutation(len(x))  # a public split; no privacy depends on it
    return x[order[:455]], y[order[:455]], x[order[455:]], y[order[455:]]


def plan_for(records: int, dimension: int, epsilon: float) -> dp.Plan:
    """Noise in these proportions, scaled to the target: gradient 1, the bit of its threshold 4, the
    metric 3.
    """
    plan = dp.Plan(
        sampler=Sampler(dp.Poisson(PROBABILITY), records=records, steps=STEPS),
        mechanism=Groups(
            {
                "grad": AdaptiveClip(
                    Gaussian(clip_norm=1.0, noise_multiplier=1.0), quantile=0.5, count_noise_std=4.0
                ),
                "metric/accuracy": Gaussian(clip_norm=1.0, noise_multiplier=3.0),
            }
        ),
        leaves={"grad": dimension, "metric/accuracy": 1},
    )
    return plan_with_scaled_noise(plan, epsilon=epsilon, delta=DELTA)


def train(x: Array, y: Array, plan: dp.Plan, ledger: dp.Ledger) -> tuple[Array, float, float]:
    """The average of the later iterates, the private training accuracy over the last quarter, and
    the last threshold.
    """
    run = Aggregator(plan, ledger=ledger, label="logistic regression on the breast cancer data")
    weights, average, right = np.zeros(x.shape[1]), np.zeros(x.shape[1]), []
    for sample in run.samples():
        rows, labels = x[sample.indices], y[sample.indices]
        margin = labels * np.einsum(
            "bf,f->b", rows, weights
        )  # `@` would round a record otherwise in a batch of another size
        gradients = -(labels / (1.0 + np.exp(margin)))[:, np.newaxis] * rows
        released = run.release(
            sample, {"grad": gradients, "metric/accuracy": (margin > 0)[:, np.newaxis]}
        )
        (threshold,) = run.state.values()
        weights -= LEARNING_RATE * released.mean("grad") / threshold
        average += weights * (released.step >= STEPS // 2) / (STEPS // 2)
        right.append(float(released.mean("metric/accuracy")[0]))
    return average, float(np.mean(right[-STEPS // 4 :])), threshold


def main() -> None:
    """Run the example."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--into", type=Path, default=Path("out"))
    options = parser.parse_args()
    options.into.mkdir(parents=True, exist_ok=True)
    path = options.into / "logistic.ledger"
    path.unlink(
        missing_ok=True
    )  # these data are public; a real ledger belongs to its data set and is never deleted

    x, y, x_test, y_test = load()
    plan = plan_for(len(x), x.shape[1], options.epsilon)
    print(plan.explain())
    with dp.Ledger.open(path) as ledger:
        weights, private_accuracy, threshold = train(x, y, plan, ledger)
        print(f"\n{dp.account(ledger, delta=DELTA)}\n")
        dp.Report.of(ledger, delta=DELTA).write(options.into / "logistic.md")
    print(
        f"threshold at the end {threshold:.3f}; private estimate of the training accuracy "
        f"{private_accuracy:.1%}"
    )
    print(
        f"test accuracy {np.mean(y_test * (x_test @ weights) > 0):.1%}; always the larger "
        f"class {np.mean(y_test > 0):.1%}"
    )


if __name__ == "__main__":
    main()
