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

__all__ = ["CurveKind", "PlanCurve", "chart", "curve_of", "figure", "require_matplotlib"]

# Blocks from none to seven eighths of a character, so that short bars still differ.
_EIGHTHS = " ▏▎▍▌▋▊▉"
_WIDTH = 48  # characters of the longest bar


class CurveKind(Enum):
    """Which curve is drawn through a plan: noise over batches, or epsilon over steps."""

    NOISE = "noise"
    EPSILON = "epsilon"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanCurve:
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
        """The curve for scripts, with what its axes are."""
        return {"x": self.across, "y": self.along, "here": self.here, "points": self.points}


def curve_of(
    kind: CurveKind | None, plan: Plan, guarantee: Guarantee, *, epochs: float | None
) -> PlanCurve:
    """The curve through a plan's numbers.

    Args:
        kind: which; None is the noise, where the number of records is known.
        plan: one that `Plan.dpsgd` made.
        guarantee: of the plan; its delta is that of the curve.
        epochs: held fixed along the batch, where the plan was asked for by epochs; else its steps
            are.
    """
    from discreet.sampling import Sampler

    # Noise on the average is noise over the expected batch, which a probability alone does not say.
    sampler = plan.sampler
    if kind is CurveKind.NOISE and not isinstance(sampler, Sampler):
        raise DiscreetError(
            expected="--records for the curve over batch sizes",
            got="a probability only",
            do="Give --records, or draw --curve epsilon.",
        )

    if kind is CurveKind.EPSILON or not isinstance(sampler, Sampler):
        return _epsilon_against_steps(plan, guarantee)

    return _noise_against_batch(plan, sampler.records, guarantee, epochs)


def _noise_against_batch(
    plan: Plan, records: int, guarantee: Guarantee, epochs: float | None
) -> PlanCurve:
    from discreet.recipes import noise_curve

    # The plan's own batch is a point of the curve, besides the data set halved again and again.
    size = max(1, round(plan.expected_batch_size))
    epsilon = guarantee.upper if plan.target is None else plan.target.epsilon
    curve = noise_curve(
        records=records,
        epsilon=epsilon,
        delta=guarantee.delta,
        steps=plan.steps if epochs is None else None,
        epochs=epochs,
        batches={size, *(max(1, records >> power) for power in range(12))},
        adjacency=plan.adjacency,
    )

    fixed = f"{plan.steps} steps" if epochs is None else f"{nearest(epochs)} epochs"
    knee = "beyond the curve" if curve.flattens_at is None else f"near {curve.flattens_at}"
    return PlanCurve(
        title=(
            f"Noise on the average / clip norm, at epsilon {nearest(epsilon)} and {fixed}; it "
            f"flattens {knee}"
        ),
        across="batch",
        along="noise on average",
        points=tuple((float(row.expected_batch_size), row.average_noise) for row in curve.rows),
        here=float(size),
        logarithmic=True,
    )


def _epsilon_against_steps(plan: Plan, guarantee: Guarantee) -> PlanCurve:
    from discreet.ledger.events import Poisson
    from discreet.plan.calibrated import guarantee_of

    policy = plan.sampler.event
    if not isinstance(policy, Poisson):
        raise DiscreetError(
            expected="a plan with Poisson sampling",
            got=type(policy).__name__,
            do="Draw no curve.",
        )

    # Up to twice the steps that are planned, in eighths of them.
    counts = sorted({max(1, plan.steps * eighths // 8) for eighths in range(1, 17)} | {plan.steps})
    multiplier = plan.noise_multiplier
    epsilons = [
        guarantee_of((policy.probability, steps, multiplier), guarantee.delta, plan.adjacency).upper
        for steps in counts
    ]
    return PlanCurve(
        title=f"Epsilon at delta {guarantee.delta!r}, with noise multiplier {nearest(multiplier)}",
        across="steps",
        along="epsilon",
        points=tuple(zip(map(float, counts), epsilons, strict=True)),
        here=float(plan.steps),
        logarithmic=False,
    )


def chart(curve: PlanCurve, *, blocks: bool) -> str:
    """One line for each point: x, y, and a bar; the plan's own is marked.

    Args:
        curve: what to draw.
        blocks: whether characters other than ASCII may be used.

    >>> points = ((1, 1), (2, 4))
    >>> axes = {"across": "x", "along": "y"}
    >>> curve = PlanCurve(title="Squares", points=points, here=2, logarithmic=False, **axes)
    >>> print(chart(curve, blocks=False))
    Squares
       x     y
       1     1 ############
       2     4 ################################################ <- this plan
    """
    values = [value for _, value in curve.points]
    across = [curve.across, *(f"{x:.10g}" for x, _ in curve.points)]
    along = [curve.along, *map(upward, values)]
    widths = max(map(len, across)) + 1, max(map(len, along)) + 4

    # The first line below the title names the columns; bars begin on the next.
    bars = [""]
    mark = " ◀ this plan" if blocks else " <- this plan"
    for x, y in curve.points:
        length = _length(y, values, logarithmic=curve.logarithmic)
        bar = _blocks(length) if blocks else "#" * max(1, round(length))
        bars.append(f" {bar}{mark}" if x == curve.here else f" {bar}")

    title = curve.title + ("; bars are logarithmic" if curve.logarithmic else "")
    lines = [
        f"  {x:>{widths[0]}} {y:>{widths[1]}}{bar}"
        for x, y, bar in zip(across, along, bars, strict=True)
    ]
    return "\n".join([title, *lines])


def _length(value: float, values: list[float], *, logarithmic: bool) -> float:
    """The length of the bar of a value, in characters."""
    if not logarithmic:
        return _WIDTH * value / max(values)

    # The smallest value still gets a bar: the axis begins at half of it.
    lowest = min(values) / 2.0
    return _WIDTH * math.log(value / lowest) / math.log(max(values) / lowest)


def _blocks(length: float) -> str:
    # The first of the eighths is a space, which is stripped: a whole bar ends in no gap.
    eighths = max(1, round(8.0 * length))
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8 : eighths % 8 + 1].strip()


def require_matplotlib() -> None:
    """Raise an error that says what to install, if matplotlib is missing."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        raise DiscreetError(
            expected="matplotlib, to draw a figure",
            got="an installation without it",
            do="Install it: pip install 'discreet[plots]'. Nothing was written.",
        ) from None


def figure(curve: PlanCurve, suffix: str) -> bytes:
    """The curve as a PNG or SVG file."""
    from matplotlib.figure import Figure

    # Without pyplot, whose figures are global and whose backend may ask for a display.
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
