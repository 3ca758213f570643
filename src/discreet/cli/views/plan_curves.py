"""Curves around a plan: noise on the average against the batch, epsilon against the steps; drawn in
text or as a figure.
"""

from __future__ import annotations

import io
import math
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from discreet._digits import nearest, upward
from discreet.errors import DiscreetError

if TYPE_CHECKING:
    from discreet.plan import Plan
    from discreet.units import Guarantee

__all__ = ["Curve", "Kind", "chart", "curve_of", "figure", "require_matplotlib"]

_EIGHTHS = " ▏▎▍▌▋▊▉"
_WIDTH = 48  # characters of the longest bar


class Kind(Enum):
    """Which curve."""

    NOISE = "noise"
    EPSILON = "epsilon"


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Points that were each computed by the accountant.

    Args:
        title: in words.
        across, along: what x and y are.
        points: (x, y), in ascending order of x.
        here: x of the plan.
        logarithmic: whether y spans so much that its logarithm is drawn.
    """

    title: str
    across: str
    along: str
    points: tuple[tuple[float, float], ...]
    here: float
    logarithmic: bool

    @property
    def data(self) -> dict[str, Any]:
        """For scripts."""
        return {"x": self.across, "y": self.along, "here": self.here, "points": self.points}


def curve_of(kind: Kind, plan: Plan, guarantee: Guarantee, *, epochs: float | None) -> Curve:
    """The curve through a plan's numbers.

    Args:
        kind: which.
        plan: one that `Plan.dpsgd` made.
        guarantee: of the plan; its delta is that of the curve.
        epochs: held fixed along the batch, where the plan was asked for by epochs; else its steps
            are.
    """
    if kind is Kind.EPSILON:
        return _epsilon_against_steps(plan, guarantee)
    from discreet.recipes import noise_curve
    from discreet.sampling import Sampler

    if not isinstance(plan.sampler, Sampler):
        raise DiscreetError(
            expected="--records for the curve over batch sizes",
            got="a probability only",
            do="Give --records, or draw --curve epsilon.",
        )
    records, own = plan.sampler.records, max(1, round(plan.expected_batch_size))
    epsilon = guarantee.upper if plan.target is None else plan.target.epsilon
    held = noise_curve(
        records=records,
        epsilon=epsilon,
        delta=guarantee.delta,
        steps=plan.steps if epochs is None else None,
        epochs=epochs,
        batches={own, *(max(1, records >> power) for power in range(12))},
        adjacency=plan.adjacency,
    )
    fixed = f"{plan.steps} steps" if epochs is None else f"{nearest(epochs)} epochs"
    knee = "beyond the curve" if held.flattens_at is None else f"near {held.flattens_at}"
    return Curve(
        title=(
            f"Noise on the average / clip norm, at epsilon {nearest(epsilon)} and {fixed}; it "
            f"flattens {knee}"
        ),
        across="batch",
        along="noise on average",
        points=tuple((float(row.expected_batch_size), row.average_noise) for row in held.rows),
        here=float(own),
        logarithmic=True,
    )


def _epsilon_against_steps(plan: Plan, guarantee: Guarantee) -> Curve:
    from discreet.ledger.events import Poisson
    from discreet.plan.calibrated import guarantee_of

    policy = plan.sampler.event
    if not isinstance(policy, Poisson):
        raise DiscreetError(
            expected="a plan with Poisson sampling", got=type(policy).__name__, do="Draw no curve."
        )
    counts = sorted({max(1, plan.steps * eighths // 8) for eighths in range(1, 17)} | {plan.steps})
    multiplier = plan.noise_multiplier
    found = [
        guarantee_of((policy.probability, steps, multiplier), guarantee.delta, plan.adjacency).upper
        for steps in counts
    ]
    return Curve(
        title=f"Epsilon at delta {guarantee.delta!r}, with noise multiplier {nearest(multiplier)}",
        across="steps",
        along="epsilon",
        points=tuple(zip(map(float, counts), found, strict=True)),
        here=float(plan.steps),
        logarithmic=False,
    )


def chart(curve: Curve, *, blocks: bool) -> str:
    """One line for each point: x, y, and a bar; the plan's own is marked.

    Args:
        curve: what to draw.
        blocks: whether characters other than ASCII may be used.

    >>> curve = Curve(title="Squares", across="x", along="y", points=((1, 1), (2, 4)), here=2, logarithmic=False)
    >>> print(chart(curve, blocks=False))
    Squares
       x     y
       1     1 ############
       2     4 ################################################ <- this plan
    """
    values = [value for _, value in curve.points]
    columns = [
        [curve.across, *(f"{x:.10g}" for x, _ in curve.points)],
        [curve.along, *map(upward, values)],
    ]
    widths = [max(map(len, column)) for column in columns]
    lines = [curve.title + ("; bars are logarithmic" if curve.logarithmic else "")]
    for row, (x, y) in enumerate(zip(*columns, strict=True)):
        line = f"  {x:>{widths[0] + 1}} {y:>{widths[1] + 4}}"
        if row:
            full = _length(values[row - 1], values, logarithmic=curve.logarithmic)
            line += " " + (_blocks(full) if blocks else "#" * max(1, round(full)))
            line += (
                (" ◀ this plan" if blocks else " <- this plan")
                if curve.points[row - 1][0] == curve.here
                else ""
            )
        lines.append(line)
    return "\n".join(lines)


def _length(value: float, values: list[float], *, logarithmic: bool) -> float:
    """Of a bar, in characters."""
    if not logarithmic:
        return _WIDTH * value / max(values)
    lowest = min(values) / 2.0
    return _WIDTH * math.log(value / lowest) / math.log(max(values) / lowest)


def _blocks(length: float) -> str:
    eighths = max(1, round(8.0 * length))
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8 : eighths % 8 + 1].strip()


def require_matplotlib() -> None:
    """An error that says what to install, if it is not."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        raise DiscreetError(
            expected="matplotlib, to draw a figure",
            got="an installation without it",
            do="Install it: pip install 'discreet[plots]'. Nothing was written.",
        ) from None


def figure(curve: Curve, suffix: str) -> bytes:
    """The curve as a PNG or SVG file."""
    from matplotlib.figure import Figure

    drawing = Figure(figsize=(7.0, 4.2), layout="constrained")
    axes = drawing.subplots()
    axes.plot([x for x, _ in curve.points], [y for _, y in curve.points], marker=".")
    axes.plot(
        [curve.here],
        [y for x, y in curve.points if x == curve.here],
        marker="o",
        linestyle="none",
        label="this plan",
    )
    axes.set(xlabel=curve.across, ylabel=curve.along)
    axes.set_title(curve.title, fontsize="small", wrap=True)
    if curve.logarithmic:
        axes.set(xscale="log", yscale="log")
    else:
        axes.set_ylim(bottom=0.0)
    axes.grid(visible=True, alpha=0.3)
    axes.legend()
    file = io.BytesIO()
    drawing.savefig(file, format=suffix.removeprefix("."), dpi=150)
    return file.getvalue()
