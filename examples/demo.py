"""Train a classifier privately on scikit-learn's handwritten digits; write the ledger and the privacy statement.

    python examples/demo.py [--epsilon 3] [--into out]

Softmax regression by DP-SGD, in NumPy: Poisson samples, gradients clipped record by record, Gaussian noise on the sum, every
step charged to the ledger before its noise is drawn. Randomness comes from the operating system; the noise is floating-point,
which the statement names as an assumption.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

import discreet as dp
from discreet.report import statement

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


def uniforms(count: int) -> Array:
    """Numbers in (0, 1) from the operating system's generator."""
    bits = np.frombuffer(os.urandom(8 * count), np.uint64)
    return ((bits >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53


def normals(shape: tuple[int, int]) -> Array:
    """Standard normal numbers (Box and Muller)."""
    count = shape[0] * shape[1]
    radius, angle = np.sqrt(-2.0 * np.log(uniforms(count))), 2.0 * np.pi * uniforms(count)
    return (radius * np.cos(angle)).reshape(shape)


def clipped_sum(weights: Array, x: Array, y: NDArray[np.int64]) -> Array:
    """Sum over the sample of each record's gradient, clipped to CLIP_NORM.

    A record's gradient is the outer product of x and (softmax - one-hot), so its norm is the product of the two norms.
    """
    scores = x @ weights
    errors = np.exp(scores - scores.max(axis=1, keepdims=True, initial=-np.inf))
    errors /= errors.sum(axis=1, keepdims=True)
    errors[np.arange(len(y)), y] -= 1.0
    norms = np.linalg.norm(x, axis=1) * np.linalg.norm(errors, axis=1)
    factors = np.minimum(1.0, CLIP_NORM / np.maximum(norms, 1e-12))
    return np.asarray(x.T @ (errors * factors[:, None]))


def train(x: Array, y: NDArray[np.int64], plan: dp.Plan, ledger: dp.Ledger) -> Array:
    """DP-SGD; returns the average of the second half of the iterates (averaging releases costs nothing)."""
    (query,) = plan.step.queries
    noise_std = query.noise_std if isinstance(query, dp.GaussianSum) else 0.0
    weights = np.zeros((x.shape[1], CLASSES))
    average = np.zeros_like(weights)
    ledger.begin(plan.run_info("demo: softmax regression on digits"))
    for number in ledger.steps(plan.step, plan.steps):  # charged; from here on this step may be released
        drawn = uniforms(len(x)) < PROBABILITY
        release = clipped_sum(weights, x[drawn], y[drawn]) + noise_std * normals(weights.shape)
        weights -= LEARNING_RATE * release / (PROBABILITY * TRAINING)  # the expected size, never the realised one
        if number >= plan.steps // 2:
            average += weights / (plan.steps - plan.steps // 2)
        if (number + 1) % 20 == 0:
            print(f"  step {number + 1:>4} of {plan.steps}")
    return average


def accuracy(weights: Array, x: Array, y: NDArray[np.int64]) -> float:
    """Share of records whose highest score is that of their class."""
    return float(np.mean(np.argmax(x @ weights, axis=1) == y))


def non_private(x: Array, y: NDArray[np.int64]) -> Array:
    """The same model and learning rate on the same data, full batches, no clipping, no noise."""
    weights = np.zeros((x.shape[1], CLASSES))
    for _ in range(STEPS * 5):
        scores = x @ weights
        errors = np.exp(scores - scores.max(axis=1, keepdims=True))
        errors /= errors.sum(axis=1, keepdims=True)
        errors[np.arange(len(y)), y] -= 1.0
        weights -= LEARNING_RATE * x.T @ errors / len(x)
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
    needed = dp.calibrate(epsilon=options.epsilon, delta=options.delta, probability=PROBABILITY, steps=STEPS)
    plan = dp.Plan.dpsgd(
        sampling_probability=PROBABILITY,
        steps=STEPS,
        noise_multiplier=needed.value,
        clip_norm=CLIP_NORM,
        numerics=dp.Numerics.IDEALISED,  # the noise below is floating-point
    )
    print(
        f"epsilon {options.epsilon:g} at delta {options.delta:g} over {STEPS} steps needs noise multiplier {needed.value:.4f}"
    )
    with dp.Ledger.open(path) as ledger:
        weights = train(x, y, plan, ledger)
        print(f"\n{dp.account(ledger, delta=options.delta)}\n")
        (options.into / "report.md").write_text(statement(ledger, delta=options.delta))
    private, plain = (accuracy(model, x_test, y_test) for model in (weights, non_private(x, y)))
    print(f"test accuracy {private:.1%}; without privacy {plain:.1%}")
    print(f"{time.perf_counter() - start:.1f} s; ledger in {path}, statement in {options.into / 'report.md'}")


if __name__ == "__main__":
    main()
