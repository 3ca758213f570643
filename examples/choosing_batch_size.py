"""Which batch size? The noise on the average gradient against the batch, with the number of steps
or of epochs held fixed.

    python examples/choosing_batch_size.py [--records 60000] [--epsilon 3] [--into out]

Left: at a fixed epsilon the noise on the average falls with the batch until it flattens. Right:
what that costs in passes over the data. Then the reverse question: the noise that a model tolerates
is given; which batch reaches epsilon with it? No data is used here, so nothing is spent.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib as mpl

from discreet.recipes import noise_curve, plan_at_average_noise

mpl.use("Agg")
import matplotlib.pyplot as plt  # after the choice of backend

STEPS, EPOCHS = 2_000, 20


def main() -> None:
    """Print both curves and one plan; draw the figure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=60_000)
    parser.add_argument("--epsilon", type=float, default=3.0)
    parser.add_argument("--into", type=Path, default=Path("out"))
    options = parser.parse_args()

    by_steps = noise_curve(records=options.records, epsilon=options.epsilon, steps=STEPS)
    by_epochs = noise_curve(records=options.records, epsilon=options.epsilon, epochs=EPOCHS)
    figure, (noise, work) = plt.subplots(1, 2, figsize=(10, 4.2))
    for name, curve in ((f"{STEPS} steps", by_steps), (f"{EPOCHS} epochs", by_epochs)):
        print(f"{name}\n{curve}\n")
        batches = [row.expected_batch_size for row in curve.rows]
        (line,) = noise.loglog(batches, [row.average_noise for row in curve.rows], label=name)
        for row in curve.rows:
            if row.expected_batch_size == curve.flattens_at:
                noise.loglog(
                    [row.expected_batch_size], [row.average_noise], "o", color=line.get_color()
                )
        work.loglog(
            batches,
            [row.steps * row.expected_batch_size / options.records for row in curve.rows],
            label=name,
        )
    noise.set(
        xlabel="expected batch size",
        ylabel="noise on the average / clip norm",
        title="Dots: where it flattens",
    )
    work.set(
        xlabel="expected batch size", ylabel="passes over the data", title="What it costs in work"
    )
    noise.legend()
    figure.tight_layout()
    options.into.mkdir(parents=True, exist_ok=True)
    figure.savefig(options.into / "choosing_batch_size.png", dpi=150)

    tolerated = 2.0 * by_steps.rows[-1].average_noise
    plan = plan_at_average_noise(
        records=options.records, average_noise=tolerated, epsilon=options.epsilon, steps=STEPS
    )
    print(
        f"With noise {tolerated:.3g} on the average, {STEPS} steps need batches of "
        f"{plan.expected_batch_size:.0f}:\n"
    )
    print(plan.explain(delta=plan.target.delta if plan.target else None))
    print(f"\nFigure: {options.into / 'choosing_batch_size.png'}")


if __name__ == "__main__":
    main()
