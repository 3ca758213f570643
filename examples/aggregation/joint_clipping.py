"""The paper's example for joint clipping: two vectors of very different size, of which each record
has only one.

    python examples/aggregation/joint_clipping.py [--into out]

A record is (small, large): |small| <= 1 and |large| <= 100, and one of the two is always zero.
Clipped apart, the two sums are two queries, so each gets noise sqrt(2) times as large as if it were
alone. Clipped jointly, with scales (1, 100)
and clip norm 1, a record still fits unclipped, because it uses only one of its two parts: one
query, and each sum gets the noise of one. Same sample, same guarantee, half the squared error.
[McMahan2018, section 2]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib as mpl
import numpy as np
from numpy.typing import NDArray

import discreet as dp
from discreet.aggregation import aggregate
from discreet.mechanisms import Gaussian, Groups, Joint
from discreet.sampling import Sampler

mpl.use("Agg")
import matplotlib.pyplot as plt  # after the choice of backend

Array = NDArray[np.float64]

RECORDS, DIMENSION, NOISE_MULTIPLIER, DELTA = 1_000, 50, 4.0, 1e-5
LEAVES = {"small": DIMENSION, "large": DIMENSION}
SEPARATE = Groups(
    {
        "small": Gaussian(clip_norm=1.0, noise_multiplier=NOISE_MULTIPLIER * 2**0.5),
        "large": Gaussian(clip_norm=100.0, noise_multiplier=NOISE_MULTIPLIER * 2**0.5),
    }
)
JOINT = Joint(
    clip_norm=1.0, noise_multiplier=NOISE_MULTIPLIER, scales={"small": 1.0, "large": 100.0}
)


def records() -> dict[str, Array]:
    """Half of the records have only the small vector, half only the large one. Made up, hence
    public.
    """
    rng = np.random.default_rng(0)
    directions = rng.normal(size=(RECORDS, DIMENSION)) + 0.5
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    has_small = rng.random((RECORDS, 1)) < 0.5
    return {"small": directions * has_small, "large": 100.0 * directions * ~has_small}


def errors(
    mechanism: Groups | Joint, data: dict[str, Array], repetitions: int
) -> tuple[dp.Guarantee, dict[str, list[float]]]:
    """Guarantee of one release, and the root mean square error of each sum, relative to the
    vector's size, over many.
    """
    plan = dp.Plan(
        sampler=Sampler(dp.Everything(), records=RECORDS, steps=1),
        mechanism=mechanism,
        leaves=LEAVES,
    )
    sizes = {"small": 1.0, "large": 100.0}
    found: dict[str, list[float]] = {leaf: [] for leaf in LEAVES}
    for _ in range(repetitions):
        released = aggregate(data, plan, ledger=dp.Ledger.in_memory())
        for leaf, values in data.items():
            found[leaf].append(
                float(np.sqrt(np.mean((released[leaf] - values.sum(axis=0)) ** 2))) / sizes[leaf]
            )
    return dp.account(plan, delta=DELTA), found


def main() -> None:
    """Compare the two, print and plot."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repetitions", type=int, default=100)
    parser.add_argument("--into", type=Path, default=Path("out"))
    options = parser.parse_args()
    options.into.mkdir(parents=True, exist_ok=True)

    data = records()
    results = {
        name: errors(its, data, options.repetitions)
        for name, its in (("separate", SEPARATE), ("joint", JOINT))
    }
    figure, axes = plt.subplots(figsize=(6, 4))
    for name, (guarantee, found) in results.items():
        print(f"{name:>8}: epsilon {guarantee.epsilon:.4f} at delta {DELTA:g}; ", end="")
        print(
            ", ".join(
                f"error of the {leaf} sum {np.mean(values):.3f}" for leaf, values in found.items()
            )
        )
        axes.hist(
            found["small"] + found["large"],
            bins=30,
            alpha=0.6,
            label=f"{name}, epsilon {guarantee.epsilon:.3f}",
        )
    apart, together = (np.mean(found["small"] + found["large"]) for _, found in results.values())
    print(
        f"separate clipping has {apart / together:.3f} times the error of joint clipping "
        f"(theory: {2**0.5:.3f})"
    )
    axes.set_xlabel("root mean square error of a released sum / size of the vectors in it")
    axes.set_ylabel("releases")
    axes.legend()
    figure.tight_layout()
    figure.savefig(options.into / "joint_clipping.png", dpi=120)
    print(f"plot in {options.into / 'joint_clipping.png'}")


if __name__ == "__main__":
    main()
