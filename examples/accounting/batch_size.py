"""The guide's Figure 1: a larger batch needs hardly more noise on the sum, so the average gets
better, up to a point.

Ten million examples, 10,000 steps of Poisson sampling, epsilon from 0.25 to 16; the guide does not
say its delta, here 1e-8.
The vertical axis is the noise on the average gradient over the clip norm: noise multiplier /
    expected batch size.
Run: python examples/accounting/batch_size.py
"""

from __future__ import annotations

import math
from pathlib import Path

import matplotlib as mpl
import numpy as np

from discreet.accounting.calibration.calibrate import solve
from discreet.accounting.calibration.unknowns import NoiseMultiplier
from discreet.ledger.events import Poisson

mpl.use("Agg")
from typing import TYPE_CHECKING

import matplotlib.pyplot as plt  # after the choice of backend

if TYPE_CHECKING:
    from discreet.accounting.accountant import Accountant

RECORDS, STEPS, DELTA = 10_000_000, 10_000, 1e-8
EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
OUT = Path("out")


def noise_on_average(batch: float, epsilon: float, accountant: Accountant) -> float:
    """The calibrated noise multiplier over the batch size."""
    unknown = NoiseMultiplier(Poisson(batch / RECORDS), STEPS)
    return (
        solve(unknown, epsilon=epsilon, delta=DELTA, accountant=accountant, tolerance=1e-2).value
        / batch
    )


def main() -> None:
    """Print some points and draw the figure."""
    batches = np.geomspace(300.0, 3e6, 13)
    OUT.mkdir(exist_ok=True)
    figure, axes = plt.subplots(figsize=(7, 5))
    print(
        "epsilon  knee n*sqrt(epsilon/T)  noise on the average at batch 300, 30,000 and "
        "3,000,000; tight saves over Rényi"
    )
    for epsilon in EPSILONS:
        renyi = np.array([noise_on_average(batch, epsilon, "rdp") for batch in batches])
        tight = np.array([noise_on_average(batch, epsilon, "tight") for batch in batches])
        knee = RECORDS * math.sqrt(epsilon / STEPS)
        saved = 100.0 * float(np.median(1.0 - tight / renyi))
        print(
            f"{epsilon:7.2f}  {knee:22.0f}  {tight[0]:.3g}  {tight[6]:.3g}  {tight[-1]:.3g}; "
            f"{saved:.1f} % (median)"
        )
        (line,) = axes.loglog(batches, tight, "-", label=f"epsilon {epsilon:g}")
        axes.loglog(batches, renyi, ":", color=line.get_color())
        axes.loglog(
            [knee],
            [np.exp(np.interp(math.log(knee), np.log(batches), np.log(tight)))],
            "o",
            color=line.get_color(),
        )
    axes.set(
        xlabel="expected batch size",
        ylabel="noise on the average / clip norm",
        title="Solid: tight; dotted: Rényi, as in the guide",
    )
    axes.legend()
    figure.tight_layout()
    figure.savefig(OUT / "batch_size.png", dpi=150)
    print(f"Figure: {OUT / 'batch_size.png'}")


if __name__ == "__main__":
    main()
