"""The moments accountant against strong composition: Figure 2 of [Abadi2016], with what was
heuristic in it made valid.

Sampling probability 0.01, noise multiplier 4, delta 1e-5, up to 400 epochs. The published
strong-composition curve (9.34 after 100 epochs) uses (q epsilon, q delta) for the amplification of
one step and the classical Gaussian formula beyond epsilon 1; neither is valid.
Run: python examples/accounting/moments_accountant.py
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import matplotlib as mpl
import numpy as np
from composition import Statement, advanced, amplified, optimal

from discreet.accounting import rdp
from discreet.accounting.accountant import account
from discreet.accounting.costs import PoissonGaussian
from discreet.ledger.events import Everything, GaussianSum, Poisson, Step
from discreet.units import Adjacency

mpl.use("Agg")
import matplotlib.pyplot as plt  # after the choice of backend

PROBABILITY, NOISE, DELTA = 0.01, 4.0, 1e-5
EPOCHS = (10, 50, 100, 200, 400)
OUT = Path("out")
Composition = Callable[..., Statement]


def moments(steps: int) -> float:
    """The original accountant: whole orders up to 33, classical conversion r +
    ln(1/delta)/(order-1).
    """
    leaves = [(PoissonGaussian(PROBABILITY, NOISE), steps)]
    return min(
        rdp.composed(leaves, float(order)) - math.log(DELTA) / (order - 1) for order in range(2, 34)
    )


def strong(steps: int, compose: Composition, *, valid: bool) -> float:
    """The best split of delta between the steps and the composition."""
    best = math.inf
    for share in np.linspace(0.1, 0.9, 17):
        each = DELTA * share / (steps * PROBABILITY)
        if valid:
            epsilon = account(
                [(Step(Everything(), [GaussianSum("g", 1.0, NOISE)]), 1)],
                delta=each,
                adjacency=Adjacency.ADD_OR_REMOVE,
            ).upper
            one = amplified(Statement(epsilon, each), probability=PROBABILITY)
        else:
            classical = math.sqrt(2.0 * math.log(1.25 / each)) / NOISE
            one = Statement(PROBABILITY * classical, PROBABILITY * each)
        best = min(best, compose(one, count=steps, slack=DELTA * (1.0 - share)).epsilon)
    return best


def main() -> None:
    """Print the table and draw the figure."""
    step = Step(Poisson(PROBABILITY), [GaussianSum("gradient", 1.0, NOISE)])
    curves: dict[str, list[float]] = {
        name: [] for name in ("tight", "Rényi", "moments", "optimal", "strong", "heuristic")
    }
    print(
        "epochs  tight    Rényi    moments accountant  optimal composition  strong "
        "composition  heuristic (not valid)"
    )
    for epochs in EPOCHS:
        steps = round(epochs / PROBABILITY)
        row = (
            account([(step, steps)], delta=DELTA, adjacency=Adjacency.ADD_OR_REMOVE).upper,
            account(
                [(step, steps)], delta=DELTA, adjacency=Adjacency.ADD_OR_REMOVE, accountant="rdp"
            ).upper,
            moments(steps),
            strong(steps, optimal, valid=True),
            strong(steps, advanced, valid=True),
            strong(steps, advanced, valid=False),
        )
        for name, value in zip(curves, row, strict=True):
            curves[name].append(value)
        print(
            f"{epochs:6d}  {row[0]:.4f}   {row[1]:.4f}   {row[2]:18.4f}  {row[3]:19.3f}  "
            f"{row[4]:18.3f}  {row[5]:.3f}"
        )
    print("Published after 100 epochs: moments accountant 1.26, strong composition 9.34.")

    OUT.mkdir(exist_ok=True)
    figure, axes = plt.subplots(figsize=(6, 4))
    for name, values in curves.items():
        axes.semilogy(EPOCHS, values, "--" if name == "heuristic" else "-", marker="o", label=name)
    axes.plot([100, 100], [1.26, 9.34], "kx", label="published")
    axes.set(
        xlabel="epochs",
        ylabel=f"epsilon at delta {DELTA:g}",
        title="Sampling 0.01, noise multiplier 4",
    )
    axes.legend(fontsize="small", loc="center right")
    figure.tight_layout()
    figure.savefig(OUT / "moments_accountant.png", dpi=150)
    print(f"Figure: {OUT / 'moments_accountant.png'}")


if __name__ == "__main__":
    main()
