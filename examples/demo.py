"""Train a classifier privately on scikit-learn's handwritten digits; write the ledger and the privacy statement.

    python examples/demo.py [--epsilon 3] [--into out]

Softmax regression by DP-SGD, through the NumPy engine: Poisson samples and noise from the cryptographic source, gradients
clipped record by record and summed exactly, every step charged to the ledger before its sample is drawn.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

import discreet as dp

Array = NDArray[np.float64]

CLASSES = 10
CLIP_NORM = 1.0
STEPS = 120
PROBABILITY = 0.25
LEARNING_RATE = 8.0
TRAINING = 1437  # records; the other 360 are for testing


def load() -> tuple[Array, NDArray[np.int64], Array, NDArray[np.int64]]:
    """Images as vectors of length 1 (each scaled by itself, so nothing private is used), and labels."""
    images, labels = load_digits(return_X_y=True)
    pixels = images - 5.0
    pixels /= np.linalg.norm(pixels, axis=1, keepdims=True)
    order = np.random.default_rng(0).permutation(len(images))  # a public split; no privacy depends on it
    train, test = order[:TRAINING], order[TRAINING:]
    return pixels[train], labels[train], pixels[test], labels[test]


def gradients(weights: Array, x: Array, y: NDArray[np.int64]) -> Array:
    """Each record's own gradient: the outer product of x and (softmax - one-hot)."""
    scores = np.einsum("bf,fc->bc", x, weights)  # not x @ weights: it rounds a record otherwise when the batch has another size
    errors = np.exp(scores - scores.max(axis=1, keepdims=True, initial=-np.inf))
    errors /= errors.sum(axis=1, keepdims=True)
    errors[np.arange(len(y)), y] -= 1.0
    return np.asarray(x[:, :, np.newaxis] * errors[:, np.newaxis, :])


def train(x: Array, y: NDArray[np.int64], plan: dp.Plan, ledger: dp.Ledger) -> Array:
    """DP-SGD; returns the average of the second half of the iterates (averaging releases costs nothing)."""
    weights = np.zeros((x.shape[1], CLASSES))
    average = np.zeros_like(weights)
    run = dp.Aggregator(
        plan.for_leaves({"grad/weights": weights.size}), ledger=ledger, label="demo: softmax regression on digits"
    )
    for sample in run.samples():  # charged; from here on this sample may be released, once
        released = run.release(sample, {"grad/weights": gradients(weights, x[sample.indices], y[sample.indices])})
        weights -= LEARNING_RATE * released.mean("grad/weights").reshape(weights.shape)
        if released.step >= plan.steps // 2:
            average += weights / (plan.steps - plan.steps // 2)
        if (released.step + 1) % 20 == 0:
            print(f"  step {released.step + 1:>4} of {plan.steps}")
    return average


def accuracy(weights: Array, x: Array, y: NDArray[np.int64]) -> float:
    """Share of records whose highest score is that of their class."""
    return float(np.mean(np.argmax(x @ weights, axis=1) == y))


def non_private(x: Array, y: NDArray[np.int64]) -> Array:
    """The same model and learning rate on the same data, full batches, no clipping, no noise."""
    weights = np.zeros((x.shape[1], CLASSES))
    for _ in range(STEPS * 5):
        weights -= LEARNING_RATE * gradients(weights, x, y).mean(axis=0)
    return weights


def main() -> None:
    """Run the demo."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epsilon", type=float, default=3.0)
    parser.add_argument("--delta", type=float, default=1e-5)
    parser.add_argument("--into", type=Path, default=Path("out"))
    options = parser.parse_args()

    options.into.mkdir(parents=True, exist_ok=True)
    path = options.into / "demo.ledger"
    path.unlink(missing_ok=True)  # these data are public; a real ledger belongs to its data set and is never deleted

    start = time.perf_counter()
    x, y, x_test, y_test = load()
    plan = dp.Plan.dpsgd(
        records=len(x),
        sampling_probability=PROBABILITY,
        steps=STEPS,
        clip_norm=CLIP_NORM,
        epsilon=options.epsilon,
        delta=options.delta,
    )
    print(plan.explain())
    with dp.Ledger.open(path) as ledger:
        weights = train(x, y, plan, ledger)
        print(f"\n{dp.account(ledger, delta=options.delta)}\n")
        dp.Report.of(ledger, plan=plan).write(options.into / "report.md")
    private, plain = (accuracy(model, x_test, y_test) for model in (weights, non_private(x, y)))
    print(f"test accuracy {private:.1%}; without privacy {plain:.1%}")
    print(f"{time.perf_counter() - start:.1f} s; ledger in {path}, statement in {options.into / 'report.md'}")


if __name__ == "__main__":
    main()
